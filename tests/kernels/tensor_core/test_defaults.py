"""The default configs of tensor cores."""

from __future__ import annotations

import pytest

from clgemm.core.shapes import Shape
from clgemm.kernels.tensor_core.defaults import NARROW_TILES, WIDE_TILES, wgmma_config

UNITS = 132


@pytest.mark.parametrize(
    ("shape", "tiles"),
    [
        (Shape(128 * UNITS, 256, 4096), WIDE_TILES),  # one whole round
        (Shape(128 * UNITS, 128, 4096), NARROW_TILES),  # half of each wide tile would be empty
        (Shape(128 * (UNITS // 2), 256, 4096), NARROW_TILES),  # half of the units would be idle
        (Shape(8192, 8192, 8192), WIDE_TILES),
    ],
)
def test_few_compute_units_are_idle_in_the_last_round(shape, tiles):
    """Wide tiles are used unless narrow ones need fewer than two rounds for each of theirs."""
    config = wgmma_config(shape, UNITS)
    assert (config.tile_n, config.stages) == tiles


def test_the_matrices_of_a_batch_count():
    """A batch fills the rounds that one of its matrices leaves empty."""
    shape = Shape(128 * (UNITS // 2), 256, 4096)
    assert wgmma_config(shape, UNITS).tile_n == NARROW_TILES[0]
    assert wgmma_config(shape._replace(matrices=2), UNITS).tile_n == WIDE_TILES[0]
