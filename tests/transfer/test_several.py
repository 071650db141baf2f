"""Tests of several devices: products that equal GPUs compute together, and the commands.

The tests' device plays all of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from injection import TRANSFER
from whole_numbers import whole

import clgemm
from clgemm import accel
from clgemm.bench.rounds import Server
from clgemm.core.settings import named
from clgemm.hardware import choice
from clgemm.hardware import device as hardware_device
from clgemm.hardware.choice import devices
from clgemm.runtime import progress
from clgemm.runtime.finite import watched
from clgemm.runtime.workspace import Workspace
from clgemm.transfer import multiply, several
from clgemm.transfer.copy_threads import Copier
from clgemm.transfer.several import is_faster_shared
from clgemm.transfer.staging import staging
from clgemm.tuning import command as tuning

RNG = np.random.default_rng(31)
M, N, K = 500, 300, 96


@pytest.fixture(autouse=True)
def small_products_are_shared(monkeypatch):
    monkeypatch.setattr(several, "LEAST_WORK", 1)
    monkeypatch.setattr(several, "is_faster_shared", lambda *_: True)


@pytest.fixture(scope="module")
def every(device):
    """The device four times, with queues of their own, as if it had memory of its own."""
    return [clgemm.Device(device.cl_device, transfer=TRANSFER) for _ in range(4)]


@pytest.fixture(params=[2, 4])
def equals(request, every, monkeypatch):
    """Two or four of them, chosen."""
    made = tuple(every[: request.param])
    monkeypatch.setattr(named, "by_process", made)
    return made


@pytest.fixture
def calls(monkeypatch):
    """Whether each product that was to be shared was computed together; None if that failed."""
    answers, compute, lock = [], multiply.multiply_together, threading.Lock()

    def noting(*arguments):
        with lock:
            number = len(answers)
            answers.append(None)  # until it returns
        answers[number] = compute(*arguments)
        return answers[number]

    monkeypatch.setattr(multiply, "multiply_together", noting)
    return answers


@pytest.mark.parametrize("shape", [(M, N, K), (5, 90, 80, 40)])
@pytest.mark.parametrize("dtypes", ["i1 i4", "i8 i8", "b1 b1", "f2 f2", "c8 c8"])
def test_other_dtypes_are_shared(dtypes, shape, equals, calls):
    """By rows, and by the matrices of a batch; of a matrix by its own transpose, all is shared."""
    *batch, m, n, k = shape
    first, second = dtypes.split()
    a, b = (
        RNG.integers(0, 9, (*batch, *x)).astype(dtype)
        for x, dtype in (((m, k), first), ((k, n), second))
    )
    for x, y in ((a, b), (a, a.swapaxes(-1, -2))):
        c = np.empty((*batch, m, y.shape[-1]), np.result_type(x, y))
        multiply.multiply_exactly(x, y, c, is_optional=False)
        np.testing.assert_array_equal(c, x @ y)
    assert calls == [True, True]


@pytest.mark.parametrize(
    "shape", [(M, N, K), (N, M, K), (4000, 70, 50), (7, 150, 60, 33), (3, 5, 90, 80, 40)]
)
def test_the_product_is_right(shape, equals, calls):
    """Of any shape, order of memory and batch."""
    *batch, m, n, k = shape
    a, b = whole(*batch, m, k), whole(*batch, k, n)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    for order in ("C", "F"):
        out = np.zeros((*batch, m, n), np.float32, order=order)
        clgemm.matmul(a[..., ::-1, :], b, out=out)
        np.testing.assert_array_equal(out, a[..., ::-1, :] @ b)
    assert calls == 3 * [True]


def test_one_b_of_a_batch_and_an_overlapping_result(equals, calls):
    """A repeated matrix is sent to each by itself; operands that C overlaps are read first."""
    a, b = whole(7, 90, 64), whole(64, 80)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    deep = whole(5, 200, 3000), whole(3000, 300)  # whose B does not fit the device at once
    np.testing.assert_array_equal(clgemm.matmul(*deep), deep[0] @ deep[1])
    square = whole(300, 300)
    expected = square @ square.T
    clgemm.matmul(square, square.T, out=square)
    np.testing.assert_array_equal(square, expected)
    assert calls == 3 * [True]


def test_each_element_is_copied_once(equals, calls, monkeypatch):
    """A piece of B that is in pinned memory goes to all devices."""
    pool, copied = staging(equals[0]), []
    copy = pool.copy
    monkeypatch.setattr(pool, "copy", lambda x, y: (copied.append(x.size), copy(x, y)))
    for other in equals[1:]:
        monkeypatch.setattr(staging(other), "copy", None)
    np.testing.assert_array_equal(clgemm.matmul(a := whole(M, K), b := whole(K, N)), a @ b)
    assert sum(copied) == M * K + K * N + M * N
    assert calls == [True]


def test_the_bits_do_not_change(equals, calls):
    """From one product to the next, with real numbers."""
    a, b = (RNG.standard_normal(shape, np.float32) for shape in ((M, K), (K, N)))
    expected = clgemm.matmul(a, b)
    for _ in range(3):
        np.testing.assert_array_equal(clgemm.matmul(a, b), expected)
    assert calls == 4 * [True]


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_result_that_is_updated(order, equals, calls):
    """C is read and written once, in either order of memory."""
    a, b, c = whole(M, K), whole(K, N), np.array(whole(M, N), order=order)
    expected = 2 * (a @ b) - 3 * c
    assert clgemm.sgemm(2.0, a, b, -3.0, c, overwrite_c=1) is c
    np.testing.assert_array_equal(c, expected)
    assert calls == [True]


def test_operands_that_stay_and_other_devices_are_left_to_one(equals, every, calls, monkeypatch):
    """The first device computes what several equal ones cannot share."""
    a, b = whole(M, K), whole(K, N)
    with clgemm.resident(b):
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    other = clgemm.Device(every[0].cl_device, transfer=replace(TRANSFER, chunks=3))
    monkeypatch.setattr(named, "by_process", (every[0], other))
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    if every[0].shares_host_memory:  # others share by default
        monkeypatch.setattr(named, "by_process", (clgemm.Device(every[0].cl_device),) * 2)
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert calls == []


def test_small_products_and_device_arrays_stay_on_one_device(equals, calls, monkeypatch):
    """Small products, device arrays and products with a queue are not shared."""
    a, b = whole(40, 30), whole(30, 20)
    placed = [cl_array.to_device(equals[1].queue, x) for x in (a, b)]
    assert clgemm.matmul(*placed).queue == equals[1].queue
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b, queue=equals[1].queue), a @ b)
    monkeypatch.setattr(several, "LEAST_WORK", 2**40)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert calls == []


def plant(monkeypatch, *failing):
    """Let some devices refuse every kernel."""
    enqueue = Workspace.enqueue

    def refusing(space, *arguments, **keywords):
        if any(space.queue.context == device.context for device in failing):
            raise cl.RuntimeError("out of resources")
        return enqueue(space, *arguments, **keywords)

    monkeypatch.setattr(Workspace, "enqueue", refusing)


def test_if_one_device_fails_another_computes_the_product(equals, calls, monkeypatch, caplog):
    """Whichever fails, the result is right, the log says it, and pinned memory is given back."""
    a, b = whole(M, K), whole(K, N)
    pools = [staging(device) for device in equals]
    for number, device in enumerate(equals[:2]):
        with monkeypatch.context() as patch:
            plant(patch, device)
            np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
        assert len(caplog.records) == 2 - number  # the first one is tried alone, too
        assert "out of resources" in caplog.text
        caplog.clear()
        assert all(len(pool._free) == pool._made() for pool in pools)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert calls == [None, None, True]


def test_if_one_device_fails_another_updates_a_triangle(equals, monkeypatch, caplog):
    """A is sent to one device alone; if that fails, the other triangle stays as it was."""
    a, before = whole(M, K), whole(M, M)
    for device in (None, equals[0]):
        with monkeypatch.context() as patch:
            plant(patch, *([device] if device else []))
            found = clgemm.ssyrk(1.0, a, c=before.copy(order="F"), lower=1)
        lower = np.tri(M, dtype=bool)
        np.testing.assert_array_equal(found, np.where(lower, a @ a.T, before))
        assert ("out of resources" in caplog.text) == (device is not None)


def test_a_failure_that_cannot_be_repaired_is_raised(equals, calls, monkeypatch):
    """If all devices fail; and if one fails while C is updated."""
    a, b, c = whole(M, K), whole(K, N), whole(M, N)
    with monkeypatch.context() as patch:
        plant(patch, *equals)
        with pytest.raises(cl.RuntimeError, match="out of resources"):
            clgemm.matmul(a, b)
    with monkeypatch.context() as patch:
        plant(patch, equals[1])
        with pytest.raises(cl.RuntimeError, match="out of resources"):
            clgemm.sgemm(1.0, a, b, 1.0, c, overwrite_c=1)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)


def test_progress_is_told_and_may_stop_the_product(equals, calls, monkeypatch):
    """By the calling thread; what the callback raises comes out, and nothing is written later."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    a, b, told, c = whole(M, K), whole(K, N), [], np.zeros((M, N), np.float32)
    with clgemm.progress(lambda done, total: told.append((done, total))):
        clgemm.matmul(a, b, out=c)
    assert told[-1] == (M * N * K, M * N * K)
    assert len(told) > 2

    class Stop(BaseException):
        pass

    def stop(*_):
        raise Stop

    with clgemm.progress(stop), pytest.raises(Stop):
        clgemm.matmul(a, b, out=c)
    left = c.copy()
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    np.testing.assert_array_equal(c, left)
    assert calls == [True, None, True]


def test_threads_share_the_devices(equals, calls):
    """Several products at once, each of all devices."""
    a = whole(4, 300, 200)

    def product(i):
        return clgemm.matmul(a[i], a[i].T)

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(product, [0, 1, 2, 3] * 4))
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, a[i % 4] @ a[i % 4].T)
    assert calls == 16 * [True]


@pytest.mark.parametrize("value", [1.0, np.inf])
def test_a_result_is_known_to_be_finite_only_if_it_is(value, equals, calls):
    """Each device tells of its rows."""
    a, b = whole(M, K), whole(K, N)
    a[-1] = value
    b[0] = 1.0
    with watched() as seen, np.errstate(invalid="ignore"):
        result = clgemm.matmul(a, b)
        np.testing.assert_array_equal(result, a @ b)
    assert calls == [True]
    assert (seen.elements == result.size) == np.isfinite(result).all()


def test_devices_share_the_threads_that_copy(device):
    """Two devices use the same threads for copies."""
    own = [clgemm.Device(device.cl_device, transfer=TRANSFER) for _ in range(2)]
    first, second = (Copier(staging(each), True) for each in own)
    assert first._threads is second._threads is not None


def test_numpy_is_accelerated_by_all_of_them(equals, calls, monkeypatch):
    """Accelerated NumPy uses all chosen devices and reports them, and install refuses a list."""
    a, b = whole(M, K), whole(K, N)
    expected = a @ b
    with accel.enabled(threshold=0):
        np.testing.assert_array_equal(a @ b, expected)
        np.testing.assert_array_equal(np.dot(a, b), expected)
        assert accel.report().device == ", ".join(d.name for d in equals)
    assert calls == [True, True]
    monkeypatch.setattr("clgemm.hardware.choice.find_devices", lambda _: equals)
    with pytest.raises(ValueError, match="device='all' names several devices"):
        accel.install(device="all")


def test_info_lists_all_that_are_chosen(equals):
    """show_config lists all chosen devices."""
    chosen = clgemm.show_config("dicts")["Chosen device"]
    assert chosen["name"] == equals[0].name
    shared = chosen["large products of host arrays are shared with"]
    assert shared == {str(i): x.label for i, x in enumerate(equals[1:], 2)}


SCRIPT = """
import os, sys, threading
import numpy as np
import clgemm
from clgemm.hardware import choice
from clgemm.core.transfer import TransferConfig
from clgemm.transfer import several

first, config = clgemm.get_device(), TransferConfig(memory_bytes=2**24, threads=2)
choice.named.by_process = tuple(clgemm.Device(first.cl_device, transfer=config) for _ in range(2))
several.LEAST_WORK = 1
several.is_faster_shared = lambda *_: True
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


@pytest.mark.parametrize(
    ("shape", "depth", "copied", "faster"),
    [
        ((16384, 16384), 16384, 1e12, True),  # the devices are the limit
        ((16384, 16384), 16384, 1e10, False),  # the host is
        ((64, 4096, 4096), 4096, 1e10, False),
        ((64, 4096, 4096), 4096, 1e12, True),
        ((200_000, 200_000), 200_000, 1e10, True),
    ],
)
def test_devices_share_a_product_only_if_that_is_expected_to_be_faster(
    shape, depth, copied, faster
):
    """Two of 1e14 multiply-adds a second each, and so many elements that the host copies."""
    assert is_faster_shared(shape, depth, 2, 1e14, copied) == faster
    assert not is_faster_shared(shape, depth, 1, 1e14, copied)


# The commands.


@pytest.fixture
def two(device, monkeypatch):
    """Return the device twice, as two equal ones that are chosen."""
    made = tuple(clgemm.Device(device.cl_device) for _ in range(2))
    monkeypatch.setattr(named, "by_process", made)
    return made


def test_of_equal_devices_one_is_tuned(two):
    """The records of one device serve all equal ones, so the tuner takes the first."""
    assert tuning._distinct(two) == [two[0]]


def test_tune_shares_its_time_between_devices(two, monkeypatch):
    """tune calls itself for each kind of device, with its part of the minutes."""
    asked = []
    monkeypatch.setattr(tuning, "_distinct", lambda devices: list(devices))
    tune = tuning.tune

    def recorded(device, *, shapes, minutes, dtypes):
        asked.append((device, shapes, minutes, dtypes))
        return [device]

    monkeypatch.setattr(tuning, "tune", recorded)
    assert tune(shapes=[(8, 8, 8)], minutes=3, dtypes=("int8",)) == list(two)
    assert asked == [(each, [(8, 8, 8)], 1.5, ("int8",)) for each in two]


def test_the_benchmark_gives_products_of_host_arrays_to_all(two, monkeypatch):
    """clgemm's worker chooses every device that the command names; the first one is measured."""
    found = iter(two)
    monkeypatch.setattr(hardware_device, "find", lambda _: next(found))
    monkeypatch.setattr(choice, "find_devices", lambda *devices: devices)
    words = [word for each in two for word in hardware_device.identity(each)]
    assert Server("clgemm", words).device is two[0]
    assert clgemm.get_devices() == two


def test_dask_knows_a_list_of_devices(two, monkeypatch):
    """Each worker gets another one of the devices that CLGEMM_DEVICE lists."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    from clgemm.dask import devices as dask_devices

    monkeypatch.setattr(dask_devices, "find_devices", lambda _: two)
    assert dask_devices._named("0,1") == list(two)


def test_a_program_runs_on_all_devices_with_a_bar(device, tmp_path):
    """python -m clgemm.accel takes --device all and --progress."""
    if device is not clgemm.devices()[0]:
        pytest.skip("one program is enough")
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np, clgemm, os\n"
        "from clgemm.runtime import progress\n"
        "assert progress._callback.get() is not None\n"
        "a = np.ones((300, 300), 'f')\n"
        "assert ((a @ a) == 300).all()\n"
        "print(len(clgemm.get_devices()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "clgemm.accel", "--device", "all", "--progress", str(program)],
        env={**os.environ, "CLGEMM_THRESHOLD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{len(choice.find_devices('all'))}\n"
