"""Tests of which records serve: those of other devices are tried first."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import workers
from made_records import record

import clgemm
from clgemm.core.problem import Problem, Shape
from clgemm.hardware.device import identify
from clgemm.kernels.direct.family import direct_config
from clgemm.planning import planner
from clgemm.records.tuned import as_json
from clgemm.runtime import readiness

pytestmark = pytest.mark.one_device

A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def ship(alone, device, monkeypatch, tmp_path):
    """Return a function that ships one record of a relative of the device, for workers too.

    It plants a fault into the workers, and returns the list of configs that are tried.
    """
    trials, judge = [], readiness.judge

    def ship_only(work_m, fault="none"):
        config = replace(direct_config(device.limits), work_m=work_m)
        relative = record(identify(device)._replace(name="a relative"), config)
        file = tmp_path / "shipped.json"
        file.write_text(as_json([relative]))
        alone(relative)
        workers.plant(monkeypatch, fault, PLANTED_RECORDS=str(file))
        monkeypatch.setattr(readiness, "judge", judging)
        return trials

    def judging(on, problem, found):
        trials.append(found.choice.config)
        return judge(on, problem, found)

    yield ship_only
    monkeypatch.undo()
    workers.begin_anew()


def shown():
    """Return the origin of what makes the smallest products, as ``info`` shows it."""
    return clgemm.show_config("dicts")["Tuning"]["tiny"]["direct"]


def test_a_relatives_config_is_tried_once_then_used(ship):
    """A child process tries it; the verdict is kept, for other processes too."""
    trials = ship(5)
    assert "not validated yet" in shown()
    for _ in range(2):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, A, A.T), A @ A.T)
        workers.begin_anew()
    assert [config.work_m for config in trials] == [5]
    assert "not validated yet" not in shown()


def test_a_relatives_config_that_is_the_default_needs_no_trial_of_its_own(ship, device):
    """It would serve without a record, too: one trial covers both."""
    problem = Problem.of(Shape(3, 3, 4), "float32")
    default = planner.plan_of(device, problem)
    ship(direct_config(device.limits).work_m)
    found = planner.plan_of(device, problem)
    assert found.choice.config == direct_config(device.limits)
    assert found.about("here") == default.about("here")
    assert "not validated yet" not in shown()


def test_a_relatives_config_that_is_wrong_here_is_not_used(ship, device, caplog):
    """The next nearest serves, here the default; one warning says why."""
    trials = ship(3, "three rows")
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, A, A.T), A @ A.T)
    used = [config.work_m for config in trials]
    assert used == [3]  # the worker has then tried the default, too
    found = readiness.planned(device, Problem.of(Shape(3, 3, 4), "strict"))
    assert found.choice == found.family.defaults(found.problem.shape, device.traits)[0]
    assert len(caplog.messages) == 1
    assert "work_m=3" in caplog.text
    assert "is not used" in caplog.text
    assert "wrong result at 3x3x4" in caplog.text
    assert "wrong results here" in shown()
