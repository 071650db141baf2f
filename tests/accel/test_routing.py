"""Tests of the router: which side makes a product, and for which reason."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from accelerated import EXACT, OTHER, SQUARE, SQUARE_EXACT, A, B, offloading

import clgemm
from clgemm.accel import crossover, enabled, hooks, report, routing
from clgemm.accel.known_sides import key_of
from clgemm.accel.settings import Settings
from clgemm.accel.tally import Tally
from clgemm.accel.task import Task
from clgemm.hardware.device import Device
from clgemm.planning import crossover_search, crossovers
from clgemm.planning.crossovers import Measured, Work, kind_of
from clgemm.runtime import turns
from clgemm.runtime.several.standing import LONGEST_PAUSE_SECONDS
from clgemm.runtime.turns import Product

PRODUCTS = {"matmul": np.matmul, "operator": lambda a, b: a @ b, "dot": np.dot}


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_failing_device(product, device, monkeypatch, caplog):
    """After a failure on the device NumPy multiplies, with one warning for all later products."""

    def fail(*arguments, **keywords):
        raise cl.RuntimeError("planted")

    monkeypatch.setattr(hooks, "multiply_into", fail)
    monkeypatch.setattr(hooks, "dot_of", fail)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(PRODUCTS[product](A, B), EXACT)
    assert len(caplog.records) == 1
    assert report().stayed == {routing.FAILED: 3}


def test_a_failing_device_that_is_merely_full(device, monkeypatch):
    """A device that was out of memory makes the next product."""
    made = hooks.dot_of

    def fail(*arguments, **keywords):
        monkeypatch.setattr(hooks, "dot_of", made)
        raise MemoryError

    monkeypatch.setattr(hooks, "dot_of", fail)
    with offloading(1):
        np.testing.assert_array_equal(A @ B, EXACT)
        np.testing.assert_array_equal(A @ B, EXACT)


def test_no_device(monkeypatch, caplog):
    """Without a device, NumPy makes all products, with one warning."""

    def none():
        raise RuntimeError("no OpenCL device was found")

    monkeypatch.setattr(routing, "get_device", none)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(A @ B, EXACT)
            np.testing.assert_array_equal(np.dot(A, B), EXACT)
    assert [record.message for record in caplog.records] == [
        "NumPy is not accelerated: no OpenCL device was found"
    ]
    assert report().stayed == {routing.NO_DEVICE: 6}


@pytest.fixture
def measured(device, monkeypatch):
    """Set measured crossovers: only the kind "block" pays, from 600^3 on."""
    found = dict.fromkeys(measure_kinds())
    found["block"] = 600**3
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(routing, "measured", lambda _: Measured(found, "2026-11-21"))
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.0)


def measure_kinds():
    return ["block", "symmetric"] + [
        f"{name}-{band}" for name in ("narrow", "shallow", "stack") for band in (32, 128)
    ]


def test_measured_crossovers_are_used(measured):
    """Products go to the device from the measured crossover of their kind on."""
    x, y = np.ones((600, 600), np.float32), np.ones((599, 599), np.float32)
    with enabled():
        x @ x, np.dot(x, x)
        y @ y, np.dot(x, x.T), x[:, :500] @ x[:500], x[:, :20] @ x[:20], y.dot(y)
    assert report().offloaded == 2
    assert report().stayed == {"size": 5}


SHALLOW, NARROW, BLOCK = Work(200, 200, 200), Work(200, 180, 200), Work(900, 900, 900)


class Planted:
    """A made-up measurement of one kind, which ends at a given attempt."""

    least = 1
    last = 1
    begun: ClassVar[list[str]] = []

    def __init__(self, kind, _device, _host):
        self.kind, self.attempts = kind, 0

    @property
    def has_ended(self):
        return self.attempts >= self.last

    def go_on(self):
        self.begun.append(self.kind)
        self.attempts += 1


@pytest.fixture
def unmeasured(device, monkeypatch):
    """Return a router for a device without crossovers, whose measurements are made up."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(routing, "measured", lambda _: None)
    monkeypatch.setattr(routing, "measurement_of", Planted)
    monkeypatch.setattr(routing, "keep", lambda _, measurement: measurement.least)
    monkeypatch.setattr(Planted, "begun", [])
    return routing.Router(Settings(), np.matmul)


@pytest.fixture
def opened(unmeasured, monkeypatch):
    """Return that router, when it may open a device."""
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.0)
    return unmeasured


def test_a_device_is_opened_and_measured_once_it_pays(unmeasured):
    """A device is opened and measured only after enough time in large products."""
    for reason in (routing.UNOPENED, routing.UNMEASURED):
        assert unmeasured.choose(SHALLOW) == reason
        unmeasured.stayed(reason, 0.6, SHALLOW)
    assert unmeasured.choose(SHALLOW) is clgemm.get_device()
    assert Planted.begun == ["shallow-128"]
    x = np.ones((200, 200), np.float32)
    with enabled():
        x @ x
    assert report().stayed == {routing.UNOPENED: 1}


def test_each_kind_is_measured_on_its_own(opened, monkeypatch):
    """Time in products of one kind does not lead to a measurement of another."""
    device = clgemm.get_device()
    opened.stayed(routing.UNMEASURED, 9.0, SHALLOW)
    assert opened.choose(BLOCK) == opened.choose(NARROW) == routing.UNMEASURED
    assert opened.choose(SHALLOW) is device
    monkeypatch.setattr(Planted, "least", None)
    opened.stayed(routing.UNMEASURED, 9.0, NARROW)
    assert opened.choose(NARROW) == "size"
    assert opened.choose(BLOCK) == routing.UNMEASURED
    assert Planted.begun == ["shallow-128", "narrow-128"]
    assert opened.least == routing.LEAST_WORK  # smaller products of other kinds still count


def test_a_measurement_goes_on_after_as_long_again(opened, monkeypatch):
    """What an unfinished measurement knows is used, and it goes on after as much time again."""
    device = clgemm.get_device()
    monkeypatch.setattr(Planted, "last", 2)
    monkeypatch.setattr(Planted, "least", SHALLOW.size)
    opened.stayed(routing.UNMEASURED, 1.0, SHALLOW)
    for _ in range(3):
        assert opened.choose(SHALLOW) is device
        assert opened.choose(Work(199, 199, 199)) == routing.UNMEASURED
    assert len(Planted.begun) == 1
    opened.stayed(routing.UNMEASURED, 1.0, SHALLOW)
    assert opened.choose(Work(199, 199, 199)) == "size"
    assert len(Planted.begun) == 2


def test_a_measurement_that_fails_is_not_repeated_at_once(opened, monkeypatch):
    """After an error, a measurement waits for as much time again."""
    monkeypatch.setattr(Planted, "least", None)
    monkeypatch.setattr(Planted, "go_on", lambda self: self.begun.append(self.kind) or 1 / 0)
    opened.stayed(routing.UNMEASURED, 9.0, SHALLOW)
    with pytest.raises(ZeroDivisionError):
        opened.choose(SHALLOW)
    assert opened.choose(SHALLOW) == routing.UNMEASURED
    assert len(Planted.begun) == 1


def test_a_measurement_is_not_nested(opened, monkeypatch):
    """A product of a signal handler during a measurement stays on the host."""
    nested = []

    def go_on(self):
        self.attempts += 1
        opened.stayed(routing.UNMEASURED, 9.0, SHALLOW)
        nested.append(opened.choose(SHALLOW))
        self.least = 1

    monkeypatch.setattr(Planted, "least", None)
    monkeypatch.setattr(Planted, "go_on", go_on)
    opened.stayed(routing.UNMEASURED, 9.0, SHALLOW)
    assert opened.choose(SHALLOW) is clgemm.get_device()
    assert nested == [routing.UNMEASURED]


def test_the_time_of_a_measurement_is_not_that_of_a_product(device, monkeypatch):
    """A product that waits for a measurement counts with its own time only."""
    now = [0.0]
    monkeypatch.setattr(hooks.time, "perf_counter", lambda: now[0])
    counted = []

    class Waiting:
        settings, least = Settings(), 0
        succeeded = stayed = staticmethod(lambda *given: counted.append(given))
        queue = staticmethod(lambda _: None)
        known = product = staticmethod(lambda _: None)
        remember = staticmethod(lambda *_: None)

        def choose(self, _work, _sent, _product):
            now[0] += 2.0
            return self.side

    router, running = Waiting(), SimpleNamespace(enter=lambda: None, leave=lambda: None)
    dot = hooks.Hooks(
        *(router, Tally(), running), host=np.matmul, matmul=np.matmul, dot=np.dot
    ).dot(lambda *_: now.__setitem__(0, now[0] + 0.5))
    for router.side in (routing.UNMEASURED, clgemm.get_device()):
        dot(SQUARE, OTHER)
    work = Work(*SQUARE.shape, OTHER.shape[1])
    assert counted == [
        (routing.UNMEASURED, 0.5, work),
        (clgemm.get_device(), work, 0.0, True, False),
    ]


@pytest.fixture
def clear(opened, monkeypatch):
    """Return the router, with a device that is called clearly faster for every product."""
    monkeypatch.setattr(routing, "is_clearly_faster", lambda *_: True)
    return opened


def test_a_product_that_is_clearly_faster_does_not_wait(clear):
    """It goes to the device as soon as the host has made one of its kind; nothing is measured."""
    device = clgemm.get_device()
    assert clear.choose(BLOCK) == routing.UNMEASURED
    clear.stayed(routing.UNMEASURED, 0.1, BLOCK)
    for seconds in (3.0, 0.01, 0.3, 0.01):  # the first ones may compile
        assert clear.choose(BLOCK) is device
        clear.succeeded(device, BLOCK, seconds)
    assert clear.choose(SHALLOW) == routing.UNMEASURED
    assert Planted.begun == []


@pytest.mark.parametrize(("seconds", "products"), [(0.11, 4), (2.0, 2)])
def test_a_device_that_is_slower_than_the_host_is_soon_left(seconds, products, clear):
    """If the host would have been faster several times, it makes the next until it is measured."""
    device = clgemm.get_device()
    clear.stayed(routing.UNMEASURED, 0.1, BLOCK)
    for _ in range(products):
        assert clear.choose(BLOCK) is device
        clear.succeeded(device, BLOCK, seconds)
    assert clear.choose(BLOCK) == routing.UNMEASURED
    clear.stayed(routing.UNMEASURED, 1.0, BLOCK)
    assert clear.choose(BLOCK) is device  # as the measurement says
    assert Planted.begun == ["block"]


def test_a_program_that_has_no_device_yet_learns_the_hosts_rate(clear, monkeypatch):
    """Products before the device is opened count as the host's products of their kind."""
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.5)
    assert clear.choose(BLOCK) == routing.UNOPENED
    clear.stayed(routing.UNOPENED, 0.6, BLOCK)
    assert clear.choose(BLOCK) is clgemm.get_device()


def test_a_product_that_would_take_the_host_long_opens_the_device(clear, monkeypatch):
    """Its time is expected from the products of its kind before it, and it does not stay."""
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.5)
    for _ in range(2):
        assert clear.choose(BLOCK) == routing.UNOPENED
        clear.stayed(routing.UNOPENED, 0.1, BLOCK)
    longer = BLOCK._replace(m=4 * BLOCK.m)
    assert kind_of(longer) == kind_of(BLOCK)
    assert clear.choose(BLOCK) == routing.UNOPENED
    for work in (longer, BLOCK):
        assert clear.choose(work) is clgemm.get_device()


def test_a_program_is_measured_and_offloaded(device, monkeypatch, tmp_path):
    """A whole program: its first products stay, its kind is measured, the others are offloaded."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.0)
    monkeypatch.setattr(routing, "EXPECTED_SECONDS", 1e-9)
    monkeypatch.setattr(crossover, "MARGIN", 1e9)  # the device wins whatever it takes
    monkeypatch.setattr(crossover_search, "HOST_SECONDS", 0.0)
    crossovers.forget()
    x = np.ones((170, 170), np.float32)
    with enabled():
        made = [x @ x for _ in range(99)]
    assert report().stayed[routing.UNMEASURED] < 99
    assert report().offloaded > 0
    assert set(crossovers.measured(device).least) == {"shallow-128"}
    for each in made:
        np.testing.assert_array_equal(each, np.full((170, 170), 170))
    monkeypatch.undo()
    crossovers.forget()


def plant(monkeypatch, error):
    """Make every product on a device raise an error."""

    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(hooks, "multiply_into", fail)
    monkeypatch.setattr(hooks, "dot_of", fail)


def test_a_device_that_failed_gets_another_chance(device, monkeypatch, caplog):
    """SQUARE device that failed is tried again after a growing pause, which log and report name."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        plant(monkeypatch, cl.RuntimeError("planted"))
        for failures, pause in enumerate((10, 20, 40), 1):
            for _ in range(3):
                np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
            (left_out,) = report().left_out
            assert (left_out.device, left_out.failures) == (device.name, failures)
            assert 0 < left_out.until - time.time() <= pause
            assert len(caplog.records) == failures
            now[0] += pause - 1
            SQUARE @ OTHER
            assert len(caplog.records) == failures
            now[0] += 1
        until = time.strftime("%H:%M:%S", time.localtime(left_out.until))
        for text in (str(report()), caplog.records[-1].message):
            assert f"not used until {until}, since it failed 3 times in a row" in text
            assert "planted" in text
        monkeypatch.undo()
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
        assert report().left_out == ()
        assert report().offloaded == 1
    assert "is used again" in caplog.records[-1].message
    assert report().stayed == {routing.FAILED: 12}


def test_a_pause_has_an_end(device):
    """The pause has a limit, however often a device fails in a row."""
    router = routing.Router(Settings(0), np.matmul)
    for _ in range(2000):
        router.failed(device, cl.RuntimeError("planted"))
    (left_out,) = router.left_out()
    assert left_out.until - time.time() <= LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize("function", ["matmul", "dot"])
def test_a_product_that_stays_is_not_asked_about_again(function, opened, monkeypatch):
    """Until its kind is to be measured, another device is chosen or an array is resident."""
    monkeypatch.setitem(vars(clgemm.get_device()), "kind", "CPU")
    a, b = np.ones((160, 170), np.float32), np.ones((170, 180), np.float32)
    key, work = key_of(function, a, b), Work(160, 180, 170)
    assert opened.known(None) is opened.known(key) is None
    for reason in (routing.UNOPENED, routing.FAILED, routing.ERROR):
        opened.remember(key, reason, work)
    opened.remember(None, routing.UNMEASURED, work)
    assert opened.known(key) is None
    opened.remember(key, routing.UNMEASURED, work)
    stay = opened.known(key)
    assert (stay.side, stay.size, stay.unmeasured) == (
        routing.UNMEASURED,
        work.size,
        kind_of(work),
    )
    opened.stayed_again(stay, 0.6)
    assert opened.known(key) == stay
    with clgemm.resident(a):
        assert opened.known(key) is None
    with clgemm.device(Device(clgemm.get_device().cl_device)):
        assert opened.known(key) is None
    monkeypatch.setattr(routing, "blas_threads", lambda: 77)
    assert opened.known(key) is None


def test_what_stayed_is_forgotten_when_a_kind_is_measured(opened, monkeypatch):
    """Then crossovers tell the side."""
    monkeypatch.setitem(vars(clgemm.get_device()), "kind", "CPU")
    a = np.ones((160, 170), np.float32)
    key, work = key_of("dot", a, a[:, :1]), Work(160, 180, 170)
    opened.remember(key, routing.UNMEASURED, work)
    opened.stayed_again(opened.known(key), 2 * crossover.EXPECTED_SECONDS)
    assert opened.known(key) is None  # it is to be measured
    assert opened.choose(work) is clgemm.get_device()
    assert opened.known(key) is None


def test_on_a_gpu_what_is_unmeasured_is_asked_about_again(opened, monkeypatch):
    """If it may be clearly faster on the device."""
    monkeypatch.setitem(vars(clgemm.get_device()), "kind", "GPU")
    key = key_of("dot", A, B)
    monkeypatch.setattr(routing, "is_clearly_faster", lambda *_: True)
    opened.remember(key, routing.UNMEASURED, BLOCK)
    assert opened.known(key) is None
    monkeypatch.setattr(routing, "is_clearly_faster", lambda *_: False)
    other = key_of("matmul", A, B)
    opened.remember(other, routing.UNMEASURED, BLOCK)
    assert opened.known(other).side == routing.UNMEASURED
    opened.remember(key, clgemm.get_device(), BLOCK)
    assert opened.known(key) is None
    monkeypatch.setattr(Planted, "least", None)
    opened.stayed(routing.UNMEASURED, 9.0, BLOCK)
    assert opened.choose(BLOCK) == routing.SMALL
    opened.remember(key, routing.SMALL, BLOCK)
    assert opened.known(key).side == routing.SMALL


@pytest.mark.parametrize("out", [False, True])
def test_the_device_of_a_repeated_product_is_known(out, opened, device, monkeypatch):
    """It is not chosen again, unless it has failed; with `out`, memory may matter."""
    asked, choose = [], routing.Router.choose
    monkeypatch.setattr(routing.Router, "choose", lambda *of: asked.append(of) or choose(*of))
    keywords = {"out": np.empty(SQUARE_EXACT.shape, np.float32)} if out else {}
    with enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(np.matmul(SQUARE, OTHER, **keywords), SQUARE_EXACT)
        assert len(asked) == (3 if out else 1)
        del asked[:]
        with clgemm.device(Device(device.cl_device)):
            np.testing.assert_array_equal(np.matmul(SQUARE, OTHER), SQUARE_EXACT)
        assert len(asked) == 1
    assert report().offloaded == 4


@pytest.fixture
def spinning(opened, monkeypatch):
    """The router, beside a BLAS whose threads spin for 0.1 s. No time passes."""
    monkeypatch.setattr(turns.time, "perf_counter", lambda: 1000.0)
    monkeypatch.setattr(turns, "spin_seconds", lambda: 0.1)
    turns.forget()
    yield opened
    turns.forget()


def test_the_products_before_it_count_for_the_side_of_a_product(spinning, device):
    """Whatever its kind is. That is not measured, which would take several seconds."""
    spinning.stayed(routing.UNMEASURED, 9.0, SHALLOW)
    slow, fast = Product(True, 4e3, 5e3, True), Product(False, 5e3, 4e3, True)
    thin = Work(500, 20, 500)
    assert spinning.choose(SHALLOW, 1.0, slow) == routing.SMALL
    assert spinning.choose(thin, 1.0, fast) == routing.SKINNY
    assert spinning.choose(Work(9, 9, 9), 1.0, fast) == routing.SKINNY
    for _ in range(50):
        spinning.choose(SHALLOW, 1.0, fast)
    assert spinning.choose(SHALLOW, 1.0, slow) is device
    assert spinning.choose(thin, 1.0, fast) is device
    for _ in range(100):
        spinning.choose(thin, 1.0, slow)
    assert spinning.choose(SHALLOW, 1.0, fast) == routing.SMALL


def test_a_repeated_product_is_asked_about_in_its_turn(spinning, device, monkeypatch):
    """Its times are remembered, and not its side."""
    key = key_of("matmul", A, OTHER)
    fast = Product(False, 5e3, 4e3, True)
    side = spinning.choose(SHALLOW, 1.0, fast)
    assert side is device
    spinning.remember(key, side, SHALLOW, fast)
    assert spinning.known(key).side is device
    for _ in range(100):
        turns.host_makes(Product(True, 1e3, 2e3, True))
    assert spinning.known(key).side == routing.SMALL
    monkeypatch.setattr(routing, "get_devices", lambda: (device, device))
    assert spinning.known(key) is None


def test_which_products_are_compared(spinning, device, monkeypatch):
    """Those on a CPU that serves alone, without a threshold."""
    asked = []
    times = Product(False, 5e3, 4e3, True)
    task = Task(SHALLOW, None, False, compare=lambda: asked.append(0) or times)
    found = spinning.product(task)
    is_cpu = device.kind == "CPU"
    assert (found, asked) == ((times, [0]) if is_cpu else (None, []))
    assert spinning.product(task._replace(compare=None)) is None
    monkeypatch.setattr(spinning, "_wanted", 5)
    assert spinning.product(task) is None
    assert len(asked) == is_cpu
