"""The configs of packing."""

from __future__ import annotations

import pytest

from clgemm.core.config import variant_of
from clgemm.kernels.pack.config import PackConfig, VectorPackConfig, VectorPackVariant


@pytest.mark.parametrize("panel", [1, 16, 33, 128])
def test_a_column_of_local_memory_never_is_a_multiple_of_the_banks(panel):
    """The pitch is odd, and it is the panel or one more."""
    config = PackConfig(panel=panel, depth=16, group=64)
    pitch = config.local_memory_bytes // (4 * 16)
    assert pitch % 2 == 1
    assert panel <= pitch <= panel + 1


@pytest.mark.parametrize("panel", [1, 2, 4, 6, 8, 9, 12, 14, 16, 24, 32, 48])
@pytest.mark.parametrize("rows", [1, 64, 384])
def test_panels_of_any_height_can_be_packed_by_vectors(panel, rows):
    """Work-groups pack about so many rows together: at least one panel."""
    config = VectorPackConfig.of(panel, rows, prefetch=True)
    assert not list(config.problems())
    assert config.panels * panel <= max(rows, panel)


def test_operands_that_the_caches_cannot_hold_are_stored_past_them():
    """The macro WRITES is 0 for plain stores, 1 after a prefetch, 2 past the caches."""
    for prefetch in (False, True):
        config = VectorPackConfig.of(48, 384, prefetch)
        for streams in (False, True):
            launch = variant_of(VectorPackVariant, config, streams=streams)
            assert dict(launch.macros())["WRITES"] == (2 if streams else int(prefetch))
            assert {"PANELS", "STREAMS"}.isdisjoint(dict(launch.macros()))
