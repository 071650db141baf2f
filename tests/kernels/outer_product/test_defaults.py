"""The default config of the outer_product family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS

from clgemm.kernels.outer_product.defaults import outer_config


@pytest.mark.parametrize("size", [1, 16, 64, 128, 1024])
def test_work_groups_fit_the_device(size):
    """They have at most 256 work-items, those along a row first."""
    limits = replace(LIMITS, work_group_size=size)
    config = outer_config(limits)
    assert not list(config.problems_on(limits))
    assert config.items == min(size, 256)
    assert config.items_n == min(size, 32)
