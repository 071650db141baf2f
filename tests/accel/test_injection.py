"""Tests with failures at some places of an accelerated product; injection_accel.py tries all."""

from __future__ import annotations

import injection_accel
import pytest

from clgemm.accel import enabled
from clgemm.hardware.choice import devices

PLACES = 25  # tried for each call and error, on all devices together


def steps(device, total):
    """Return the first place to try on a device, and how far from it the next one is."""
    step, count = max(1, total // PLACES), len(devices())
    return {"first": 1 + step * devices().index(device), "every": step * count}


def check(found):
    """Require good outcomes, at enough places."""
    assert len(found) >= PLACES // len(devices()) / 2
    assert [each for each in found if each.outcome not in injection_accel.GOOD] == []


@pytest.mark.parametrize("cold", [False, True], ids=["again", "first"])
@pytest.mark.parametrize("error", injection_accel.ERRORS)
@pytest.mark.parametrize("name", ["@", "np.matmul in place", "np.dot"])
def test_a_failure_anywhere_is_harmless(name, error, cold, device, caplog):
    """After a failure at any place the result is right or the call raises; the next call works."""
    caplog.set_level("CRITICAL", "clgemm")
    with enabled(threshold=0):
        total = injection_accel.count_places(name, cold=cold)
        check(list(injection_accel.outcomes(name, error, cold=cold, **steps(device, total))))


@pytest.mark.parametrize("device_us", [10.0, 1e6], ids=["device", "host"])
@pytest.mark.parametrize("error", injection_accel.ERRORS)
@pytest.mark.parametrize("name", injection_accel.COMPARED)
def test_a_failure_anywhere_is_harmless_where_times_decide(
    name, error, device_us, device, ready, caplog
):
    """After a failure of a product whose side measured times decide, all is as after others."""
    caplog.set_level("CRITICAL", "clgemm")
    with enabled(threshold=0):
        injection_accel.COMPARED[name]()  # builds
    with enabled():
        total = injection_accel.count_places(name, device_us=device_us)
        places = steps(device, total)
        check(list(injection_accel.outcomes(name, error, device_us=device_us, **places)))
