"""Tests of child processes: their environment, and requests that take too long."""

from __future__ import annotations

import os
import sys
import time

import pytest

from clgemm.core.child import Child, ChildTimeoutError, child_environment, trial_child


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


def test_a_request_can_be_timed_out():
    """The child is ended, and another one serves the next."""
    with Child("a sleeper", "test_child_sleeper", [], {}) as child:
        child.command[1:] = ["-c", "import time; time.sleep(60)"]
        begin = time.monotonic()
        with pytest.raises(ChildTimeoutError, match=r"a sleeper's process was ended after 0.2 s"):
            child.ask("anything", timeout_s=0.2)
        assert time.monotonic() - begin < 30
        assert not child.alive
