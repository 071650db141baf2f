"""Environment variables are read as they are at each look-up."""

from __future__ import annotations

import os

import pytest

from clgemm.core.settings import Variable

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
