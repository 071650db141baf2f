"""The config of the tiled family."""

from __future__ import annotations

from dataclasses import replace

from clgemm.core.config import variant_of
from clgemm.kernels.tiled.config import TiledVariant
from clgemm.kernels.tiled.defaults import lane_configs, nvidia_configs

LARGE = lane_configs()[0]


def test_work_items_that_share_sums_count():
    """A work-group has as many work-items for each block of C as there are parts."""
    assert replace(LARGE, parts=2).items == 2 * LARGE.items == 2 * LARGE.items_m * LARGE.items_n


def test_transposed_tiles_have_a_longer_pitch():
    """A column of a tile that is transposed on its way does not fall into one memory bank."""
    plain, one, both = (
        variant_of(TiledVariant, LARGE, transpose_a=a, transpose_b=b)
        for a, b in ((False, False), (True, False), (True, True))
    )
    extra = 4 * LARGE.buffers * LARGE.tile_k
    assert plain.local_memory_bytes == LARGE.local_memory_bytes
    assert one.local_memory_bytes == plain.local_memory_bytes + extra * LARGE.width_a
    assert both.local_memory_bytes == one.local_memory_bytes + extra * LARGE.width_b


def test_fused_split_k_needs_a_newer_opencl_c():
    """Its atomic functions are those of OpenCL C 3.0; all else is compiled as 1.2."""
    assert variant_of(TiledVariant, LARGE, fused_split_k=True).standard == "CL3.0"
    assert variant_of(TiledVariant, LARGE).standard == LARGE.standard == "CL1.2"


def test_sums_that_are_shared_pass_through_the_tiles_memory():
    """The tiles of A can hold whole rows of a block of C, for every config with parts."""
    for config in (c for c in nvidia_configs() if c.parts > 1):
        rows = config.buffers * config.tile_k * config.work_m // config.tile_n
        assert rows >= 1
        assert config.work_m % min(rows, config.work_m) == 0
