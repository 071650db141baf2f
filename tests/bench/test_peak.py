"""Tests of the measurement of a device's roofs."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from clgemm.bench import peak


@pytest.mark.parametrize("width", [1, 4, 8])
def test_the_peaks_loop_makes_every_step(device, width):
    """peak.cl makes every step: with factor and term 1, each element counts the steps."""
    (items, group), chains = (6, 1) if device.kind == "CPU" else (8, 4), 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peak, "_items", lambda _: (items, group))
        kernel = peak._kernel(device, "peak", {"WIDTH": width, "CHAINS": chains, "FMA": 0})
    out = cl.Buffer(device.context, cl.mem_flags.WRITE_ONLY, 4 * items)
    kernel.set_args(np.int32(7), np.float32(1), np.float32(1), out)
    peak._seconds(device.queue, kernel, (items, group))
    counted = np.empty(items, np.float32)
    cl.enqueue_copy(device.queue, counted, out)
    expected = [sum(width * (item + chain + 7) for chain in range(chains)) for item in range(items)]
    np.testing.assert_array_equal(counted, expected)


def test_roofs_are_measured(device, monkeypatch):
    """measure returns figures above 0 and names the variants that fail."""
    monkeypatch.setattr(peak, "LONG_S", 0)
    monkeypatch.setattr(peak, "STREAM_BYTES", 2**16)
    monkeypatch.setattr(peak, "CACHED", 0)
    monkeypatch.setattr(peak, "_items", lambda _: (64, 1))
    monkeypatch.setattr(
        peak, "peak_variants", lambda _: [peak.PeakVariant(4, 8), peak.PeakVariant(3, 8)]
    )
    roofs = peak.measure(device)
    assert roofs["gflops"] > 0
    assert roofs["bandwidth_gbps"] > 0
    assert (roofs["width"], roofs["chains"]) == (4, 8)
    (failure,) = roofs["failures"]
    assert "PeakVariant(width=3, chains=8)" in failure
