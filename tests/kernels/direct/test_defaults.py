"""The default config of the direct family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS

from clgemm.kernels.direct.defaults import direct_config


@pytest.mark.parametrize(("device", "config"), [(2, 2), (4, 4), (8, 8), (16, 8)])
def test_work_items_with_vectors_are_alone(device, config):
    """A CPU's work-group is one work-item, with vectors of at most eight floats."""
    found = direct_config(replace(LIMITS, vector_width=device, work_group_size=1))
    assert (found.items, found.width) == (1, config)
    assert not list(found.problems_on(replace(LIMITS, work_group_size=1)))


def test_work_items_on_lanes_come_in_groups():
    """A GPU's work-group is square and as large as the smallest devices take."""
    found = direct_config(LIMITS)
    assert found.items_m == found.items_n
    assert not list(found.problems_on(replace(LIMITS, work_group_size=64)))
