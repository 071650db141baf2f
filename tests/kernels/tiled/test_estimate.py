"""The tiled family's expected times and its choice of split-k."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS

from clgemm.kernels.tiled.defaults import nvidia_configs
from clgemm.kernels.tiled.estimate import REGISTERS, SMALLEST_SLICE, launch_us, tiled_estimate


def best_for(size, limits):
    """The config with the shortest expected time, and its estimate."""
    found = {c: tiled_estimate(c.tiles, *size, 1, limits) for c in nvidia_configs()}
    return min(found.items(), key=lambda each: each[1].time)


@pytest.mark.parametrize("size", [(64, 4096, 4096), (4096, 64, 4096), (64, 64, 100_000)])
def test_nearly_every_compute_unit_of_a_gpu_gets_work(size):
    """With few tiles of C, k is split, into slices of a minimum depth.

    128 work-groups of the fastest tiles leave 4 of 132 compute units idle, and another cut of k
    would cost more than that.
    """
    limits = replace(LIMITS, compute_units=132)
    config, found = best_for(size, limits)
    tiles = -(-size[0] // config.tile_m) * -(-size[1] // config.tile_n)
    assert tiles * found.slices >= 0.95 * 132
    assert found.slices == 1 or size[2] // found.slices >= SMALLEST_SLICE


def test_a_long_sum_of_few_tiles_is_expected_to_gain_by_slices():
    """One slice takes far longer than many, and so does one of the fewest steps per launch."""
    limits = replace(LIMITS, compute_units=132)
    tiles = nvidia_configs()[1].tiles
    times = [launch_us(tiles, 64, 64, 100_000, 1, n, False, limits) for n in (1, 8, 64)]
    assert times[0] > 4 * times[1] > 8 * times[2]


def test_loads_of_single_floats_are_expected_to_take_longer():
    """Unaligned operands take more instructions; transposed ones pass through local memory."""
    limits = replace(LIMITS, compute_units=132)
    wide = nvidia_configs()[0].tiles
    shape = (4096, 4096, 4096, 1, 1, False)
    single = launch_us(wide._replace(load_a=1, load_b=1), *shape, limits)
    across = launch_us(wide._replace(transpose_a=True), *shape, limits)
    assert launch_us(wide, *shape, limits) < min(single, across)


def test_split_k_is_fused_where_that_is_faster():
    """Split-k is fused for few slices, if the device lets work-groups read what others write."""
    limits = replace(LIMITS, compute_units=132)
    fusing = replace(limits, fused_split_k=True)
    assert best_for((640, 640, 640), fusing)[1].fused_split_k
    assert not best_for((64, 64, 100_000), fusing)[1].fused_split_k
    assert not best_for((640, 640, 640), limits)[1].fused_split_k


@pytest.mark.parametrize("config", [c for c in nvidia_configs() if c.parts > c.buffers])
def test_slices_of_k_run_side_by_side(config):
    """No compute unit gets more work-groups at a time than its registers hold."""
    limits = replace(LIMITS, compute_units=132)
    found = tiled_estimate(config.tiles, config.tile_m, 64 * config.tile_n, 4096, 1, limits)
    sums = config.work_m * config.work_n
    assert -(-64 * found.slices // 132) * config.items * sums <= REGISTERS
    # Two work-groups a unit leave lanes idle: adding up what the parts share is worth it.
    two = config.tile_m, 2 * 132 * config.tile_n, 4096, 1, limits
    alone = tiled_estimate(replace(config, parts=1).tiles, *two)
    assert tiled_estimate(config.tiles, *two).time < alone.time


def test_aligned_stores_count_less_and_only_a_short_k_makes_others_dear():
    """Where k is long, the stores of C hardly matter."""
    limits = replace(LIMITS, compute_units=132)
    config = next(each for each in nvidia_configs() if each.buffers == 2)

    def us(columns, depth, c_column=1):
        c_row = 1 if c_column > 1 else columns
        tiles = config.tiles_for(columns, c_row, c_column)
        return launch_us(tiles, 4000, columns, depth, 1, 1, False, limits)

    assert us(4001, 20) > 1.1 * us(4000, 20)
    assert us(4001, 20, 4000) > us(4001, 20)
    assert us(4001, 4000) < 1.03 * us(4000, 4000)
