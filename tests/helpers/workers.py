"""Workers of trials with planted faults, and processes that know nothing of earlier trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from clgemm.core import cache
from clgemm.hardware import trial
from clgemm.records import verdicts


def begin_anew() -> None:
    """Forget what this process knows of trials, as a new one would not know it."""
    trial.stop()
    verdicts.forget()
    cache.forget_plans()


def plant(monkeypatch: pytest.MonkeyPatch, fault: str, **variables: str) -> None:
    """Plant a fault of `planted_worker` into the workers of this process, from now on.

    Parameters
    ----------
    **variables
        Of the workers' environment.
    """
    for name, value in {"PLANTED_FAULT": fault, **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(trial, "MODULE", "planted_worker")
    own = dict.fromkeys(
        ("planted_worker", "planted_trial", "simulated"), str(Path(__file__).parent)
    )
    packages = trial._packages() | own
    monkeypatch.setattr(trial, "_packages", lambda: packages)
    begin_anew()
