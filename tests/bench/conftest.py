"""Fixtures of the tests of the benchmark."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from clgemm.bench import rounds
from clgemm.bench.rounds import environment, worker_of
from clgemm.hardware.choice import get_device
from clgemm.hardware.device import identity


@pytest.fixture
def worker():
    """Start clgemm's worker on the default device."""
    with worker_of("clgemm", identity(get_device()), environment(2)) as started:
        yield started


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Remove the pauses between turns."""
    clock = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    monkeypatch.setattr(rounds, "time", clock)
