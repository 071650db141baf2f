"""The default configs of tensor cores."""

from __future__ import annotations

import pytest
from strategies import GPU_LIMITS as LIMITS

from clgemm.core.shapes import Shape
from clgemm.kernels.tensor_core.defaults import NARROW_TILES, WIDE_TILES, wgmma_configs

UNITS = LIMITS.compute_units


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        (Shape(128 * UNITS, 256, 4096), WIDE_TILES),  # one whole round
        (Shape(128 * UNITS, 128, 4096), NARROW_TILES),  # half of each wide tile would be empty
        (Shape(128 * (UNITS // 2), 256, 4096), NARROW_TILES),  # half of the units would be idle
        (Shape(8192, 8192, 8192), WIDE_TILES),
    ],
)
def test_few_compute_units_are_idle(shape, config):
    """Wide tiles come first unless narrow ones need fewer than two rounds for each of theirs."""
    configs = wgmma_configs(shape, LIMITS)
    assert configs[0] == config
    assert set(configs) == {NARROW_TILES, WIDE_TILES}


def test_the_matrices_of_a_batch_count():
    """A batch fills the rounds that one of its matrices leaves empty."""
    shape = Shape(128 * (UNITS // 2), 256, 4096)
    assert wgmma_configs(shape, LIMITS)[0] == NARROW_TILES
    assert wgmma_configs(shape._replace(matrices=2), LIMITS)[0] == WIDE_TILES
