"""Tests of the measurement of crossovers."""

from __future__ import annotations

import numpy as np
import pytest

import clgemm
from clgemm import products
from clgemm.accel import crossover, session
from clgemm.accel.crossover import ATTEMPT_SECONDS, TURNS, Measurement, Sides, measure
from clgemm.planning import crossover_search, crossovers, selection
from clgemm.runtime import call_cache


def test_measuring(device, monkeypatch, tmp_path):
    """measure finds a crossover or None for each kind of product, stores them and applies them."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(crossover_search, "HOST_SECONDS", 0.0)
    monkeypatch.setattr(crossover, "TURNS", 1)
    monkeypatch.setattr(crossover, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(crossovers, "LEAST_WORK", 40**3)
    monkeypatch.setattr(crossovers, "BANDS", (8, 16, 40))
    monkeypatch.setattr(crossover, "MARGIN", 1e9)  # the device wins whatever it takes
    crossovers.forget()
    assert crossovers.measured(device) is None
    found = measure(device, session.host_matmul())
    assert set(found) == set(crossovers.kinds())
    assert all(least and least >= 40**3 / 4 for least in found.values())
    assert crossovers.measured(device).least == found
    assert crossovers.smallest(selection.SMALLEST_CROSSOVER) == min(found.values())
    assert selection.host_is_faster(7, 7, 7, 1)
    assert not selection.host_is_faster(64, 64, 64, 1)
    monkeypatch.setattr(crossover, "MARGIN", 0.0)
    monkeypatch.setattr(selection, "SMALLEST_CROSSOVER", 1000)
    x = np.ones((64, 64), np.float32)
    clgemm.dot(x, x)
    assert set(measure(device, session.host_matmul()).values()) == {None}
    assert crossovers.smallest(1000) == 1000
    assert selection.host_is_faster(4096, 4096, 4096, 1)
    with monkeypatch.context() as patch:
        patch.setattr(products, "multiply", lambda *_, **__: pytest.fail("went to the device"))
        patch.setattr(call_cache, "execute", lambda *_: pytest.fail("was repeated from the cache"))
        clgemm.dot(x, x)
    crossovers.forget()


class Clock:
    """A clock that only made-up products and pauses advance, in the place of `time`.

    Parameters
    ----------
    host, device : callable
        The seconds of a product of given sizes.
    compiling : float
        The seconds that the device's first product of each size takes in addition.
    """

    def __init__(self, host, device, compiling=0.0):
        self.host, self.device, self.compiling = host, device, compiling
        self.now, self.products, self.compiled = 0.0, [], set()
        self.host_ended, self.slowing, self.slowed = -1.0, 0.0, 0.0

    def perf_counter(self):
        return self.now

    monotonic = perf_counter

    def sleep(self, seconds):
        self.now += seconds

    def sides(self, work):
        def on_host():
            self.now += self.host(work)
            self.host_ended = self.now

        def on_device():
            self.products.append(work)
            self.now += self.slowed * (self.now < self.host_ended + self.slowing)
            self.now += self.device(work) + self.compiling * (work not in self.compiled)
            self.compiled.add(work)

        return Sides(on_host, on_device)


def hosts(work):
    return work.size / 1e11


@pytest.fixture
def begin(monkeypatch):
    """Return a function that begins a measurement by a clock."""

    def begun(clock, kind="block", spin_s=0.0):
        monkeypatch.setattr(crossover, "time", clock)
        return Measurement(kind, clock.sides, spin_s)

    return begun


@pytest.mark.parametrize("kind", crossovers.kinds())
@pytest.mark.parametrize("speed", [0.2, 0.8, 1.2, 20.0])
def test_each_kind_takes_about_a_second(kind, speed, begin):
    """The first attempt finds the crossover of any kind, unless the device is slow to compile."""
    clock = Clock(hosts, lambda work: 1e-4 + hosts(work) / speed)
    measurement = begin(clock, kind)
    measurement.go_on()
    assert measurement.has_ended
    assert clock.now < crossover.EXPECTED_SECONDS or speed < 0.5
    assert clock.now <= ATTEMPT_SECONDS
    assert len(clock.products) <= 12 * (TURNS + 1)
    assert (measurement.least is None) == (speed <= 1)


def test_an_attempt_is_bounded(begin):
    """Whatever the device's speed, an attempt exceeds its time by one product at most."""
    for seconds in (1e-4, 1e-2, 0.1, 0.5, 3.0, 100.0):
        clock = Clock(hosts, lambda work, least=seconds: least + hosts(work))
        measurement = begin(clock)
        attempts = 0
        while not measurement.has_ended:
            start, attempts = clock.now, attempts + 1
            measurement.go_on()
            assert clock.now - start <= ATTEMPT_SECONDS + seconds + 0.1
            assert attempts <= 10
        assert measurement.least is None


@pytest.mark.parametrize("spin_s", [0.0, 0.13])
def test_a_device_whose_cores_threads_of_the_host_keep_busy(spin_s, begin):
    """It runs after a pause, and wins what it is faster at by itself."""
    clock = Clock(hosts, lambda work: 0.8 * hosts(work))
    clock.slowing, clock.slowed = 0.1, 1.0
    measurement = begin(clock, spin_s=spin_s)
    attempts = 0
    while not measurement.has_ended:
        measurement.go_on()
        attempts += 1
    assert (measurement.least is not None) == (spin_s > 0)
    assert attempts <= 3


def test_a_device_that_is_far_too_slow_is_given_up_soon(begin):
    """A device of a thousandth of the host's speed makes few products, and wins none."""
    clock = Clock(hosts, lambda work: hosts(work) * 1000)
    measurement = begin(clock)
    while not measurement.has_ended:
        measurement.go_on()
    assert measurement.least is None
    assert len(clock.products) <= 4


def test_compiling_interrupts_a_measurement_and_does_not_falsify_it(begin):
    """If the device compiles for long, the measurement goes on where it was."""
    clock = Clock(hosts, lambda work: 2e-3 + hosts(work) / 20, compiling=5.0)
    measurement = begin(clock)
    attempts = 0
    while not measurement.has_ended:
        attempts += 1
        measurement.go_on()
    quick = begin(Clock(hosts, clock.device))
    quick.go_on()
    assert quick.has_ended
    assert measurement.least == quick.least
    assert 1 < attempts <= 2 * len(clock.compiled)


def test_what_is_known_is_used_before_the_end(begin):
    """After an interruption, the least product that the device has won is known."""
    clock = Clock(hosts, lambda work: hosts(work) / 20)
    measurement = begin(clock)
    assert measurement.least is None
    measurement.go_on(0.1)
    assert not measurement.has_ended
    assert measurement.least == 512**3


@pytest.mark.parametrize(("seconds", "least", "most"), [(0, 0, 0), (0.05, 0, 0), (1.5, 1, 7)])
def test_a_time_limit_for_all_kinds(seconds, least, most, device, monkeypatch, tmp_path, begin):
    """If it is over, no product is begun, and the kinds that were measured are stored."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    crossovers.forget()
    clock = Clock(hosts, lambda work: hosts(work) / 2)
    begin(clock)
    monkeypatch.setattr(crossover, "both_sides", lambda *_: clock.sides)
    with pytest.raises(TimeoutError):
        measure(device, np.matmul, seconds)
    assert clock.now <= seconds
    stored = crossovers.measured(device)
    found = list(stored.least) if stored else []
    assert least <= len(found) <= most
    assert found == list(crossovers.kinds())[: len(found)]
    monkeypatch.undo()
    crossovers.forget()
