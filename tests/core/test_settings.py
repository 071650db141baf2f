"""Tests of what the user has set: environment variables at each look-up, and the precision."""

from __future__ import annotations

import os
from itertools import groupby

import numpy as np
import pytest

import clgemm
from clgemm.core.settings import Variable
from clgemm.planning import planner
from clgemm.transfer import call_cache

NAME = "CLGEMM_TEST_OF_A_VARIABLE"


def test_a_variable_is_looked_up_each_time(monkeypatch):
    """It may be set, changed and deleted while the program runs."""
    variable = Variable(NAME)
    assert variable.get() is None
    for value in ("1", "", "größer"):
        monkeypatch.setenv(NAME, value)
        assert variable.get() == value
    monkeypatch.delenv(NAME)
    assert variable.get() is None


@pytest.mark.parametrize("value", [None, "1"])
def test_a_dict_in_the_place_of_the_environment_serves(monkeypatch, value):
    """A test may replace ``os.environ``."""
    variable = Variable(NAME)
    monkeypatch.setattr(os, "environ", {} if value is None else {NAME: value})
    assert variable.get() == value


@pytest.mark.parametrize("setting", ["strict", "fast"])
def test_precision_by_block_environment_and_argument(monkeypatch, setting):
    """The argument comes before the block, the block before the environment."""
    asked = []
    monkeypatch.setattr(planner, "plan_of", planner.plan_of.__wrapped__)  # not cached
    monkeypatch.setattr(call_cache, "_calls", {})
    chosen = planner.choose
    monkeypatch.setattr(planner, "choose", lambda d, p: asked.append(p.precision) or chosen(d, p))
    a, b = np.ones((80, 80), np.float32), np.ones((90, 90), np.float32)
    monkeypatch.setenv("CLGEMM_PRECISION", setting)
    clgemm.matmul(a, a)
    with clgemm.precision("float32"):
        clgemm.matmul(a, a)
        clgemm.sgemm(1.0, a, a, precision=setting)
    clgemm.precision("float32")(clgemm.dot)(b, b)
    clgemm.dot(b, b)
    # Where operands go to the device in tiles, a product is planned for more than once.
    assert [p for p, _ in groupby(asked)] == [setting, "float32", setting, "float32", setting]
    with pytest.raises(ValueError, match="'half'"):
        clgemm.precision("half")
