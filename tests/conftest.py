"""Fixtures: each device that works is a parameter of the tests that need a device."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A job in the background of a shell ignores SIGINT, and its children would too. Workers of
# pytest-xdist may import this outside their main thread: they inherit what is set here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and "PYTEST_XDIST_WORKER" not in os.environ:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests leave the user's cache folder alone, and so does the check of devices below. The workers
# of pytest-xdist share one folder, so that devices are checked once.
_CACHE = None
if "PYTEST_XDIST_WORKER" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="clgemm-tests-")
    os.environ["CLGEMM_CACHE_DIR"] = _CACHE.name
for _variable in ("CLGEMM_DEVICE", "CLGEMM_PRECISION"):
    os.environ.pop(_variable, None)
os.environ["CLGEMM_THRESHOLD"] = "0"  # every product goes to the device, whatever its size
# The side of a product depends on it alone, as where no thread of NumPy's BLAS spins after another.
os.environ["OPENBLAS_THREAD_TIMEOUT"] = "4"

import pyopencl as cl
import pytest
from hypothesis import HealthCheck, settings

import clgemm
from clgemm import numpy_rules
from clgemm.core import cache
from clgemm.core.settings import named
from clgemm.hardware import trial
from clgemm.hardware.choice import devices, no_device
from clgemm.planning import planner
from clgemm.records import tuned
from clgemm.records.tuned import Findings
from clgemm.runtime import workspace
from clgemm.runtime.workspace import Workspace
from clgemm.transfer import call_cache

# The first also where clgemm is not installed.
pytest_plugins = ["pytest_clgemm", "pytester", "in_browser"]

if "oclgrind" in os.environ.get("LD_PRELOAD", ""):  # it looks into each instruction
    trial.JOB_SECONDS = 600.0
# Simulators and software GPUs take milliseconds a launch.
SLOW = any(name in d.name for d in devices() for name in ("llvmpipe", "Oclgrind"))

settings.register_profile(
    "clgemm",
    deadline=None,  # the first example of a kind compiles
    max_examples=10 if SLOW else int(os.environ.get("CLGEMM_TEST_EXAMPLES", "25")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("clgemm")


# Files that take longest, those first that wait for processes of the lowest priority. The workers
# of pytest-xdist begin with these, and end with short ones, at about the same time.
FIRST = (
    *("hardware/test_trial", "hardware/test_guard", "test_calibration", "test_surroundings"),
    *("accel/test_defaults", "accel/test_programs", "hardware/test_simulated", "test_docs"),
    *("accel/test_children", "test_foreign", "dask/test_plugin", "dask/test_faults"),
    *("bench/test_command", "runtime/test_interrupts", "testing/test_problems"),
    *("test_exact", "kernels/test_edges", "transfer/test_resident", "ladder/test_ladder"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Fail if there is no device, because then the suite would test nothing."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # `FIRST` says more than how many tests a file has
    config.addinivalue_line(
        "markers", "one_device: of processes, which are the same on each device: the first has it"
    )
    config.addinivalue_line("markers", "every_device: has them all, in a file of `one_device`")
    if not devices():
        raise pytest.UsageError(str(no_device()))
    if config.option.clgemm_device is None:
        config.option.clgemm_device = "all"  # names them in the header


@pytest.hookimpl(trylast=True)  # after pytest's own order, by device
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests with the marker `one_device` of all devices but the first; sort files."""
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    first: dict[str, object] = {}  # the device of each test
    for item in items:
        device = getattr(getattr(item, "callspec", None), "params", {}).get("opencl_device")
        marks = {mark.name for mark in item.iter_markers()}
        is_one = device is not None and "one_device" in marks and "every_device" not in marks
        name = item.nodeid.partition("[")[0]
        is_kept = not is_one or first.setdefault(name, device) == device
        (kept if is_kept else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    if "PYTEST_XDIST_WORKER" in os.environ:
        sizes = Counter(item.path for item in items)
        firsts = {Path(__file__).parent / f"{name}.py": i for i, name in enumerate(FIRST)}
        assert all(path.exists() for path in firsts)
        items.sort(key=lambda item: (firsts.get(item.path, len(FIRST)), -sizes[item.path]))


def pytest_collection() -> None:
    """Collect no garbage among thousands of tests while they are made: it takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the tests out of what `gc.collect`, which some tests call, looks through each time."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why tests were skipped: a line for each reason, whatever the device."""
    found: Counter[str] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2].removeprefix("Skipped: ").partition("\n")[0]
        for each in devices():
            reason = reason.replace(each.name, "the device")
        found[reason] += 1
    for reason, count in found.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason[:120]}")
    if all(planner.instructions_of(each) != "wgmma" for each in devices()):
        terminalreporter.write_line(
            "no device has wgmma: tests/kernels/tensor_core leaves out most"
        )


def pytest_unconfigure() -> None:
    """Remove the cache folder."""
    if _CACHE is not None:
        _CACHE.cleanup()


@pytest.fixture(scope="session", autouse=True)
def unshared_scratch() -> Iterator[None]:
    """Give each call on Oclgrind memory of its own.

    It takes what kernels write to memory that was used before for uninitialised.
    """
    held: list[cl.Buffer] = []

    def allocate(space: Workspace, size_bytes: int) -> cl.Buffer:
        held.append(cl.Buffer(space.queue.context, cl.mem_flags.READ_WRITE, size_bytes))
        return held[-1]

    with pytest.MonkeyPatch.context() as patch:
        if any("Oclgrind" in d.name for d in devices()):
            patch.setattr(Workspace, "allocate", allocate)
            patch.setattr(workspace, "SMALL_SCRATCH_BYTES", -1)
        yield


@pytest.fixture(autouse=True)
def chosen_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore after each test the device that was chosen before it."""
    monkeypatch.setattr(named, "by_process", named.by_process)


@pytest.fixture(scope="session")
def device(opencl_device: clgemm.Device) -> clgemm.Device:
    """Return each OpenCL device in turn, chosen for the whole process."""
    return opencl_device


@pytest.fixture
def every_size(monkeypatch):
    """Products of any size may go to the device, in every dtype."""
    monkeypatch.setattr(numpy_rules, "LEAST_SIZE", 0)
    monkeypatch.setattr(numpy_rules, "LEAST_WORK", 0)
    for dtype in (*numpy_rules.EXACT, *numpy_rules.OPERANDS):
        monkeypatch.setitem(numpy_rules.LEAST_SIZES, dtype, 0)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A cache folder of its own, and no shipped records but those given."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))

    def ship(*records):
        monkeypatch.setattr(tuned, "shipped", lambda: Findings(records, ()))
        cache.forget_plans()

    ship()
    tuned.forget()
    yield ship
    monkeypatch.undo()
    tuned.forget()
    cache.forget_plans()


@pytest.fixture
def planned(monkeypatch):
    """Return the list of problems that are planned during a test, with an empty call cache."""
    calls, plan = [], planner.plan_of

    def counting(*arguments):
        calls.append(arguments)
        return plan(*arguments)

    monkeypatch.setattr(planner, "plan_of", counting)
    monkeypatch.setattr(call_cache, "_calls", {})
    return calls
