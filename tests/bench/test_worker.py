"""Tests of the worker process, which times and checks one contender."""

from __future__ import annotations

import pytest
from bench_workers import scripted

from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, ROUTED
from clgemm.bench.pipe import RequestError, Worker, environment, own_environment
from clgemm.bench.rounds import Settings, Tournament
from clgemm.hardware.choice import get_device
from clgemm.hardware.identity import identity


def test_a_worker_times_and_judges(worker, tmp_path):
    """A worker times and checks a case, and survives an error."""
    case = Case("", 30, 20, 10).as_dict()
    with pytest.raises(RequestError, match="AttributeError"):
        worker.ask("turn", seconds=0)
    process_id = worker.process_id
    file = str(tmp_path / "reference.npy")
    worker.ask("reference", case=case, file=file)
    assert worker.ask("prepare", case=case, mode=HOST) > 0
    assert worker.ask("turn", seconds=0.001) > 0
    error, worst = worker.ask("judge", file=file)
    assert 0 < error < 1e-5
    assert worst <= 1
    assert worker.ask("about")["compute_units"] >= 1
    assert worker.process_id == process_id


@pytest.mark.parametrize(("threshold", "side"), [("0", DEVICE), ("1e9", HOST)])
def test_the_side_of_a_product_is_told(threshold, side, monkeypatch):
    """The side that clgemm's matmul has chosen, here by the environment."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", threshold)
    variables = own_environment(ROUTED, environment(2))
    with Worker(ROUTED, identity(get_device()), variables) as routed:
        routed.ask("prepare", case=Case("", 30, 20, 10).as_dict(), mode=HOST)
        assert routed.ask("side") == side


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
    with scripted(wrong) as ours, Worker("NumPy", identified, environment(1)) as numpy:
        ours.command += ["clgemm", *identified]
        fair = Tournament({"clgemm": ours, "NumPy": numpy}, ["NumPy"], Settings(2), tmp_path)
        results = fair.contest(Case("square", 40, 40, 40))
    assert [o.verdict for o in results[HOST]] == ["WRONG", ""]
    assert results[HOST][0].worst > 1
