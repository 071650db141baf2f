"""Tests of the pinning of PoCL's threads."""

from __future__ import annotations

import os

import pytest

from clgemm.hardware.pocl_threads import pinned_threads


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system pins no threads")
@pytest.mark.parametrize(
    ("setting", "usable", "cores", "seen"),
    [(None, 2, 2, "1"), ("0", 2, 2, "0"), (None, 1, 2, None), (None, 64, 64, None)],
)
def test_pocl_is_asked_to_pin_its_threads(setting, usable, cores, seen, monkeypatch):
    """PoCL pins its threads on few cores, unless the user decides or not all cores are usable."""
    if setting is None:
        monkeypatch.delenv("POCL_AFFINITY", raising=False)
    else:
        monkeypatch.setenv("POCL_AFFINITY", setting)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)))
    with pinned_threads():
        assert os.environ.get("POCL_AFFINITY") == seen
    assert os.environ.get("POCL_AFFINITY") == setting
