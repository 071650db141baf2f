"""Symmetric results of host arrays that go through transfers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from staged import TINY

import clgemm
from clgemm.runtime.transfer import mirror, pipeline


@pytest.fixture
def mirrored(monkeypatch):
    """The results that the host makes symmetric."""
    found = []

    def recording(c, staging):
        found.append(c.shape)
        mirror.mirror(c, staging)

    monkeypatch.setattr(pipeline, "mirror", recording)
    return found


@pytest.mark.parametrize(("memory_bytes", "by_host"), [(2**18, True), (2**28, False)])
@pytest.mark.parametrize("shape", [(300, 200), (5, 90, 80)])
def test_the_host_mirrors_only_what_comes_in_parts(
    device, mirrored, monkeypatch, memory_bytes, by_host, shape
):
    """A result that fits into the device's memory is made symmetric there."""
    monkeypatch.setattr(pipeline, "plan_at_once", lambda *_: None)
    config = replace(TINY, memory_bytes=memory_bytes)
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    with clgemm.device(clgemm.Device(device.cl_device, transfer=config)):
        found = clgemm.matmul(x, x.swapaxes(-1, -2))
    np.testing.assert_array_equal(found, found.swapaxes(-1, -2))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, wide @ wide.swapaxes(-1, -2), rtol=1e-4, atol=1e-4)
    if len(shape) == 2:
        assert bool(mirrored) is by_host


@pytest.mark.parametrize("threaded_bytes", [0, 2**40])
def test_a_batch_is_mirrored_by_threads_or_without(device, monkeypatch, threaded_bytes):
    """Blocks, their edges and corners."""
    monkeypatch.setattr(mirror, "BLOCK", 16)
    config = replace(TINY, threaded_bytes=threaded_bytes)
    staging = pipeline.Staging(device, config)
    for given in (staging, None):
        c = np.random.default_rng(3).standard_normal((3, 70, 70)).astype(np.float32)
        expected = np.triu(c) + np.triu(c, 1).swapaxes(-1, -2)
        mirror.mirror(c, given)
        np.testing.assert_array_equal(c, expected)
