"""Fixtures: each device that works is a parameter of the tests that need a device."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

# The tests leave the user's cache folder alone, and so does the check of devices below. The workers
# of pytest-xdist share one folder, so that devices are checked once.
_CACHE = None
if "PYTEST_XDIST_WORKER" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="clgemm-tests-")
    os.environ["CLGEMM_CACHE_DIR"] = _CACHE.name
os.environ.pop("CLGEMM_DEVICE", None)

import pyopencl as cl
import pytest
from hypothesis import HealthCheck, settings

import clgemm
from clgemm.hardware import choice
from clgemm.hardware.choice import devices, left_out, no_device
from clgemm.runtime import workspace
from clgemm.runtime.workspace import Workspace

# Simulators and software GPUs take milliseconds a launch.
SLOW = any(name in d.name for d in devices() for name in ("llvmpipe", "Oclgrind"))

settings.register_profile(
    "clgemm",
    deadline=None,  # the first example of a kind compiles
    max_examples=10 if SLOW else 60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("clgemm")


def pytest_configure() -> None:
    """Fail if there is no device, because then the suite would test nothing."""
    if not devices():
        raise pytest.UsageError(str(no_device()))


def pytest_report_header() -> list[str]:
    """Name the devices that are tested, and those that are left out."""
    lines = [f"OpenCL device: {d.label}" for d in devices()]
    return lines + [f"left out: {d.label}: {why}" for d, why in left_out().items()]


def pytest_unconfigure() -> None:
    """Remove the cache folder."""
    if _CACHE is not None:
        _CACHE.cleanup()


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[None]:
    """Send every product to the device, whatever its size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLGEMM_THRESHOLD", "0")
        patch.delenv("CLGEMM_PRECISION", raising=False)
        yield


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
    monkeypatch.setattr(choice, "_chosen", choice._chosen)


@pytest.fixture(
    scope="session", params=devices(), ids=lambda d: f"{d.platform.split(',')[0]}-{d.name}"
)
def device(request: pytest.FixtureRequest) -> Iterator[clgemm.Device]:
    """Return each OpenCL device in turn, chosen for the whole process."""
    clgemm.set_device(request.param)
    yield request.param
    clgemm.set_device(None)
