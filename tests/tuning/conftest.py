"""Fixtures of the tests of the tuner."""

from __future__ import annotations

import pytest

from clgemm.core import cache
from clgemm.records import tuned
from clgemm.records.tuned import findings_from
from clgemm.tuning import session


@pytest.fixture
def empty(device, monkeypatch, tmp_path):
    """A cache folder of its own, nothing shipped, and the device."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuned, "shipped", lambda: findings_from('{"format": 1}'))
    tuned.forget()
    cache.forget_plans()
    yield device
    monkeypatch.undo()
    tuned.forget()
    cache.forget_plans()


class Clock:
    """A clock that only what is asked of the child moves, so many seconds a request."""

    # Of a task whose time is over: its default on each shape, one candidate checked and timed twice
    # on each shape, the finals on each shape, two candidates verified.
    LONGEST_TASK = 3 * 1 + 2 + 2 * 3 * 1 + 3 * 1 + 2 * 3

    def __init__(self, seconds):
        self.now, self.seconds, self.alive = 0.0, seconds, True

    def monotonic(self):
        return self.now

    def ask(self, request, **keywords):
        self.now += self.seconds[request]
        if request == "race":
            return [
                [1.0 + number] * keywords["rounds"] for number in range(len(keywords["choices"]))
            ]
        return ""

    def close_process(self):
        pass


@pytest.fixture
def clock(monkeypatch, empty):
    """A child and a clock of this kind, for tasks and sessions."""
    made = Clock({"race": 1.0, "validate": 2.0, "verify": 3.0})
    monkeypatch.setattr(session, "time", made)
    return made
