"""The launches of kernels that read operands of any strides in place."""

from __future__ import annotations

from planned import LIMITS, dense

from clgemm.core.steps import Element, ceil_div
from clgemm.kernels.common.in_place import steps_in_place
from clgemm.kernels.direct.defaults import direct_config

CONFIG = direct_config(LIMITS)


def steps_of(m, n, k, *batch, tile=(16, 16)):
    """The launches of dense operands."""
    operands = dense(m, k, *batch), dense(k, n, *batch), dense(m, n, *batch)
    return list(steps_in_place(*operands, CONFIG, tile))


def test_work_groups_cover_c():
    """One for each tile of each matrix, those at the edges included."""
    (step,) = steps_of(100, 33, 5, 7)
    assert step.groups == 7 * ceil_div(100, 16) * ceil_div(33, 16)
    assert [step.arguments[x] for x in "mnk"] == [100, 33, 5]


def test_without_k_no_operand_is_named():
    """A and B may then have no memory at all: C's is given instead."""
    (step,) = steps_of(10, 10, 0)
    named = {x.slot if isinstance(x, Element) else x for x in step.arguments.values()}
    assert not named & {"a", "b"}


def test_a_batch_of_many_matrices_takes_several_launches():
    """The number of a work-group stays below 2**31."""
    steps = steps_of(4, 4, 2, 2**20, tile=(1, 1))
    assert sum(step.groups for step in steps) == 16 * 2**20
    assert max(step.groups * CONFIG.items for step in steps) < 2**31
