"""Tests of the choice of the side, with times that the tests set."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from accelerated import forget_products
from hypothesis import given, settings
from hypothesis import strategies as st

import clgemm
from clgemm import accel
from clgemm.core.settings import named
from clgemm.numpy_rules import of_matmul
from clgemm.side import decision, preparation
from clgemm.side.counts import (
    BEING_PREPARED,
    DEVICE,
    DTYPE,
    HOST_FASTER,
    NOT_OPEN,
    SMALL,
    UNKNOWN,
    Counts,
    Row,
)
from clgemm.side.decision import Entry
from clgemm.side.preparation import State

OPERANDS = ((500, 500), (500, 1)), ((500, 500), (500, 1)), (500, 500)
SIZES = (500, 500, 500, 1)


class Program:
    """A program that makes one product again and again, on sides that take what the test says."""

    def __init__(self, host_us, device_us, estimate_us=0.0):
        self.host_us, self.device_us = host_us, device_us
        self.entry = Entry("matmul", SIZES, "blas", OPERANDS)
        self.entry.estimate_us = estimate_us
        self.now_us, self.sides = 0.0, []

    def elapsed_s(self):
        """Return the time so far, with as much of other work as of products."""
        return 2e-6 * self.now_us

    def run(self, products):
        """Compute so many products, as `clgemm.products` does."""
        for _ in range(products):
            entry = self.entry
            if entry.remaining > 0 and not entry.on_device:
                entry.remaining -= 1
                entry.untimed += 1
                self.now_us += self.host_us
                self.sides.append("host")
                continue
            on_device = entry.goes_to_device()
            us = self.device_us if on_device else self.host_us
            self.now_us += us
            self.sides.append("device" if on_device else "host")
            (entry.record_device if on_device else entry.record_host)(us)


@pytest.fixture
def open_state(monkeypatch):
    """A device that is open, and a state that asks nobody for anything."""
    monkeypatch.setattr(preparation, "state", State())
    monkeypatch.setattr(preparation, "clock", preparation.Clock())
    monkeypatch.setattr(State, "advance", lambda *_: None)
    monkeypatch.setattr(State, "prepare", lambda *_, **__: None)
    preparation.state.is_open = True


def made_by(monkeypatch, **keywords):
    """Return a program whose time is the state's."""
    program = Program(**keywords)
    monkeypatch.setattr(State, "elapsed_s", lambda _: program.elapsed_s())
    return program


def test_a_device_that_is_faster_makes_nearly_all(open_state, monkeypatch):
    """NumPy makes only the products that measure it, at first and in two trials later."""
    program = made_by(monkeypatch, host_us=300.0, device_us=100.0, estimate_us=110.0)
    program.run(1000)
    assert program.sides.count("host") <= 6
    assert "host" not in program.sides[500:]


def test_numpy_that_was_slow_at_first_is_found_out(open_state, monkeypatch):
    """Its first products waited for a busy processor; a device that then made them, loses them."""
    program = made_by(monkeypatch, host_us=900.0, device_us=230.0, estimate_us=230.0)
    program.run(20)
    program.host_us = 70.0
    program.run(3000)
    assert program.sides[-1000:].count("host") == 1000


def test_an_unknown_device_is_tried_soon_where_numpy_is_slower_than_it_can_be(
    open_state, monkeypatch
):
    """A product that takes NumPy far longer than others of its size pays for a trial at once."""
    preparation.clock.host.add(("blas", 9, 3), 2**20, 40.0)
    program = made_by(monkeypatch, host_us=400_000.0, device_us=4_000.0)
    program.run(100)
    assert program.sides.count("device") > 80


def test_a_device_that_is_slower_makes_nothing(open_state, monkeypatch):
    """It is not tried where another process has measured that it is far slower."""
    program = made_by(monkeypatch, host_us=100.0, device_us=300.0, estimate_us=290.0)
    program.run(1000)
    assert program.sides.count("device") == 0


def test_a_promise_that_does_not_hold_is_corrected(open_state, monkeypatch):
    """A device that was expected to be faster, and is slower here, loses the products."""
    program = made_by(monkeypatch, host_us=200.0, device_us=400.0, estimate_us=100.0)
    program.run(2000)
    assert program.sides[1000:].count("device") <= 20


def test_a_side_that_was_underrated_is_found_out(open_state, monkeypatch):
    """A device that was measured on a busy machine gets a trial, and then the products."""
    program = made_by(monkeypatch, host_us=200.0, device_us=100.0, estimate_us=300.0)
    program.run(5000)
    assert program.sides[-1000:].count("device") == 1000


def test_a_device_of_which_nothing_is_known_is_tried(open_state, monkeypatch):
    """No other process has measured it: the program itself does, once its time allows for that."""
    program = made_by(monkeypatch, host_us=300.0, device_us=100.0)
    program.run(1000)
    assert program.sides[500:] == ["device"] * 500
    slow = made_by(monkeypatch, host_us=300.0, device_us=30_000.0)
    slow.run(5000)
    assert slow.sides.count("device") == decision.TRIAL_RUNS


def test_no_device_is_tried_for_less_than_its_shortest_product(open_state, monkeypatch):
    """It cannot be faster."""
    preparation.clock.device.add(("blas", 3, 3), 1000, 150.0)
    program = made_by(monkeypatch, host_us=140.0, device_us=100.0)
    program.run(3000)
    assert "device" not in program.sides


@settings(max_examples=30, deadline=None)
@given(
    host=st.floats(20.0, 1e5),
    ratio=st.floats(0.1, 10.0),
    error=st.one_of(st.just(0.0), st.floats(0.2, 5.0)),
    products=st.integers(1, 3000),
)
def test_no_program_loses_much(host, ratio, error, products):
    """Whatever was promised, or nothing, it takes little longer than by the better side alone."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(preparation, "state", State())
        monkeypatch.setattr(preparation, "clock", preparation.Clock())
        monkeypatch.setattr(State, "advance", lambda *_: None)
        monkeypatch.setattr(State, "prepare", lambda *_, **__: None)
        preparation.state.is_open = True
        device = host * ratio
        promised = device * error
        program = made_by(monkeypatch, host_us=host, device_us=device, estimate_us=promised)
        program.run(products)
        plain = products * host
        # What a wrong promise costs: the products until it is known, and then trials.
        trials = 4 * decision.TRIAL_RUNS * max(device, host)
        allowed = 1.06 * plain + trials + 64 * abs(device - host)
        assert program.now_us <= allowed


def test_while_the_device_is_closed_the_reason_says_why(open_state, monkeypatch):
    """NumPy multiplies, and the entry knows whether the device is unknown, slower or not open."""
    preparation.state.is_open = False
    monkeypatch.setattr(State, "is_worth_waiting", lambda *_: False)
    entry = Program(100.0, 10.0).entry
    entry.record_host(100.0)
    entry.remaining = 0
    assert (entry.goes_to_device(), entry.reason) == (False, UNKNOWN)
    entry.is_requested = True
    assert (entry.goes_to_device(), entry.reason) == (False, BEING_PREPARED)
    entry.estimate_us = 10.0
    assert (entry.goes_to_device(), entry.reason) == (False, NOT_OPEN)
    entry.estimate_us = 1000.0
    assert (entry.goes_to_device(), entry.reason) == (False, HOST_FASTER)


def test_products_that_are_not_timed_are_counted(open_state, monkeypatch):
    """Counts and times include the products between two looks."""
    program = made_by(monkeypatch, host_us=50.0, device_us=5000.0, estimate_us=5000.0)
    monkeypatch.setattr(decision, "entries", {0: program.entry})
    monkeypatch.setattr(decision, "counts", Counts())
    program.run(777)
    rows = decision.rows()
    assert sum(row.calls for row in rows) == 777
    assert sum(row.seconds for row in rows) == pytest.approx(777 * 50e-6)
    assert program.entry.untimed
    decision.reset_counts()
    assert decision.rows() == ()
    assert program.entry.host.us == 50.0


def test_calls_are_counted_under_the_functions_name(open_state, monkeypatch):
    """What tells the signatures of a function apart is not in its name."""
    monkeypatch.setattr(decision, "counts", Counts())
    for axes in ("((1,), (0,))", "((0,), (0,))"):
        entry = Entry(f"tensordot {axes}", SIZES, "blas", OPERANDS, size_bytes=64)
        entry.record_host(1e6)
        entry.record_host(1e6)
    entry.record_device(5e5)
    assert decision.rows() == (
        Row("tensordot", UNKNOWN, 4, 4.0),
        Row("tensordot", DEVICE, 1, 0.5),
    )
    assert decision.counts.moved() == [64, 0, 0, 0]


def test_a_product_that_the_device_rejects_is_numpys(open_state, monkeypatch):
    """The reason says that it is the dtype, and no later product asks the device again."""
    entry = Program(300.0, 100.0, 100.0).entry
    entry.record_host(300.0)
    entry.remaining = 0
    assert entry.goes_to_device()
    entry.reject()
    entry.record_host(300.0)
    assert entry.reason == DTYPE
    assert not entry.goes_to_device()
    for _ in range(100):
        entry.remaining = 0  # as after a product that takes long
        assert not entry.goes_to_device()
        entry.record_host(3e4)
    assert entry.reason == DTYPE


def test_kernels_that_are_missing_make_the_product_numpys(open_state, monkeypatch):
    """A device that is not ready is asked again, and NumPy multiplies until it is."""
    asked = []
    monkeypatch.setattr(State, "prepare", lambda *_, again=False: asked.append(again))
    program = made_by(monkeypatch, host_us=300.0, device_us=100.0, estimate_us=100.0)
    program.entry.record_host(300.0)
    program.entry.remaining = 0
    assert program.entry.goes_to_device()
    program.entry.not_ready()
    assert asked == [True]
    assert not program.entry.goes_to_device()
    assert program.entry.reason == BEING_PREPARED


# The quick test, against the slow one.


@pytest.fixture
def fresh(monkeypatch):
    """No entry, no setting, and a state that does nothing."""
    monkeypatch.setattr(preparation, "state", State())
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    forget_products()
    monkeypatch.setattr(State, "advance", lambda *_: None)
    yield
    forget_products()


def described(a, b, out=None):
    """Return the entry of a @ b."""
    request = of_matmul((a, b), {"out": out})
    assert request is not None
    return decision.describe(request)


def test_an_entry_is_found_again_for_the_same_kind_alone(fresh):
    """Shapes, strides, `out`, shared memory, and the devices named tell kinds apart."""
    a, b = np.zeros((300, 200), "f"), np.zeros((200, 300), "f")
    of_both = described(a, b)
    assert decision.find("matmul", a.copy(), b.copy(), None) is of_both
    own = described(a, a.T)
    fortran = described(a, np.zeros((300, 200), "f").T)
    assert own is not fortran
    assert own.size_class[0] == "symmetric"
    assert described(a, b, np.zeros((300, 300), "f")) is not of_both
    assert decision.find("dot", a, b, None) is None
    token = named.by_block.set(("another",))
    try:
        assert decision.find("matmul", a, b, None) is None
    finally:
        named.by_block.reset(token)
    assert decision.find("matmul", a, b, None) is of_both


def test_a_device_that_is_slower_than_expected_is_left_soon(open_state, monkeypatch):
    """The first runs may include what happens once; a few, where the time so far allows for it."""
    program = made_by(monkeypatch, host_us=100.0, device_us=400.0, estimate_us=400.0)
    program.run(1000)
    program.entry.estimate_us, program.entry.remaining = 50.0, 0
    program.sides.clear()
    program.run(300)
    assert program.sides.count("device") == decision.SETTLING_RUNS + 1


def test_a_device_that_is_slow_at_first_is_not_given_up(open_state, monkeypatch):
    """An earlier process has found it faster: it may not be at its usual speed yet."""
    program = made_by(monkeypatch, host_us=1e3, device_us=3e3, estimate_us=300.0)
    monkeypatch.setattr(preparation.state, "may_spend", lambda us: us < 1e4)
    program.run(4)
    program.device_us = 300.0
    program.run(200)
    assert program.sides[-100:] == ["device"] * 100


def test_small_products_are_found_again_and_not_timed(fresh, monkeypatch):
    """A product that is small by its kind is counted, and stays NumPy's."""
    monkeypatch.setattr(decision, "counts", Counts())
    a, b = np.zeros((10, 8, 8), "f"), np.zeros((10, 8, 8), "f")
    entry = described(a, b)
    assert decision.find("matmul", a, b, None) is entry
    for _ in range(3):
        assert not entry.goes_to_device()
        decision.on_host(entry, np.matmul, a, b)
    assert decision.rows() == (Row("matmul", SMALL, 3, None),)


def test_the_quick_test_counts_and_passes(fresh):
    """Small products are counted; known ones pass as often as the decision holds."""
    counted = []
    test = decision.quick_test("matmul", lambda: counted.append(1))
    small, a = np.zeros((8, 8), "f"), np.zeros((300, 300), "f")
    assert test(small, small)
    assert counted == [1]
    assert not test(a, a)
    entry = described(a, a)
    entry.remaining, entry.host.us = 2, 1e3
    assert [test(a, a) for _ in range(3)] == [True, True, False]
    assert (entry.untimed, counted) == (2, [1])
    entry.remaining, entry.on_device = 2, True
    assert not test(a, a)
    entry.on_device = False
    assert not test(a, a.T)  # symmetric: another kind
    out = np.zeros((300, 300), "f")
    assert not test(a, a, out)  # so is a product into an array
    into = described(a, a, out)
    into.remaining, into.host.us = 1, 1e3
    assert [test(a, a, out) for _ in range(2)] == [True, False]
    assert into.untimed == 1


@pytest.mark.parametrize("entrance", ["matmul", "dot", "accelerated matmul", "accelerated dot"])
def test_a_product_whose_side_is_known_is_not_timed(entrance, fresh, monkeypatch):
    """NumPy makes it without a look, into an array and of a matrix by its own transpose, too."""
    monkeypatch.delenv("CLGEMM_THRESHOLD", raising=False)
    a, out = np.ones((200, 300), "f"), np.zeros((200, 200), "f")
    with accel.enabled() if "accelerated" in entrance else contextlib.nullcontext() as _:
        name = entrance.split()[-1]
        function = getattr(np if "accelerated" in entrance else clgemm, name)
        for b, into in ((a.T, None), (a.T, out), (np.ones((300, 200), "f"), out)):
            function(a, b, out=into)
            entry = decision.find(name, a, b, into)
            entry.remaining, runs = 2, entry.host.runs
            for _ in range(3):
                function(a, b, out=into)
            assert (entry.host.runs, entry.calls) == (runs + 1, 4)
            assert (out == 300).all() or into is None


def test_a_profile_times_each_product(fresh, monkeypatch):
    """Also those whose side is known."""
    monkeypatch.delenv("CLGEMM_THRESHOLD", raising=False)
    monkeypatch.setattr(decision, "counts", Counts())
    a = np.ones((300, 300), "f")
    with accel.enabled(profile=True):
        np.matmul(a, a)
        entry = decision.find("matmul", a, a, None)
        entry.remaining, runs = 5, entry.host.runs
        np.matmul(a, a)
    assert entry.host.runs == runs + 1


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("CLGEMM_SIDE", "host", True),
        ("CLGEMM_SIDE", "device", False),
        ("CLGEMM_SIDE", "auto", True),
        ("CLGEMM_SIDE", "wrong", False),  # the slow way reports it
        ("CLGEMM_THRESHOLD", "1000", False),
        ("CLGEMM_THRESHOLD", "1e6", True),
        ("CLGEMM_THRESHOLD", "x", False),
    ],
)
def test_the_quick_test_obeys_the_environment(variable, value, expected, fresh, monkeypatch):
    """A rule that is set while the program runs holds at once."""
    test, small = decision.quick_test("matmul", int), np.zeros((50, 50), "f")
    assert test(small, small)
    monkeypatch.setenv(variable, value)
    assert test(small, small) is expected
    monkeypatch.delenv(variable)
    assert test(small, small)


def test_no_count_is_lost_when_signatures_are_forgotten(fresh, monkeypatch):
    """Neither of small products nor of those that are not timed."""
    monkeypatch.delenv("CLGEMM_THRESHOLD", raising=False)
    monkeypatch.setattr(decision, "counts", Counts())
    monkeypatch.setattr(decision, "MOST_ENTRIES", 4)
    for n in range(20):
        a, small = np.ones((300 + n, 300), "f"), np.ones((n + 9, 8, 8), "f")
        for _ in range(5):
            clgemm.matmul(a, a.T.copy())
            clgemm.matmul(small, small)
    assert sum(row.calls for row in decision.rows()) == 200
