"""The tiled family's expected times and its choice of split-k."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS

from clgemm.kernels.tiled.defaults import nvidia_configs
from clgemm.kernels.tiled.estimate import REGISTERS, SMALLEST_SLICE, tiled_estimate


@pytest.mark.parametrize("size", [(64, 4096, 4096), (4096, 64, 4096), (64, 64, 100_000)])
def test_every_compute_unit_of_a_gpu_gets_work(size):
    """With few tiles of C, k is split, into slices of a minimum depth."""
    limits = replace(LIMITS, compute_units=132)
    slices = min(
        (tiled_estimate(config, *size, 1, limits) for config in nvidia_configs()),
        key=lambda found: found.time,
    ).slices
    assert slices > 1
    assert size[2] // slices >= SMALLEST_SLICE


def test_steps_are_shared_where_few_work_groups_run():
    """Work-items share steps in a product of few tiles, not in a batch of many."""
    limits = replace(LIMITS, compute_units=132)
    for shape, shares in (((1000, 777, 1500, 1), True), ((1024, 64, 1024, 64), False)):
        config = min(
            nvidia_configs(),
            key=lambda c, shape=shape: tiled_estimate(c, *shape, limits).time,
        )
        assert (config.parts > 1) == shares


def test_split_k_is_fused_where_that_is_faster():
    """Split-k is fused for few slices, if the device lets work-groups read what others write."""
    limits = replace(LIMITS, compute_units=132)
    for size, fused_split_k in (((64, 4096, 4096), True), ((64, 64, 100_000), False)):
        fusing = replace(limits, fused_split_k=True)
        best = min(
            (tiled_estimate(config, *size, 1, fusing) for config in nvidia_configs()),
            key=lambda found: found.time,
        )
        assert best.fused_split_k == fused_split_k
    config = nvidia_configs()[2]
    assert not tiled_estimate(config, 64, 4096, 4096, 1, limits).fused_split_k


@pytest.mark.parametrize("config", [c for c in nvidia_configs() if c.parts > c.buffers])
def test_slices_of_k_run_side_by_side(config):
    """No compute unit gets more work-groups at a time than its registers hold."""
    limits = replace(LIMITS, compute_units=132)
    found = tiled_estimate(config, config.tile_m, 64 * config.tile_n, 4096, 1, limits)
    sums = config.work_m * config.work_n
    assert -(-64 * found.slices // 132) * config.items * sums <= REGISTERS
    alone = tiled_estimate(replace(config, parts=1), config.tile_m, config.tile_n, 4096, 1, limits)
    shared = tiled_estimate(config, config.tile_m, config.tile_n, 4096, 1, limits)
    assert shared.time < alone.time
