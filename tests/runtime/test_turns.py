"""Tests of the side of products that follow one another."""

from __future__ import annotations

from random import Random

import pytest

from clgemm.runtime import turns
from clgemm.runtime.turns import SLOWED, Product

SPIN_S = 0.1
COST_US = 1e6 * SPIN_S * (1 - 1 / SLOWED)


class Machine:
    """A clock, and how long products take while the other side's threads spin."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.spins_until = 0.0

    def make(self, product: Product, *, by_host: bool) -> None:
        """Let the time of a product pass."""
        if by_host:
            self.now += product.host_us / 1e6
            if product.is_threaded:
                self.spins_until = self.now + SPIN_S
            return
        spins_s = max(self.spins_until - self.now, 0.0)
        device_s = product.device_us / 1e6
        # While the threads spin, a product goes on at a part of its speed.
        self.now += min(device_s * SLOWED, device_s + spins_s * (1 - 1 / SLOWED))

    def run(self, program, chosen=None) -> float:
        """Return the seconds of a program: by the choice, or all of it on one side."""
        begin = self.now
        for product in program:
            by_host = turns.host_makes(product) if chosen is None else chosen
            self.make(product, by_host=by_host)
        return self.now - begin


@pytest.fixture
def machine(monkeypatch):
    """A machine whose time only products take."""
    found = Machine()
    monkeypatch.setattr(turns.time, "perf_counter", lambda: found.now)
    monkeypatch.setattr(turns, "spin_seconds", lambda: SPIN_S)
    turns.forget()
    yield found
    turns.forget()


def product(host_ms, device_ms, is_threaded=True):
    """Return a product of these times."""
    return Product(host_ms <= device_ms, 1e3 * host_ms, 1e3 * device_ms, is_threaded)


def test_after_a_pause_each_product_goes_where_it_is_faster(machine):
    """All threads sleep, so nothing else counts."""
    for host_ms, device_ms in ((5, 4), (4, 5), (1, 30), (30, 1)):
        machine.now += 1
        assert turns.host_makes(product(host_ms, device_ms)) == (host_ms < device_ms)


@pytest.mark.parametrize(("kept", "other"), [((5, 4), (4, 5)), ((4, 5), (5, 4))])
def test_a_program_that_goes_on_after_a_pause_begins_on_its_side(kept, other, machine):
    """If that would have saved more than a change costs since the pause before."""
    by_host = kept[0] < kept[1]
    for count in (int(COST_US / 1000) - 5, 1000):
        machine.run([product(*kept)] * count)
        machine.now += 1
        goes_on = turns.host_makes(product(*other))
        assert goes_on == (by_host if count == 1000 else not by_host)
        turns.forget()


def test_a_pause_is_not_an_end_for_small_products(machine):
    """Those of the caller's thread are NumPy's, and the next one begins where the program was."""
    machine.run([product(5, 4)] * 1000)
    machine.now += 1
    for _ in range(3):
        assert turns.host_makes(product(1, 20, is_threaded=False))
    assert not turns.host_makes(product(4, 5))
    machine.now += 1
    assert turns.host_makes(product(4, 5))  # alone between two pauses


def test_a_product_whose_choice_is_not_by_times_alone(machine):
    """Such as one that was measured, or that a device should win by a margin."""
    tied = Product(is_hosts=True, host_us=1000, device_us=950, is_threaded=True)
    assert turns.host_makes(tied)
    machine.now += 1
    assert turns.host_makes(tied)


def test_a_device_waits_while_threads_of_the_host_spin(machine):
    """It is asked once it saves what the change costs, or is faster in spite of the threads."""
    machine.run([product(4, 5)])
    saving = product(5, 4)
    for _ in range(int(COST_US / 1000)):
        assert turns.host_makes(saving)
    assert not turns.host_makes(product(4 * SLOWED + 0.1, 4))
    turns.forget()
    machine.run([product(4, 5)])
    made = 0
    while turns.host_makes(saving):
        made += 1
    assert made == int(COST_US / 1000)
    assert not turns.host_makes_small()


def test_a_device_that_waits_long_is_left_alone(machine):
    """While threads of the host spin, it gets what it makes faster in spite of the wait."""
    machine.run([product(1, 5)])
    for waits_ms in (0, 2):
        for more in (-0.1, 0.1):
            saving = product(4 * SLOWED + waits_ms + more, 4)._replace(waits_us=1e3 * waits_ms)
            assert turns.host_makes(saving) == (more < 0)
    turns.forget()
    machine.run([product(1, 5)])
    saving = product(5, 4)._replace(waits_us=9e3)
    made = 0
    while turns.host_makes(saving):
        made += 1
    assert made == int(1e6 * SPIN_S * (1 - 4 / (4 * SLOWED + 9)) / 1000)


def test_a_product_by_the_callers_thread_changes_nothing(machine):
    """No thread spins after it, so that the program goes on leaning on the device."""
    machine.run([product(5, 4)])
    for _ in range(10**4):
        assert turns.host_makes(product(1, 20, is_threaded=False))
    assert not turns.host_makes(product(1, 2))


def test_a_program_that_leans_on_the_device_returns(machine):
    """Once the host would have saved more than the change costs."""
    machine.run([product(5, 4)])
    losing = product(1, 2)
    made = 0
    while not turns.host_makes(losing):
        made += 1
    assert made == int(COST_US / 1000)
    assert turns.host_makes_small()


def test_small_products_count(machine):
    """A device waits after them, too, unless it is faster in spite of the threads that spin."""
    assert turns.host_makes_small()
    assert not turns.host_makes(product(5, 4))  # the first that is compared
    turns.forget()
    machine.run([product(4, 5)])
    machine.now += 2 * SPIN_S
    assert turns.host_makes_small()
    machine.now += SPIN_S / 2
    assert turns.host_makes(product(5, 4))
    machine.now += 2 * SPIN_S
    assert not turns.host_makes(product(5, 4))
    assert not turns.host_makes_small()


def test_products_are_leaned_on_the_side_that_takes_a_program_less_time(machine):
    """Whatever the program is, little more time is taken than on the better side."""
    random = Random(7).random
    for _ in range(300):
        scale, bias = 0.1 * 100 ** random(), 0.6 + random()
        of_host = [scale * 30 ** random() for _ in range(8)]
        kinds = [product(ms, ms * bias * 2 ** (2 * random() - 1)) for ms in of_host]
        steps = [kinds[int(8 * random())] for _ in range(3000)]
        machine.now += 1
        taken_s = machine.run(steps)
        machine.now += 1
        better_s = min(machine.run(steps, True), machine.run(steps, False))
        assert taken_s < 1.15 * better_s + 2e-6 * COST_US


def test_threads_spin_only_if_there_are_several(monkeypatch):
    """And if it is known of the BLAS."""
    monkeypatch.setattr(turns, "spin_seconds", lambda: SPIN_S)
    for threads in (1, 2):
        monkeypatch.setattr(turns, "blas_threads", lambda threads=threads: threads)
        assert turns.may_spin() == (threads == 2)
    for short in (0.0, 5e-7):
        monkeypatch.setattr(turns, "spin_seconds", lambda short=short: short)
        assert not turns.may_spin()
