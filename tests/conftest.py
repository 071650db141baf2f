"""Every device found is a parameter of the tests that need one; nothing stays on the host."""

from __future__ import annotations

from collections.abc import Iterator

import pyopencl as cl
import pytest
from hypothesis import HealthCheck, settings

import clgemm
from clgemm import workspace
from clgemm.device import devices
from clgemm.workspace import Workspace

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


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run every product on the device, and leave the user's cache alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLGEMM_THRESHOLD", "0")
        patch.setenv("CLGEMM_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("CLGEMM_DEVICE", raising=False)
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


@pytest.fixture(
    scope="session", params=devices(), ids=lambda d: f"{d.platform.split(',')[0]}-{d.name}"
)
def device(request: pytest.FixtureRequest) -> Iterator[clgemm.Device]:
    """Each OpenCL device in turn, chosen for the whole process."""
    clgemm.set_device(request.param)
    yield request.param
    clgemm.set_device(None)
