"""The default config of the skinny_gpu family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS

from clgemm.kernels.skinny_gpu.defaults import skinny_lanes_config


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize(("size", "memory"), [(64, 2**14), (1024, 2**14), (1024, 2**16)])
def test_work_groups_fit_every_device(rows, size, memory):
    """They are smaller where there is little local memory, and serve all rows at once."""
    limits = replace(LIMITS, work_group_size=size, local_memory_bytes=memory)
    config = skinny_lanes_config(rows, limits)
    assert not list(config.problems_on(limits))
    assert config.rows >= rows
    assert config.group * 16 <= memory // 2


def test_two_rows_have_larger_work_groups_than_three():
    """From three rows on a work-item needs more registers."""
    assert skinny_lanes_config(2, LIMITS).group > skinny_lanes_config(3, LIMITS).group
