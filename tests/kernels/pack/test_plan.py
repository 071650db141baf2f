"""Packing and copying: configs, defaults and plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, kernels

from clgemm.core.config import variant_of
from clgemm.core.problem import Layout
from clgemm.kernels.pack.plan import (
    PackConfig,
    VectorPackConfig,
    VectorPackVariant,
    copy_config,
    copy_plan,
    pack_config,
)


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
    config = VectorPackConfig.of(panel, True, rows)
    assert not list(config.problems())
    assert config.panels * panel <= max(rows, panel)


def test_operands_that_the_caches_cannot_hold_are_stored_past_them():
    """The macro WRITES is 0 for plain stores, 1 after a prefetch, 2 past the caches."""
    for prefetch in (False, True):
        config = VectorPackConfig.of(48, prefetch)
        for streams in (False, True):
            launch = variant_of(VectorPackVariant, config, streams=streams)
            assert dict(launch.macros())["WRITES"] == (2 if streams else int(prefetch))
            assert {"PANELS", "STREAMS"}.isdisjoint(dict(launch.macros()))


@pytest.mark.parametrize("size", [1, 64, 256, 1024])
def test_work_groups_fit_small_devices(size):
    """A work-group has at most 256 work-items, and no more than the device takes."""
    limits = replace(LIMITS, work_group_size=size)
    for config in (pack_config(limits, 128), copy_config(limits)):
        assert config.items == min(size, 256)
        assert not list(config.problems_on(limits))


def test_work_items_with_vectors_are_alone():
    """A CPU's work-group is one work-item."""
    limits = replace(LIMITS, vector_width=8)
    assert pack_config(limits, 128).items == copy_config(limits).items == 1


def test_a_copy_is_one_launch():
    """A batch of any strides is copied by one launch."""
    made = copy_plan(Layout((3, 4, 5), (100, 1, 4)), LIMITS)
    assert kernels(made) == ["pack"]
