"""Tests of the environment of child processes."""

from __future__ import annotations

import os
import sys

from clgemm.core.child import child_environment, trial_child


def test_children_find_the_same_modules_and_are_not_accelerated(monkeypatch):
    """A child has this process's module paths and variables, but not CLGEMM_ACCEL*."""
    monkeypatch.setenv("CLGEMM_ACCEL_CHILDREN", "{}")
    monkeypatch.setenv("CLGEMM_ACCEL", "1")
    monkeypatch.setenv("CLGEMM_THRESHOLD", "123")
    monkeypatch.syspath_prepend("/planted")
    with trial_child(["name", "platform", "0"]) as child:  # starts no process before a request
        for found in (child_environment(), child.variables):
            assert not [name for name in found if name.startswith("CLGEMM_ACCEL")]
            assert found["CLGEMM_THRESHOLD"] == "123"
            assert found["PYTHONPATH"].split(os.pathsep) == [path for path in sys.path if path]
