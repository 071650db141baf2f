"""Tests of the number of PoCL's threads, and of their pinning."""

from __future__ import annotations

import os

import pytest

from clgemm.hardware import pocl_threads
from clgemm.hardware.pocl_threads import pinned_threads

NAMES = "POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system pins no threads")
@pytest.mark.parametrize(
    ("settings", "usable", "cores", "quota", "seen"),
    [
        ((None, None), 2, 2, None, ("1", None)),
        (("0", None), 2, 2, None, ("0", None)),
        ((None, None), 1, 2, None, (None, "1")),
        ((None, None), 64, 64, None, (None, None)),
        ((None, None), 64, 64, "max 100000", (None, None)),
        ((None, None), 64, 64, "250000 100000", (None, "3")),
        ((None, None), 2, 64, "900000 100000", (None, "2")),
        ((None, None), 2, 2, "nonsense", ("1", None)),
        (("1", "7"), 2, 64, None, ("1", "7")),
    ],
)
def test_threads_are_as_many_as_processors_may_be_used(
    settings, usable, cores, quota, seen, monkeypatch, tmp_path
):
    """By affinity and by a container's quota; pinned on few cores; the user's settings stay."""
    for name, value in zip(NAMES, settings, strict=True):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)))
    file = tmp_path / "cpu.max"
    monkeypatch.setattr(pocl_threads, "QUOTA", str(file))
    if quota is not None:
        file.write_text(quota + "\n")
    with pinned_threads():
        assert tuple(map(os.environ.get, NAMES)) == seen
    assert tuple(map(os.environ.get, NAMES)) == settings
