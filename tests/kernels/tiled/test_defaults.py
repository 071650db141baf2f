"""The default configs of the tiled family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, traits_with

from clgemm.kernels.tiled.defaults import (
    lane_configs,
    nvidia_configs,
    that_fit,
)

SMALLEST = replace(LIMITS, local_memory_bytes=32 * 1024, work_group_size=256)


def test_two_work_groups_fit_on_the_smallest_devices():
    """All tiles but the largest leave half of 32 KiB of local memory to another work-group."""
    assert all(not list(config.problems_on(SMALLEST)) for config in lane_configs())
    assert all(config.local_memory_bytes <= 2**14 for config in lane_configs()[1:])


@pytest.mark.parametrize("size", [16, 64, 128, 256])
def test_devices_with_small_work_groups_have_tiles_too(size):
    """At least one config fits where a work-group has 16 work-items."""
    traits = traits_with(replace(LIMITS, work_group_size=size))
    assert that_fit(traits)
    assert all(config.items <= size for config in that_fit(traits))


def test_a_cpu_does_not_emulate_the_largest_tiles():
    """Partly used large tiles take very long there."""
    assert lane_configs()[0] in that_fit(traits_with(LIMITS))
    assert lane_configs()[0] not in that_fit(traits_with(LIMITS, "CPU"))


def test_work_items_of_nvidias_gpus_keep_their_registers():
    """At most 128 sums leave registers for the operands, of 255 in all."""
    assert all(config.work_m * config.work_n <= 128 for config in nvidia_configs())
    assert len(set(nvidia_configs())) == len(nvidia_configs())


def test_older_gpus_of_nvidia_get_tiles_without_asynchronous_copies():
    """Their registers are not limited either; nothing else differs."""
    old = that_fit(traits_with(LIMITS, is_nvidia=True))
    new = that_fit(traits_with(replace(LIMITS, asynchronous_copies=True), is_nvidia=True))
    assert old
    assert not any(config.asynchronous or config.registers for config in old)
    assert {replace(config, registers=0) for config in new if not config.asynchronous} == set(old)
    assert any(config.asynchronous for config in new)
