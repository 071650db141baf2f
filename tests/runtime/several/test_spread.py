"""Tests of products that several devices share."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from injection import TRANSFER
from strategies import GPU_LIMITS
from whole_numbers import whole

import clgemm
from clgemm import accel
from clgemm.core.named import named
from clgemm.hardware.choice import devices
from clgemm.planning import tiles
from clgemm.planning.transfers import transfer_config
from clgemm.runtime import launch, progress
from clgemm.runtime.several import spread, standing, together
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import Workspace

RNG = np.random.default_rng(29)
M, N, K = 500, 300, 96

pytestmark = pytest.mark.usefixtures("small_spread")


class Stop(BaseException):
    """What a handler or a callback raises here."""


class PlantedError(RuntimeError):
    """What a device that fails reports here."""


def real(*shape):
    """Real numbers, whose sums depend on their order."""
    return RNG.standard_normal(shape, dtype=np.float32)


@pytest.fixture(scope="module")
def every(device):
    """The device six times, as equal ones with queues of their own: half of them by transfers."""
    configs = None, TRANSFER
    return [[clgemm.Device(device.cl_device, transfer=x) for _ in range(3)] for x in configs]


@pytest.fixture(params=["as they are", "through transfers", "mixed"])
def equals(request, every, monkeypatch):
    """Three of them, chosen."""
    plain, through = every
    own = {"as they are": plain, "through transfers": through}
    made = tuple(own.get(request.param, (plain[0], through[1], plain[2])))
    monkeypatch.setattr(named, "by_process", made)
    return made


@pytest.fixture
def three(every, monkeypatch):
    """Three as they are, chosen."""
    made = tuple(every[0])
    monkeypatch.setattr(named, "by_process", made)
    return made


class Watched:
    """What makes tiles, and lists which device made which; faults may be planted."""

    def __init__(self, compute):
        self._compute = compute
        self.made, self.shapes, self.lock = [], [], threading.Lock()
        self.fault = lambda *_: False
        self.before = lambda _: None

    def __call__(self, part, device, tile_rows, advance):
        self.before(device)
        with self.lock:
            number = sum(d is device for d in self.made)
            self.made.append(device)
            self.shapes.append(part.c.shape)
        self._compute(part, device, tile_rows, advance)
        if self.fault(device, number):
            part.c[: len(part.c) // 2] = np.nan  # half of the tile is updated, the rest is not
            part.c[len(part.c) // 2 :] += 1
            raise PlantedError(f"planted in {number}")


@pytest.fixture
def watched(monkeypatch):
    """Every tile is listed, and several devices always share the work, each by itself."""
    monkeypatch.setattr(together, "COPIED_PER_SECOND", 1e30)
    monkeypatch.setattr(spread, "made_together", lambda *_: False)
    seen = Watched(launch._compute_part)
    monkeypatch.setattr(launch, "_compute_part", seen)
    return seen


def no_threads_left():
    return not [t for t in threading.enumerate() if t.name.startswith("clgemm-device")]


@pytest.mark.parametrize("shape", [(M, N, K), (N, M, K), (2, 3, 90, 80, 40), (7, 150, 60, 33)])
def test_the_product_is_right(shape, equals, watched):
    """Products of any shape and batch, new and updated, are right and shared."""
    *batch, m, n, k = shape
    a, b = whole(*batch, m, k), whole(*batch, k, n)
    watched.before = lambda _: time.sleep(0.002)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert len(set(watched.made)) > 1
    if not batch:
        c = whole(m, n)
        expected = 2 * (a @ b) - 3 * c
        for order in ("C", "F"):
            target = np.array(c, order=order)
            assert clgemm.sgemm(2.0, a, b, -3.0, target, overwrite_c=1) is target
            np.testing.assert_array_equal(target, expected)
    assert no_threads_left()


def test_broadcast_and_strided_operands(three, watched):
    """Broadcast operands, reversed views and an overlapping out give the right product."""
    a, b = whole(6, 80, 60)[:, ::-1, :], whole(60, 70).T.copy().T
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    square = whole(200, 200)
    expected = square @ square.T
    clgemm.matmul(square, square.T, out=square)
    np.testing.assert_array_equal(square, expected)
    assert len(watched.made) > 2


def test_equal_devices_give_the_same_bits_whoever_makes_what(equals, watched, monkeypatch):
    """Equal devices give the same bits, whichever is slow or fails."""
    if len({bool(d.transfer) for d in equals}) > 1:
        pytest.skip("devices that get their operands in different ways are not equal")
    monkeypatch.setattr(spread, "LINK_BYTES_PER_SECOND", 1e6)  # draws are runs of many tiles
    deep = 4 * K  # so that transfers might cut k, where tiles have few rows
    a, b = real(M, deep), real(deep, N)
    c = real(M, N)

    def product():
        watched.made.clear()
        watched.shapes.clear()
        new = c.copy()
        return clgemm.sgemm(1.5, a, b, 0.5, new, overwrite_c=1)

    expected = product()
    tiles_made = sorted(watched.shapes)
    for slow in (*equals, None):
        watched.before = lambda device, slow=slow: time.sleep(0.02 if device is slow else 0.0)
        np.testing.assert_array_equal(product(), expected)
        assert transfer_config(equals[0]) or sorted(watched.shapes) == tiles_made
    watched.fault = lambda device, number: device is equals[1] and number == 0
    np.testing.assert_array_equal(product(), expected)


@pytest.mark.parametrize("beta", [0.0, 3.0])
@pytest.mark.parametrize("tile", [0, 1])
def test_others_finish_the_tiles_of_a_device_that_fails(beta, tile, equals, watched, caplog):
    """If a device fails, C is right and updated once, and there is one warning."""
    a, b, c = whole(M, K), whole(K, N), whole(M, N)
    expected = a @ b + beta * c
    failing = equals[1]
    others = threading.Event()
    watched.fault = lambda device, number: device is failing and number == tile
    watched.before = lambda device: others.wait(0.01) if device is not failing else None
    with caplog.at_level(logging.WARNING):
        clgemm.sgemm(1.0, a, b, beta, c, overwrite_c=1)
    np.testing.assert_array_equal(c, expected)
    assert watched.made.count(failing) == tile + 1
    (record,) = caplog.records
    assert "failed in the middle of a product (PlantedError: planted in" in record.getMessage()
    watched.made.clear()
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert failing not in watched.made
    assert len(caplog.records) == 1
    assert no_threads_left()


def test_a_device_that_has_failed_is_tried_again(three, watched, monkeypatch):
    """A device that has failed takes part again after a pause."""
    a, b = whole(M, K), whole(K, N)
    watched.fault = lambda device, _: device is three[0]
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    now = time.monotonic()
    monkeypatch.setattr(standing.time, "monotonic", lambda: now + standing.FIRST_PAUSE_SECONDS)
    watched.fault = lambda *_: False
    watched.made.clear()
    watched.before = lambda _: time.sleep(0.002)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert three[0] in watched.made
    assert three[0] not in standing._failed


@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_if_all_devices_fail_the_call_does(beta, equals, watched, caplog):
    """If all devices fail, the call raises and warns of nothing, and the next call is right."""
    a, b, c = whole(M, K), whole(K, N), whole(M, N)
    watched.fault = lambda *_: True
    with pytest.raises(PlantedError, match="planted"):
        clgemm.sgemm(1.0, a, b, beta, c, overwrite_c=1)
    assert not caplog.records
    watched.fault = lambda *_: False
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert no_threads_left()


def test_a_kernel_that_cannot_be_enqueued(three, watched, monkeypatch, caplog):
    """If one device cannot enqueue a kernel, the others make its tiles."""
    watched.before = lambda device: None if device is three[2] else time.sleep(0.01)
    enqueue = Workspace.enqueue

    def failing(space, *arguments):
        if space.queue.context == three[2].context:
            raise PlantedError("out of resources")
        return enqueue(space, *arguments)

    monkeypatch.setattr(Workspace, "enqueue", failing)
    a, b = whole(M, K), whole(K, N)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert "out of resources" in caplog.text


def test_small_products_and_device_arrays_stay_on_one_device(three, watched, monkeypatch):
    """Small products, device arrays and products with a queue are not spread."""
    a, b = whole(40, 30), whole(30, 20)
    placed = [cl_array.to_device(three[1].queue, x) for x in (a, b)]
    assert clgemm.matmul(*placed).queue == three[1].queue
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b, queue=three[2].queue), a @ b)
    monkeypatch.setattr(tiles, "LEAST_IN_PLACE", 2**40)
    monkeypatch.setattr(tiles, "LEAST_THROUGH_TRANSFERS", 2**40)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert not watched.made


def test_events_are_waited_for(three, watched):
    """No device begins before the events of wait_for are complete."""
    a, b = np.zeros((M, K), np.float32), whole(K, N)
    gate = cl.UserEvent(three[0].context)
    complete = cl.command_execution_status.COMPLETE

    def fill():
        a[:] = 1
        gate.set_status(complete)

    timer = threading.Timer(0.1, fill)
    timer.start()
    found = clgemm.sgemm(1.0, a, b, wait_for=[gate])
    timer.join()
    np.testing.assert_array_equal(found, np.ones((M, K), np.float32) @ b)
    assert watched.made


def test_threads_share_devices(three):
    """Products of several threads on the same devices are right."""
    a, b = whole(M, K), whole(K, N)
    found, expected = [], a @ b

    def multiply():
        found.extend(clgemm.sgemm(1.0, a, b) for _ in range(3))

    threads = [threading.Thread(target=multiply) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 9
    for result in found:
        np.testing.assert_array_equal(result, expected)


def test_the_calling_thread_hears_of_the_progress(equals, watched, monkeypatch):
    """The calling thread reports progress, and tiles that are made again count once."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(spread, "POLL_SECONDS", 0.001)
    watched.before = lambda _: time.sleep(0.005)
    watched.fault = lambda device, number: device is equals[2] and number == 1
    told, threads = [], set()

    def hear(done, total):
        told.append(done)
        threads.add(threading.current_thread())
        assert total == M * N * K

    with clgemm.progress(hear):
        clgemm.sgemm(1.0, whole(M, K), whole(K, N))
    assert threads == {threading.current_thread()}
    assert told[-1] == M * N * K
    assert max(told) == M * N * K
    assert len(told) > 2


def test_an_exception_in_the_callback_stops_all_devices(equals, watched, monkeypatch):
    """After an exception of the callback no device writes to C, and the next product is right."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    a, b, c = whole(M, K), whole(K, N), whole(M, N)
    watched.before = lambda _: time.sleep(0.02)

    def refuse(*_):
        raise Stop

    with clgemm.progress(refuse), pytest.raises(Stop):
        clgemm.sgemm(1.0, a, b, 1.0, c, overwrite_c=1)
    assert no_threads_left()
    left = c.copy()
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    np.testing.assert_array_equal(c, left)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that signals")
def test_a_signal_stops_all_devices_within_a_tile(three, watched):
    """After an exception of a signal's handler each device ends its tile and no thread is left."""
    watched.before = lambda _: time.sleep(0.2)
    a, b = whole(M, K), whole(K, N)

    def stop(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Stop):
            clgemm.sgemm(1.0, a, b)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(watched.made) < 12
    assert no_threads_left()
    watched.before = lambda _: None
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that signals")
def test_a_handler_may_multiply_meanwhile(three, watched):
    """A product of a signal's handler on the same devices and the interrupted one are right."""
    watched.before = lambda _: time.sleep(0.02)
    a, b, found = whole(M, K), whole(K, N), []

    def multiply(*_):
        found.append(clgemm.sgemm(1.0, a, b))

    before = signal.signal(signal.SIGALRM, multiply)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    (inner,) = found
    np.testing.assert_array_equal(inner, a @ b)


def test_without_threads_one_device_makes_all(three, watched, monkeypatch):
    """If no thread can start, the calling thread makes the product on one device."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(spread.threading.Thread, "start", refuse)
    a, b = whole(M, K), whole(K, N)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert set(watched.made) == {three[0]}


def test_devices_share_the_threads_that_copy(device):
    """Two devices use the same threads for copies."""
    own = [clgemm.Device(device.cl_device, transfer=TRANSFER) for _ in range(2)]
    first, second = (staging(each, TRANSFER).threads() for each in own)
    assert first is second


def test_numpy_is_accelerated_by_all_of_them(three, watched, monkeypatch):
    """Accelerated NumPy uses all chosen devices and reports them, and install refuses a list."""
    a, b = whole(M, K), whole(K, N)
    expected = a @ b
    with accel.enabled(threshold=0):
        np.testing.assert_array_equal(a @ b, expected)
        np.testing.assert_array_equal(np.dot(a, b), expected)
        assert accel.report().device == ", ".join(d.name for d in three)
    assert len(watched.made) > 2
    monkeypatch.setattr("clgemm.hardware.choice.find_devices", lambda _: three)
    with pytest.raises(ValueError, match="device='all' names several devices"):
        accel.install(device="all")


def test_info_lists_all_that_are_chosen(three):
    """show_config lists all chosen devices."""
    chosen = clgemm.show_config("dicts")["Chosen device"]
    assert chosen["name"] == three[0].name
    shared = chosen["large products of host arrays are shared with"]
    assert shared == {"2": three[1].label, "3": three[2].label}


class Cpu:
    """A CPU device of so many processors."""

    kind = "CPU"

    def __init__(self, units):
        self.limits = replace(GPU_LIMITS, compute_units=units)


@pytest.mark.parametrize(
    ("units", "is_so"),
    [((8,), False), ((4, 4), False), ((8, 8), True), ((2, 2, 2), False), ((4, 4, 1), True)],
)
def test_devices_compete_if_they_are_more_than_the_processors(units, is_so, monkeypatch):
    """Two runtimes use all processors each; parts of a processor have their own."""
    monkeypatch.undo()
    monkeypatch.setattr(spread, "usable_processors", lambda: 8)
    assert spread.compete(list(map(Cpu, units))) == is_so


def test_competing_devices_leave_a_product_to_the_first(three, watched, monkeypatch):
    """It is right, and no tile goes to another one."""
    monkeypatch.setattr(spread, "compete", lambda devices: len(devices) == 3)
    a, b = whole(M, K), whole(K, N)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert not watched.made


SCRIPT = """
import os, sys, threading
import numpy as np
import clgemm
from clgemm.hardware import choice
from clgemm.planning import tiles
from clgemm.runtime.several import spread

spread.compete = lambda _: False
first = clgemm.get_device()
choice.named.by_process = tuple(clgemm.Device(first.cl_device) for _ in range(2))
tiles.LEAST_IN_PLACE = tiles.LEAST_THROUGH_TRANSFERS = 1
tiles.GRAIN = tiles.LEAST_SIDE = 32
a = np.ones((300, 300), "f")
assert (clgemm.sgemm(1.0, a, a) == 300).all()
"""


def child(script, device):
    if device is not devices()[0]:
        pytest.skip("the child process uses the first device")
    command = [sys.executable, "-c", SCRIPT + script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_a_process_that_is_interrupted_ends_as_one(device):
    """After Ctrl-C in a shared product, Python reports KeyboardInterrupt and ends."""
    done = child(
        """
import signal
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
while True:
    assert (clgemm.sgemm(1.0, a, a) == 300).all()
""",
        device,
    )
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr


def test_a_process_ends_while_a_daemon_thread_multiplies(device):
    """A process ends without a crash while a daemon thread shares a product."""
    done = child(
        """
import time
def forever():
    while True:
        clgemm.sgemm(1.0, a, a)
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
print("over")
""",
        device,
    )
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_gets_an_error(device):
    """A shared product in a forked process raises RuntimeError."""
    done = child(
        """
if os.fork() == 0:
    try:
        clgemm.sgemm(1.0, a, a)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
print(os.wait()[1])
""",
        device,
    )
    assert done.stdout.startswith("OpenCL cannot be used in a process forked"), done.stderr
    assert done.stdout.endswith("\n0\n")
