"""The config of the tiled family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS

from clgemm.core.config import variant_of
from clgemm.kernels.tiled.config import TiledVariant
from clgemm.kernels.tiled.defaults import lane_configs, nvidia_configs

LARGE = lane_configs()[0]
COPIED = next(config for config in nvidia_configs() if config.asynchronous)
LIMITED = next(config for config in nvidia_configs() if config.registers)


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


@pytest.mark.parametrize("buffers", [1, 7])
def test_asynchronous_copies_need_a_buffer_to_fill_and_one_to_read(buffers):
    """With one, a tile would be overwritten while it is multiplied."""
    assert any(f"buffers={buffers}" in each for each in replace(COPIED, buffers=buffers).problems())


def test_only_asynchronous_copies_fill_more_than_two_buffers():
    """Otherwise the next tile waits in registers, and a third buffer would never be filled."""
    assert list(replace(COPIED, asynchronous=False, buffers=3).problems())


def test_a_copy_that_transposes_takes_one_float():
    """The floats of a wider one would have to go to different rows of local memory."""
    variant = variant_of(TiledVariant, COPIED, transpose_a=True, load_a=1, load_b=4)
    assert not list(variant.problems())
    assert any("load_a" in each for each in replace(variant, load_a=4).problems())


@pytest.mark.parametrize("config", [COPIED, LIMITED])
def test_devices_without_nvidias_instructions_refuse_configs_that_need_them(config):
    """So no record, however it came there, takes such code to another compiler."""
    assert any("compute capability 8.0" in each for each in config.problems_on(LIMITS))
    assert not list(config.problems_on(replace(LIMITS, asynchronous_copies=True)))


def test_registers_are_limited_by_a_compiler_option():
    """Configs that leave registers to the compiler have no option."""
    assert LIMITED.build_options == (f"-cl-nv-maxrregcount={LIMITED.registers}",)
    assert replace(LIMITED, registers=0).build_options == ()


def test_what_reads_by_vectors_alone():
    """Configs with many sums do. So do those with many copies of single floats for each tile."""
    large = replace(LARGE, work_m=16, work_n=8)
    copied = replace(COPIED, tile_m=64, tile_n=64, tile_k=16, work_m=8, work_n=8)
    assert large.is_crowded
    assert copied.is_crowded
    assert not LARGE.is_crowded
    assert not replace(large, work_m=8).is_crowded
    assert not replace(copied, tile_k=8).is_crowded
    assert not replace(copied, work_n=4).is_crowded
