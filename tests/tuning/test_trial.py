"""Tests of the child process that builds, checks and times candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from children import child_of
from planted_trial import ABORTS, HANGS, NO_BUILD, WRONG, WRONG_UNROLL

from clgemm.core.problem import Problem, Shape
from clgemm.hardware.device import identify, identity
from clgemm.kernels import OTHER_DTYPES
from clgemm.kernels.common.family import Choice
from clgemm.kernels.direct.family import Direct, direct_config
from clgemm.planning import planner
from clgemm.tuning.session import Session, Task
from clgemm.tuning.trials import Trials

pytestmark = pytest.mark.one_device

TINY = Task("direct", "tiny", (Shape(12, 12, 12),))


def test_what_is_wrong_hangs_or_aborts_is_rejected_and_tuning_goes_on(empty, monkeypatch):
    """Each with its reason, in the log too; the record that is stored is a right one."""
    device, right = empty, direct_config(empty.limits)
    planted = [
        replace(right, items_m=1, items_n=2, work_m=w, width=2) for w in (WRONG, HANGS, ABORTS)
    ]
    by_hand = tuple(Choice(config) for config in (right, *planted))
    monkeypatch.setattr(Direct, "defaults", lambda *_: by_hand)
    with child_of("planted_trial")(identity(device)) as child:
        made = Session(device, child, 0.0, validation_seconds=4.0)
        (record,) = made.run([TINY])
    reasons = {t.choice.config.work_m: t.reason for t in Trials(identify(device)).all}
    assert reasons[WRONG].startswith("wrong result at ")
    assert "elements were not written" in reasons[WRONG]
    assert "was ended after 4 s" in reasons[HANGS]
    assert "SIGABRT" in reasons[ABORTS]
    assert reasons[right.work_m] == ""
    assert record.choice.config == right
    problem = Problem.of(TINY.shapes[0], "float32")
    assert planner.choose(device, problem)[1].config == right


def test_what_does_not_build_is_rejected(empty):
    """The compiler's own words are the reason, and the child is asked again."""
    config = direct_config(empty.limits)
    broken = Choice(replace(config, work_m=NO_BUILD), None)
    with child_of("planted_trial")(identity(empty)) as child:
        made = Session(empty, child, 0.0)
        assert "no such type" in made.rejection(broken)
        assert not made.rejection(Choice(replace(broken.config, work_m=1), None))


def test_a_wrong_tile_of_another_dtype_is_rejected(empty, monkeypatch):
    """It is compared with NumPy's result, bit for bit."""
    family = OTHER_DTYPES["int32"]
    right = family.plainest(empty.traits)
    right = Choice(replace(right.config, unroll=2))
    wrong = Choice(replace(right.config, unroll=WRONG_UNROLL))
    monkeypatch.setattr(type(family), "defaults", lambda *_: (right, wrong))
    with child_of("planted_trial")(identity(empty)) as child:
        (record,) = Session(empty, child, 0.0).run([replace(TINY, family=family.name)])
    assert record.choice == right
    reasons = {t.choice: t.reason for t in Trials(identify(empty)).all}
    assert reasons[right] == ""
    assert reasons[wrong].startswith("wrong result of i4 and i4 at ")
