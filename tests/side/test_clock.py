"""Tests of the times that both sides take. Pure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.side.clock import KEPT, Clock, Rates, Times, size_class

US = st.floats(0.5, 1e7)


@given(st.lists(US, min_size=1, max_size=20))
def test_a_time_is_one_of_the_last_measurements(measured):
    """What a product takes was measured, lately."""
    times = Times()
    for us in measured:
        times.add(us)
    assert times.us in measured[-5:]
    assert times.runs == len(measured)


@given(US, st.floats(10.0, 1e3))
def test_one_disturbed_run_in_three_does_not_count(us, factor):
    """A run that something else made longer changes nothing, wherever it comes among others."""
    for place in range(4):
        times = Times()
        for run in range(4):
            times.add(us * (factor if run == place else 1.0))
        assert times.us == us


def test_a_bound_only_lowers():
    """What took long while others multiplied says nothing; what was short anyway does."""
    times = Times()
    times.add_bound(10.0)
    times.add_bound(50.0)
    assert (times.us, times.runs) == (10.0, 1)
    times.add_bound(4.0)
    assert (times.us, times.runs) == (4.0, 2)


@given(st.integers(1, 10**13), st.integers(1, 10**5))
def test_products_that_are_much_larger_are_of_other_classes(work, shortest):
    """A class spans less than a factor of five in work, and products alike have the same one."""
    assert size_class("blas", work, shortest) == size_class("blas", work, shortest)
    assert size_class("blas", work, shortest) != size_class("blas", 5 * work, shortest)
    assert size_class("blas", work, shortest) != size_class("loop", work, shortest)


def test_nothing_is_expected_of_other_classes():
    """A rate holds for its class and the next ones in size, and for no other kind or side."""
    rates = Rates()
    of = size_class("blas", 4**10, 600)
    rates.add(of, 4**10, 100.0)
    assert rates.us(of, 4**10) == pytest.approx(100.0)
    assert rates.us(size_class("blas", 4**11, 600), 4**11) == pytest.approx(400.0)
    for other in (
        size_class("blas", 4**13, 600),
        size_class("loop", 4**10, 600),
        size_class("blas", 4**10, 5),
    ):
        assert rates.us(other, 4**10) == 0.0


def test_a_rate_is_that_of_the_last_measurements():
    """A side that has become faster or slower is not held to what it took before."""
    rates, of = Rates(), size_class("blas", 4**10, 600)
    for us in (100.0, 10.0, 1000.0):
        for _ in range(KEPT):
            rates.add(of, 4**10, us)
        assert rates.us(of, 4**10) == pytest.approx(us)


@given(st.dictionaries(st.integers(5, 13), US, max_size=8))
def test_a_clock_survives_its_file(measured):
    """What is stored is what another process expects."""
    clock, other = Clock(), Clock()
    for size, us in measured.items():
        clock.host.add(size_class("blas", 4**size, 64), 4**size, us)
        clock.device.add(size_class("blas", 4**size, 64), 4**size, us / 2)
    other.load(json.loads(json.dumps(clock.as_dict())))
    for size in measured:
        of = size_class("blas", 4**size, 64)
        assert other.host.us(of, 4**size) == pytest.approx(clock.host.us(of, 4**size))
        assert other.device.us(of, 4**size) == pytest.approx(clock.device.us(of, 4**size))


@pytest.mark.parametrize(
    "entry",
    [None, 7, "x", {}, {"host": 7}, {"host": [["blas", 1, 1]]}, {"device": [["blas", 1, 2, 1e99]]}],
)
def test_a_damaged_file_says_nothing(entry):
    """Whatever the file holds, the clock is then empty."""
    clock = Clock()
    clock.load(entry)
    assert clock.host.as_list() == clock.device.as_list() == []


def test_named_devices_have_rates_of_their_own():
    """What one device takes says nothing of another."""
    clock, of = Clock(), size_class("blas", 4**10, 600)
    clock.of(("first",)).add(of, 4**10, 10.0)
    assert clock.of(("first",)).us(of, 4**10) == pytest.approx(10.0)
    assert clock.of(("second",)).us(of, 4**10) == clock.device.us(of, 4**10) == 0.0
    assert clock.of(None) is clock.device
