"""Fixtures for the tests of transfers."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from staged import TINY

import clgemm
from clgemm.hardware.device import Device
from clgemm.runtime import digests, protection, write_tracking
from clgemm.transfer import resident, single_transfer, tiles


@pytest.fixture(scope="module")
def every_staged(request, device):
    """Return a device for each of a module's CONFIGS, as if it had memory of its own."""
    configs = getattr(request.module, "CONFIGS", {"tiles": TINY})
    return {name: Device(device.cl_device, transfer=config) for name, config in configs.items()}


@pytest.fixture
def tiled(every_staged):
    """Choose the device whose products come in tiles."""
    with clgemm.device(every_staged["tiles"]) as chosen:
        yield chosen


@pytest.fixture(scope="module")
def small_pieces():
    """Cut transfers as those of large matrices are, and let threads compare small arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "SMALLEST_PIECE_BYTES", 512)
        patch.setattr(single_transfer, "SMALLEST_PIECE_BYTES", 512)
        patch.setattr(resident, "PIECE", 1000)
        patch.setattr(digests, "LEAST_THREADED", 2)
        yield


@pytest.fixture
def nothing_stays():
    """Assert that a test leaves neither copies nor protected arrays; changes must be told of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    assert not protection._guards
    assert not resident._regions
    assert not any(resident._copies.values())
    if write_tracking._live:  # a cycle may hold it
        gc.collect()
    assert not write_tracking._live


@pytest.fixture(params=["pages", "digests"])
def found_by(request, monkeypatch):
    """How changes are found: the system tells written pages, or digests are compared."""
    if request.param == "pages":
        monkeypatch.setattr(write_tracking, "LEAST_BYTES", 1)
        if write_tracking.track(np.ones(1, np.float32)) is None:
            pytest.skip("this system does not track writes to memory")
    else:
        monkeypatch.setattr(write_tracking, "LEAST_BYTES", 2**62)
    return request.param


@pytest.fixture
def sent(monkeypatch):
    """Return the bytes of each transfer from the host to a device."""
    sizes, enqueue_copy = [], cl.enqueue_copy

    def counted(queue, target, source, **keywords):
        if isinstance(source, np.ndarray):
            sizes.append(source.nbytes)
        return enqueue_copy(queue, target, source, **keywords)

    monkeypatch.setattr(cl, "enqueue_copy", counted)
    monkeypatch.setattr("clgemm.runtime.enqueueing._write", None)  # so that pyopencl is called
    return sizes


@pytest.fixture(params=["host", "device"])
def placed(request, device):
    """Return a function that puts an array on the host or on the device."""
    if request.param == "host":
        if not device.shares_host_memory:
            pytest.skip("what goes through transfers is planned each time")
        return lambda x: x
    return lambda x: cl_array.to_device(device.queue, x)
