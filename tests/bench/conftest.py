"""Fixtures of the tests of the benchmark."""

from __future__ import annotations

import pytest

from clgemm.bench import rounds
from clgemm.bench.rounds import Worker, environment
from clgemm.hardware.choice import get_device
from clgemm.hardware.device import identity


@pytest.fixture
def worker():
    """Start clgemm's worker on the default device."""
    with Worker("clgemm", identity(get_device()), environment(2)) as started:
        yield started


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Remove the pauses between turns."""
    monkeypatch.setattr(rounds, "PAUSE_S", 0)
