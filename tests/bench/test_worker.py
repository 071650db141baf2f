"""Tests of the worker process and of the roofs that it measures."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest
from bench_workers import scripted

from clgemm.bench import peak
from clgemm.bench.cases import Case
from clgemm.bench.contenders import HOST
from clgemm.bench.rounds import Settings, Tournament, environment, worker_of
from clgemm.core.child import RequestError
from clgemm.hardware.choice import get_device
from clgemm.hardware.device import identity


def test_a_worker_times_and_judges(worker, tmp_path):
    """A worker times and checks a case, and survives an error."""
    case = Case("", 30, 20, 10).as_dict()
    with pytest.raises(RequestError, match="AttributeError"):
        worker.ask("turn", seconds=0)
    process_id = worker.process_id
    file = str(tmp_path / "reference")
    worker.ask("reference", case=case, file=file)
    assert worker.ask("prepare", case=case, mode=HOST) > 0
    assert worker.ask("turn", seconds=0.001) > 0
    error, worst = worker.ask("judge", file=file)
    assert 0 < error < 1e-5
    assert worst <= 1
    assert worker.ask("about")["compute_units"] >= 1
    assert worker.process_id == process_id


def test_runtimes_may_print():
    """Text that a runtime prints to a worker's standard output is not read as an answer."""
    noisy = (
        "import os; from clgemm.bench import worker\n"
        "worker.Server.about = lambda self: os.write(1, b'noise\\n')\n"
        "worker.main(['NumPy'])"
    )
    with scripted(noisy) as printing:
        assert printing.ask("about") == len("noise\n")


def test_a_wrong_product_is_found_out(tmp_path):
    """A contender whose products are wrong gets the verdict WRONG."""
    wrong = (
        "import sys, clgemm, numpy as np\n"
        "clgemm.matmul = lambda a, b, out: np.matmul(a[:, 1:], b[1:], out=out)\n"
        "from clgemm.bench import worker\n"
        "worker.main(sys.argv[1:])"
    )
    identified = identity(get_device())
    with scripted(wrong) as ours, worker_of("NumPy", identified, environment(1)) as numpy:
        ours.command += ["clgemm", *identified]
        fair = Tournament(
            {"clgemm": ours, "NumPy": numpy}, {HOST: ["clgemm", "NumPy"]}, Settings(2), tmp_path
        )
        results = fair.contest(Case("square", 40, 40, 40))
    assert [o.verdict for o in results[HOST]] == ["WRONG", ""]
    assert results[HOST][0].worst > 1


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
