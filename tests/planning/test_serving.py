"""Tests of which records serve: those of other devices are validated first."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import numpy as np
import pytest
from children import child_of
from made_records import record

import clgemm
from clgemm.core import caches
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.hardware.identity import identify
from clgemm.kernels.direct.defaults import direct_config
from clgemm.planning import planner, validation


def relative(device, work_m):
    """A shipped record of a relative of a device."""
    config = replace(direct_config(device.limits), work_m=work_m)
    return record(identify(device)._replace(name="a relative"), config)


def chosen_for(device):
    """What makes a small product."""
    return planner.choose(device, Problem.of(Shape(3, 3, 4), "float32"))[1]


def test_a_relatives_config_is_tried_once_then_used(alone, device, monkeypatch):
    """In a child process; the verdict is kept, by other processes too."""
    alone(relative(device, 5))
    children = []
    started = validation.trial_child
    monkeypatch.setattr(validation, "trial_child", lambda *a: children.append(a) or started(*a))
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    for _ in range(2):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, a.T), a @ a.T)
        assert chosen_for(device).config.work_m == 5
        caches.forget_plans()  # as another process would begin
    assert len(children) == 1
    assert "not validated yet" not in clgemm.show_config("dicts")["Tuning"]["tiny"]["direct"]


def test_a_relatives_config_that_is_the_default_needs_no_trial(alone, device, monkeypatch):
    """It would serve without a record, too."""
    alone(relative(device, direct_config(device.limits).work_m))
    monkeypatch.setattr(validation, "trial_child", lambda *_: pytest.fail("a child was started"))
    assert chosen_for(device).config == direct_config(device.limits)
    assert "not validated yet" not in clgemm.show_config("dicts")["Tuning"]["tiny"]["direct"]


def test_a_relatives_config_that_is_wrong_here_is_not_used(alone, device, monkeypatch, caplog):
    """The next nearest serves, here the default; one warning says why."""
    alone(relative(device, 3))
    monkeypatch.setattr(validation, "trial_child", child_of("planted_trial"))
    with caplog.at_level(logging.WARNING):
        chosen = chosen_for(device).config
    assert chosen == direct_config(device.limits)
    assert "wrong result at" in caplog.text
    assert "wrong results here" in clgemm.show_config("dicts")["Tuning"]["tiny"]["direct"]


def test_nothing_is_tried_where_no_verdict_can_be_kept(alone, device, monkeypatch):
    """Every process would do it again: the default serves."""
    alone(relative(device, 5))
    monkeypatch.setenv("CLGEMM_CACHE_DIR", os.devnull)
    monkeypatch.setattr(validation, "trial_child", lambda *_: pytest.fail("a child was started"))
    assert chosen_for(device).config == direct_config(device.limits)
