"""Plans of the skinny_cpu family."""

from __future__ import annotations

import pytest
from planned import TWO_CORES, dense, make_plan

from clgemm.kernels.pack.plan import copy_config
from clgemm.kernels.skinny_cpu.defaults import skinny_config


@pytest.mark.parametrize(
    ("m", "k", "groups", "launches"), [(1024, 2048, 8, 1), (2048, 512, 16, 1), (128, 4096, 4, 2)]
)
def test_contiguous_columns_are_read_whole(m, k, groups, launches):
    """A work-group takes a few columns and all of k, unless that makes too few work-groups."""
    a, b, c = dense(m, k), dense(k, 1), dense(m, 1)
    copy = (copy_config(TWO_CORES),)
    made = make_plan(a, b, c, skinny_config(1, 16, True), copy, TWO_CORES)
    multiplying = [step for step in made.steps if step.config.family == "skinny_cpu"]
    assert [step.groups for step in multiplying] == [groups]
    assert len(made.steps) == launches
