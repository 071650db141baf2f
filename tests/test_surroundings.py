"""Hostile surroundings: no memory, drivers that vanish, processes, threads, exits, debuggers.

Others have their tests where they belong: compilers that hang and devices that crash in
hardware/test_trial.py and tuning/test_trial.py, full disks in runtime/test_programs.py and
runtime/test_binaries.py, records that are cut or forged in records/test_record.py, verdicts in
hardware/test_trial.py, tuners side by side in tuning/test_trials.py, forks in
hardware/test_forks.py, interruptions in runtime/test_interrupts.py and runtime/test_waiting.py.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import platformdirs
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from injection import AT_ONCE
from strategies import integers

import clgemm
from clgemm.core.cache import release_contexts
from clgemm.hardware import device as hardware
from clgemm.hardware.device import Device, most_contexts, of_queue
from clgemm.runtime.workspace import Workspace

RNG = np.random.default_rng(27)
CHILD_SECONDS = 120


def child(program, *options, **variables):
    """A process that runs a program with clgemm, on the devices of this one."""
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=CHILD_SECONDS,
    )


@pytest.fixture
def fresh(device):
    """The device in a context of its own: nothing of it is compiled or allocated."""
    with clgemm.device(Device(device.cl_device)) as chosen:
        yield chosen


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("failing", [1, 2])
def test_a_device_that_runs_out_of_memory_leaves_no_trace(failing, order, fresh, monkeypatch):
    """The error is the driver's, the operands are whole, and the next product is right."""
    a, b, c = (integers(RNG, (150, 150)) for _ in range(3))
    before, real, asked = c.copy(), Workspace.allocate, []

    def allocate(self, size_bytes):
        asked.append(size_bytes)
        if len(asked) == failing:
            raise cl.MemoryError("clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE")
        return real(self, size_bytes)

    monkeypatch.setattr(Workspace, "allocate", allocate)
    # A's rows and B's columns are not neighbours: both are packed, to scratch memory.
    x, y = np.repeat(a, 2, axis=1)[:, ::2], np.repeat(b, 2, axis=0)[::2]
    try:
        result = clgemm.sgemm(1.0, x, y, 1.0, c, order=order)
    except (MemoryError, cl.MemoryError):
        assert len(asked) == failing
        np.testing.assert_array_equal(c, before)
        result = clgemm.sgemm(1.0, x, y, 1.0, c, order=order)
    else:  # this device needs less scratch memory than that
        assert len(asked) < failing
    np.testing.assert_array_equal(result, a @ b + c)


PRODUCT = """
import logging, os, sys, time
warnings = []
class Handler(logging.StreamHandler):
    def emit(self, record):
        warnings.append(record)
        super().emit(record)
logging.basicConfig(format="%(message)s", handlers=[Handler(sys.stderr)])
import numpy as np, clgemm
a = np.ones((1200, 1200), np.float32)
end = time.monotonic() + float(os.environ["SECONDS"])
while True:
    assert (clgemm.matmul(a, a) == 1200).all()
    if warnings or time.monotonic() > end:
        break
for _ in range(9):
    assert (clgemm.matmul(a, a) == 1200).all()
try:
    clgemm.sgemm(1.0, a, a)
except RuntimeError as error:
    print(error)
print(len(clgemm.devices()), "devices")
"""


def test_a_driver_that_disappears_between_two_processes_is_one_warning(tmp_path, monkeypatch):
    """What the cache holds of its devices does no harm: NumPy multiplies, and sgemm says why."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")  # it would let no product go to NumPy
    variables = {"CLGEMM_CACHE_DIR": str(tmp_path / "cache")}
    first = child(PRODUCT, SECONDS="0.1", **variables)
    assert first.stdout == f"{len(clgemm.devices())} devices\n", first.stderr
    gone = tmp_path / "vendors"
    gone.mkdir()
    (gone / "gone.icd").write_text("/nowhere/libgone.so\n")
    variables |= {"OCL_ICD_VENDORS": str(gone), "OPENCL_VENDOR_PATH": str(gone)}
    variables |= {"OCL_ICD_FILENAMES": "", "PYOPENCL_HOME": str(tmp_path)}
    second = child(PRODUCT, SECONDS="5", **variables)
    assert second.returncode == 0, second.stderr
    if second.stdout.endswith("\n0 devices\n"):  # else this loader has devices of its own
        assert second.stderr.count("NumPy multiplies") == 1, second.stderr
        assert "no OpenCL device" in second.stdout


def product_in_a_child(n):
    """The sum of a product on the device, in a child process."""
    a = np.ones((n, n), np.float32)
    return float(clgemm.sgemm(1.0, a, a).sum())


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_of_a_process_with_opencl_have_devices_of_their_own(method, device):
    """Spawned children and those of a fork server multiply, though the parent has opened OpenCL."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("this system has no fork server")
    product_in_a_child(20)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(product_in_a_child, 40).result(timeout=CHILD_SECONDS) == 40**3


LEAVING = """
import numpy as np, pyopencl as cl, pyopencl.array, clgemm
device = clgemm.get_device()
x = cl.array.to_device(device.queue, np.ones((700, 700), np.float32))
y = x
for _ in range(20):
    y = clgemm.matmul(y, x)
device.queue.flush()
print("leaves", flush=True)
"""


def test_the_interpreter_ends_with_work_in_flight(device):
    """Products that nobody waited for do not hold up the exit, and it is clean."""
    done = child(LEAVING, CLGEMM_DEVICE=device.name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaves\n", "")


@pytest.mark.parametrize("contexts", [1, 4])
def test_sixteen_threads_with_host_and_device_arrays(contexts, device):
    """They share queues with their own copies: results are right, and of the right context."""
    devices = [Device(device.cl_device) for _ in range(contexts)]
    devices += list(clgemm.devices()) if contexts > 1 else []
    host = [integers(RNG, (n, n)) for n in (30, 65, 130)]
    expected = [a @ a for a in host]

    def work(number):
        mine = devices[number % len(devices)]
        with clgemm.device(mine):
            for a, right in zip(host * 3, expected * 3, strict=True):
                if not np.array_equal(clgemm.sgemm(1.0, a, a), right):
                    return False
                x = cl_array.to_device(mine.queue, a)
                y = clgemm.matmul(x, x)
                if y.context != mine.context or not np.array_equal(y.get(), right):
                    return False
        return clgemm.get_device() is device

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


@pytest.mark.parametrize("is_own", [False, True], ids=["the user's", "a Device's own"])
def test_contexts_that_were_dropped_are_not_kept(is_own, device, monkeypatch):
    """No more live than the caches may hold, however many there were: a GPU's take its memory."""
    monkeypatch.setattr(hardware, "MOST_CONTEXTS", 8)
    a = np.ones((8, 8), np.float32)

    def used_and_dropped():
        if is_own:
            made = Device(device.cl_device, transfer=AT_ONCE)
            with clgemm.device(made):
                np.testing.assert_array_equal(clgemm.sgemm(1.0, a, a), 8)
            return weakref.ref(made)
        context = cl.Context([device.cl_device])  # Intel's queues do not keep it alive
        queue = cl.CommandQueue(context)
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, a, queue=queue), 8)
        return weakref.ref(of_queue(queue))

    most = most_contexts(device.cl_device)
    made = [used_and_dropped() for _ in range(most + 10)]
    assert sum(kept() is not None for kept in made) <= most


def test_what_is_in_use_outlives_the_contexts_that_are_released(device):
    """Devices, queues, prepared products and unfinished ones of contexts that are still used."""
    a = integers(RNG, (40, 40))
    own = Device(device.cl_device)
    context = cl.Context([device.cl_device])
    queue = cl.CommandQueue(context)
    x = cl_array.to_device(queue, a)
    with clgemm.device(own):
        prepared = clgemm.prepare(x, x)
        y = clgemm.matmul(x, x)
        for _ in range(2):
            release_contexts()
            z = clgemm.matmul(y, x)
            for repeated in (prepared(), clgemm.matmul(x, x), y):
                np.testing.assert_array_equal(repeated.get(), a @ a)
            np.testing.assert_array_equal(z.get(), a @ a @ a)
            np.testing.assert_array_equal(clgemm.matmul(a, a), a @ a)


DEBUGGED = """
import warnings
import numpy as np, pyopencl.array, clgemm
from clgemm import accel
# Drivers' compilers may greet; pyopencl's own warning of it is none of ours.
warnings.simplefilter("ignore", pyopencl.CompilerWarning)
a = np.ones((70, 70), np.float32)
for precision in ("strict", "float32", "fast"):
    assert (clgemm.sgemm(1.0, a, a, 1.0, a, precision=precision) == 71).all()
assert (clgemm.matmul(np.stack([a, a]), a[:, ::2]) == 70).all()
x = pyopencl.array.to_device(clgemm.get_device().queue, a)
assert (clgemm.dot(x, x).get() == 70).all()
with accel.enabled():
    assert (a @ a == 70).all()
assert accel.report().offloaded >= 0
clgemm.show_config("dicts")
print("done")
"""


def test_debug_builds_of_memory_and_of_python_say_nothing(device):
    """With PYTHONMALLOC=debug, -X dev and warnings as errors there is no word and no crash."""
    done = child(
        DEBUGGED, "-X", "dev", "-W", "error", PYTHONMALLOC="debug", CLGEMM_DEVICE=device.name
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.skipif(os.name != "posix", reason="sets HOME")
@pytest.mark.parametrize("damage", ["home is a file", "pyopencl's cache is no database"])
def test_no_place_for_caches_costs_time_only(damage, device, tmp_path):
    """The home folder cannot be written, or holds a damaged file: the device works."""
    home = tmp_path / "home"
    if damage == "home is a file":
        home.touch()
    else:
        folder = home / ".cache" / "pytools"
        folder.mkdir(parents=True)
        for each in Path(platformdirs.user_cache_dir("pytools", "pytools")).glob("*.sqlite"):
            (folder / each.name).write_bytes(b"this is no database" * 300)
    environment = os.environ | {"HOME": str(home), "CLGEMM_CACHE_DIR": str(tmp_path / "cache")}
    for variable in ("POCL_CACHE_DIR", "XDG_CACHE_HOME"):
        environment.pop(variable, None)
    code = f"import clgemm; clgemm.set_device({device.platform.partition(',')[0]!r}); "
    code += "print(clgemm.sgemm(1.0, [[2.0]], [[3.0]]))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "[[6.]]\n"), done.stderr
    assert "Traceback" not in done.stderr


EXHAUSTED = """
import contextlib, os, resource, time
import numpy as np, clgemm, clgemm.blas, clgemm.hardware.trial, clgemm.transfer.multiply
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
x, held = np.ones((70, 70), np.float32), []
with contextlib.suppress(OSError):
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
try:
    clgemm.sgemm(1.0, x, x)
except Exception:  # Python's own or the driver's, whoever needs a descriptor first
    print("failed")
for each in held:
    os.close(each)
deadline = time.monotonic() + 60
while True:
    try:
        assert (clgemm.sgemm(1.0, x, x) == 70).all()
        break
    except (MemoryError, RuntimeError):  # after a passing failure, it is left alone for a while
        assert time.monotonic() < deadline
        time.sleep(0.5)
print("done")
"""


@pytest.mark.skipif(os.name != "posix", reason="limits descriptors")
def test_without_descriptors_the_device_is_tried_again(tmp_path):
    """The first use has no file descriptor left; that is not for the process's life."""
    done = child(EXHAUSTED, CLGEMM_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "failed\ndone\n"), done.stderr
