"""The default configs of packing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS

from clgemm.kernels.pack.defaults import copy_config, pack_config, vector_pack_config


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


def test_a_copy_has_panels_of_one_row():
    """A matrix is copied row by row: nothing is padded."""
    assert copy_config(LIMITS).panel == 1
    assert vector_pack_config(48, True).panel == pack_config(LIMITS, 48).panel == 48
