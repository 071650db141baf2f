"""Tests of whether a device is ready for a plan: its kernels are tried, and built."""

from __future__ import annotations

import numpy as np
import pytest
import workers

import clgemm
from clgemm.core.problem import Problem, Shape
from clgemm.hardware.choice import BrokenDeviceError
from clgemm.hardware.device import where
from clgemm.planning import planner
from clgemm.records import verdicts
from clgemm.records.verdicts import Verdict
from clgemm.runtime import readiness
from clgemm.runtime.readiness import NotReadyError, optional

SMALL = Problem.of(Shape(12, 12, 12), "float32")
A = np.ones((12, 12), np.float32)


@pytest.fixture
def unknown(alone, fresh):
    """Return a device in a context of its own, of which nothing is known."""
    workers.begin_anew()
    yield fresh
    workers.begin_anew()


@pytest.fixture
def judged(monkeypatch):
    """Return a dictionary: the reasons by which configs are rejected, and the list of trials."""
    found = {"reason": "", "trials": []}

    def judge(device, _problem, plan):
        found["trials"].append(plan.choice.config)
        verdict = Verdict(found["reason"], "the log")
        verdicts.store(plan.about(where(device)), verdict, keep=False)
        return verdict

    monkeypatch.setattr(readiness, "judge", judge)
    return found


def test_kernels_are_tried_before_their_first_use(unknown, judged):
    """Each choice is tried once, and later products use it without a trial."""
    for _ in range(3):
        assert readiness.planned(unknown, SMALL) == planner.plan_of(unknown, SMALL)
    assert len(judged["trials"]) == 1


def test_an_optional_product_does_not_wait_for_a_trial(unknown, judged):
    """It raises an error at once, and nothing is tried or written."""
    c = np.full((12, 12), 5, np.float32)
    with optional(), pytest.raises(NotReadyError, match="has not been tried with"):
        clgemm.sgemm(1.0, A, A, 0.0, c, overwrite_c=1)
    assert (c == 5).all()
    assert not judged["trials"]


def test_an_optional_product_does_not_wait_for_a_compiler(unknown, judged):
    """It raises an error until the programs of its plan are known to be built."""
    plan = readiness.planned(unknown, SMALL).plan
    with optional():
        with pytest.raises(NotReadyError, match="are not built yet"):
            clgemm.sgemm(1.0, A, A, order="C")
        verdicts.learn_built(readiness.programs_of(unknown, plan), keep=False)
        np.testing.assert_array_equal(clgemm.sgemm(1.0, A, A, order="C"), A @ A)


def test_products_are_optional_in_the_block_alone(unknown, judged):
    """Nested blocks and errors in them leave this as it was."""
    assert not readiness.is_optional()
    with optional():
        with pytest.raises(ZeroDivisionError), optional():
            raise ZeroDivisionError
        assert readiness.is_optional()
    assert not readiness.is_optional()
    np.testing.assert_array_equal(clgemm.sgemm(1.0, A, A), A @ A)


def test_kernels_that_nothing_replaces_give_the_device_up(unknown, judged, monkeypatch):
    """If the planner makes the rejected plan again, that is an error, not a loop."""
    judged["reason"] = "wrong result"
    plan_of = planner.plan_of
    monkeypatch.setattr(
        planner, "plan_of", lambda *which: plan_of(*which)._replace(scope="not a default")
    )
    with pytest.raises(BrokenDeviceError, match="wrong result"):
        readiness.planned(unknown, SMALL)


def test_a_device_whose_kernels_all_fail_is_given_up(unknown, judged):
    """The error names the kernel family and the reason, and the next one needs no trial."""
    judged["reason"] = "wrong result at 12x12x12"
    for _ in range(2):
        with pytest.raises(BrokenDeviceError, match=r"the kernel family '.*': wrong result at"):
            readiness.planned(unknown, SMALL)
    family = planner.choose(unknown, SMALL)[0]
    assert judged["trials"][-1] == family.plainest(unknown.traits).config
    assert len(judged["trials"]) == len(set(judged["trials"])) > 1


def test_a_config_that_fails_alone_is_replaced(unknown, judged, monkeypatch):
    """Where one default fails, another serves, or the plainest: the device stays in use."""
    first = planner.plan_of(unknown, SMALL).choice.config
    judge = readiness.judge

    def judge_first(device, problem, plan):
        judged["reason"] = "it did not build" * (plan.choice.config == first)
        return judge(device, problem, plan)

    monkeypatch.setattr(readiness, "judge", judge_first)
    for _ in range(2):
        found = readiness.planned(unknown, SMALL)
        assert found.choice.config != first
    assert len(judged["trials"]) == 2
    assert verdicts.known(verdicts.about_device(where(unknown))) is None
    judged["reason"] = ""
    np.testing.assert_array_equal(clgemm.sgemm(1.0, A, A), A @ A)
