"""Tests of the choice of a device."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyopencl as cl
import pytest

import clgemm
from clgemm.hardware.choice import find_device


@pytest.fixture(autouse=True)
def default_device(monkeypatch):
    """Start each test with the default device and restore it afterwards."""
    monkeypatch.delenv("CLGEMM_DEVICE", raising=False)
    clgemm.set_device(None)
    yield
    clgemm.set_device(None)


def test_the_default_is_the_first_device():
    """The default device is the first of devices(), which lists the fastest first."""
    assert clgemm.get_device() is clgemm.devices()[0]


def test_devices_are_named_by_position_kind_or_part_of_a_name():
    """A position, a kind, or a part of a name in any case names a device."""
    first = clgemm.devices()[0]
    for spec in (0, "0", first.name, first.name[3:9].upper(), first.platform, first.kind, first):
        assert find_device(spec) is first
    assert find_device(first.cl_device) is first


def test_contexts_and_queues_name_devices():
    """A context or a queue names its device, which then uses that context."""
    first = clgemm.devices()[0]
    context = cl.Context([first.cl_device])
    assert find_device(context).context == context
    queue = cl.CommandQueue(context)
    assert find_device(queue).context == context
    assert find_device(queue) is find_device(context)


@pytest.mark.parametrize("spec", ["no such device", "", "99", 99])
def test_a_name_of_nothing_lists_what_there_is(spec):
    """The error for a name of no device lists the devices."""
    with pytest.raises(ValueError, match="names no OpenCL device; there is 0: ") as error:
        find_device(spec)
    assert clgemm.devices()[0].name in str(error.value)


def test_other_types_are_refused():
    """A spec of another type, such as a float, raises TypeError."""
    with pytest.raises(TypeError, match="not float"):
        find_device(1.5)


def test_the_environment_names_the_default(monkeypatch):
    """CLGEMM_DEVICE names the default device, and the error for a wrong name lists the devices."""
    monkeypatch.setenv("CLGEMM_DEVICE", "0")
    assert clgemm.get_device() is clgemm.devices()[0]
    monkeypatch.setenv("CLGEMM_DEVICE", "nothing")
    with pytest.raises(
        ValueError, match="CLGEMM_DEVICE='nothing' names no OpenCL device; there is 0: "
    ):
        clgemm.get_device()
    with pytest.raises(ValueError, match="CLGEMM_DEVICE='nothing'"):
        clgemm.sgemm(1.0, [[1.0]], [[1.0]])


def test_device_scopes_nest_and_restore():
    """device(...) nests and restores the outer device, as a block and as a decorator."""
    first = clgemm.devices()[0]
    other = clgemm.Device(first.cl_device)
    with clgemm.device(other) as chosen:
        assert chosen is other
        assert clgemm.get_device() is other
        with contextlib.suppress(KeyError), clgemm.device(first):
            assert clgemm.get_device() is first
            raise KeyError
        assert clgemm.get_device() is other
    assert clgemm.get_device() is first

    @clgemm.device(other)
    def inside(depth: int) -> clgemm.Device:
        return inside(depth - 1) if depth else clgemm.get_device()

    assert inside(2) is other
    assert clgemm.get_device() is first


def test_set_device_holds_in_every_thread_and_a_scope_in_its_own():
    """set_device holds in every thread, and a device(...) block only in its own."""
    first = clgemm.devices()[0]
    everywhere, here = clgemm.Device(first.cl_device), clgemm.Device(first.cl_device)
    clgemm.set_device(everywhere)
    seen = []
    with clgemm.device(here):
        thread = threading.Thread(target=lambda: seen.append(clgemm.get_device()))
        thread.start()
        thread.join()
        assert clgemm.get_device() is here
    assert seen == [everywhere]
    with pytest.raises(ValueError, match="names no"):
        clgemm.set_device("nothing")
    assert clgemm.get_device() is everywhere


def test_without_a_platform_the_error_says_what_helps():
    """Without an OpenCL platform, sgemm raises an error that says what helps."""
    code = """
import pyopencl, clgemm, numpy as np
def get_platforms():
    raise pyopencl.LogicError("PLATFORM_NOT_FOUND_KHR")
pyopencl.get_platforms = get_platforms
assert clgemm.devices() == ()
small = np.ones((2, 2), np.float32)
assert (clgemm.dot(small, small) == 2).all()  # the host's BLAS needs no device
clgemm.show_config()
try:
    clgemm.sgemm(1.0, small, small)
except RuntimeError as error:
    assert "What helps: " in str(error), error
else:
    raise AssertionError("no error")
"""
    environment = {k: v for k, v in os.environ.items() if k != "CLGEMM_THRESHOLD"}
    paths = [str(Path(clgemm.__file__).parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
