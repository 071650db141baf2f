"""Tests of the rounds in which contenders take turns, of their processes, figures and tables."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import pyopencl as cl
import pytest
from bench_results import CUBE, fake_report, outcome
from bench_workers import gone, scripted

from clgemm.bench import peak, report
from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, against
from clgemm.bench.rounds import Settings, Spread, Tournament, environment, worker_of
from clgemm.core.child import ChildDiedError, RequestError
from clgemm.hardware.choice import get_device
from clgemm.hardware.device import identity


class Scripted:
    """A stand-in for a worker with given times and errors, which may die."""

    def __init__(self, seconds=1.0, worst=0.1, dies_at="", alive=True):
        self.seconds, self.worst, self.dies_at, self.alive = seconds, worst, dies_at, alive
        self.asked: list[str] = []

    def ask(self, request, **_):
        self.asked.append(request)
        if request == self.dies_at:
            raise ChildDiedError("process died")
        return {"turn": self.seconds, "judge": [1e-7, self.worst]}.get(request)


def tournament(tmp_path, settings=None, **contestants: Scripted) -> Tournament:
    """Return a tournament of stand-ins."""
    settings = settings or Settings(rounds=4)
    peers = [name for name in contestants if name != "clgemm"]
    return Tournament(contestants, against(peers), settings, tmp_path)


def test_contenders_take_turns(tmp_path):
    """Contenders take turns, and then their results are checked and their operands released."""
    ours, numpy, clblast = Scripted(2), Scripted(3), Scripted(8)
    results = tournament(tmp_path, clgemm=ours, NumPy=numpy, CLBlast=clblast).contest(CUBE)
    assert [o.contender for o in results[HOST]] == ["clgemm", "NumPy"]
    assert [o.contender for o in results[DEVICE]] == ["clgemm", "CLBlast"]
    assert results[HOST][0].ratio_to(results[HOST][1]) == (1.5, 1.5, 1.5)
    assert results[DEVICE][0].ratio_to(results[DEVICE][1]) == (4, 4, 4)
    assert clblast.asked == ["prepare", *4 * ["turn"], "judge", "release"]
    assert numpy.asked == ["reference", *clblast.asked]


@pytest.mark.parametrize("step", ["prepare", "turn", "judge"])
def test_a_death_is_an_outcome(tmp_path, step):
    """A worker's death is an outcome without a ratio, and the other contender goes on."""
    results = tournament(tmp_path, clgemm=Scripted(dies_at=step), NumPy=Scripted()).contest(CUBE)
    ours, numpy = results[HOST]
    assert ours.trouble == "process died"
    assert numpy.ok
    assert ours.ratio_to(numpy) is None


def test_without_a_reference_nothing_is_timed(tmp_path):
    """Without a reference nothing is timed, since no result could be checked."""
    numpy, ours = Scripted(dies_at="reference"), Scripted()
    results = tournament(tmp_path, clgemm=ours, NumPy=numpy).contest(CUBE)
    assert all("no float64 reference" in o.trouble for o in results[HOST] + results[DEVICE])
    assert "turn" not in ours.asked


def test_what_takes_too_long_is_skipped_and_said(tmp_path):
    """A slow peer is skipped by its last case's speed; if clgemm is slow, the case is skipped."""
    settings = Settings(budget_s=10)
    slow = tournament(
        tmp_path, settings, clgemm=Scripted(0.1), NumPy=Scripted(), CLBlast=Scripted(2)
    )
    slow.contest(CUBE)
    twice = slow.contest(Case("square", 8, 8, 16))
    assert twice[HOST][1].ok
    assert twice[DEVICE][1].trouble == (
        "skipped: CLBlast would take 16 s, more than the budget of 10 s"
    )
    huge = slow.contest(Case("square", 80, 80, 80))
    assert all(o.skipped for o in huge[HOST] + huge[DEVICE])


def test_a_reference_that_takes_too_long_is_said(tmp_path):
    """A case is skipped if its reference would take too long, and the outcome says so."""
    slow = tournament(tmp_path, Settings(budget_s=10), clgemm=Scripted(0.001), NumPy=Scripted(2))
    slow.contest(CUBE)
    ours, _ = slow.contest(Case("square", 8, 8, 24))[HOST]
    assert ours.trouble == (
        "skipped: the float64 reference would take 18 s, more than the budget of 10 s"
    )


def test_the_ratio_is_the_median_of_the_rounds():
    """The ratio is the median of the rounds' ratios, not the ratio of the medians."""
    ours, theirs = outcome(rounds_s=(1, 3, 3)), outcome("NumPy", (2, 2, 9))
    assert ours.ratio_to(theirs) == pytest.approx((2, 2 / 3, 3))
    assert ours.time_s == Spread(3, 1, 3)
    assert ours.gflops == CUBE.flops / 3 / 1e9


def test_unequal_rounds_are_refused():
    """Ratios of unequal numbers of rounds raise ValueError."""
    with pytest.raises(ValueError, match="longer"):
        outcome(rounds_s=(1, 2)).ratio_to(outcome("NumPy", (1, 2, 3)))


def test_a_killed_worker_is_reported_and_replaced(worker):
    """The error names the signal that killed a worker, and the next request starts another."""
    worker.ask("about")
    killed = worker.process_id
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(ChildDiedError, match=r"clgemm's process died \(signal SIGKILL\)"):
        worker.ask("about")
    assert gone(killed)
    assert worker.ask("about")
    assert worker.process_id != killed


def test_a_dying_workers_last_words_are_kept():
    """The error for a worker that dies has the line in which it names the error."""
    words = "import sys; print('LLVM ERROR: Cannot select', file=sys.stderr); sys.exit(3)"
    with scripted(words) as dying, pytest.raises(ChildDiedError) as death:
        dying.ask("about")
    assert str(death.value) == ("clgemm's process died (exit status 3): LLVM ERROR: Cannot select")


def test_no_child_is_left():
    """A worker's process ends with its block, also after an interruption in a long call."""
    with worker_of("NumPy", ["", "", "0"], environment(1)) as counting:
        counting.ask("about")
        first = counting.process_id
    assert gone(first)
    begin = time.monotonic()
    sleeping = scripted("import time; time.sleep(600)")
    second = sleeping._started().pid
    with pytest.raises(KeyboardInterrupt), sleeping:
        raise KeyboardInterrupt
    assert gone(second)
    assert time.monotonic() - begin < 60  # not the ten minutes


@pytest.mark.parametrize(
    ("values", "verdict", "trouble"),
    [
        ({"worst": 1.5}, "WRONG", "an element's error is 1.5 times the bound of rounding errors"),
        ({"worst": float("nan")}, "WRONG", "an element's error is nan times"),
        ({"failure": "boom"}, "failed", "boom"),
        ({"failure": "skipped: too long"}, "skipped", "skipped: too long"),
        ({"rounds_s": ()}, "failed", "was not timed"),
    ],
)
def test_bad_results_are_no_speed(values, verdict, trouble, capsys):
    """A bad result has no speed and no ratio, in the table and in the JSON."""
    bad, good = outcome(**values), outcome("NumPy")
    assert (bad.ok, bad.verdict, bad.gflops) == (False, verdict, 0)
    assert trouble in bad.trouble
    assert bad.ratio_to(good) is None
    assert good.ratio_to(bad) is None
    run = fake_report([(CUBE, {HOST: [bad, good]})])
    assert run.ok == (verdict == "skipped")
    report.print_report(run)
    printed = capsys.readouterr().out
    assert verdict in printed
    assert trouble in printed
    ours, theirs = json.loads(report.as_json(run))["cases"][0][HOST]
    assert (ours["correct"], ours["gflops"], ours["of_peak"]) == (False, None, None)
    assert trouble in ours["failure"]
    assert theirs["clgemm_is_faster_by"] is None


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
        "import os; from clgemm.bench import rounds\n"
        "rounds.Server.about = lambda self: os.write(1, b'noise\\n')\n"
        "rounds.main(['NumPy'])"
    )
    with scripted(noisy) as printing:
        assert printing.ask("about") == len("noise\n")


def test_a_wrong_product_is_found_out(tmp_path):
    """A contender whose products are wrong gets the verdict WRONG."""
    wrong = (
        "import sys, clgemm, numpy as np\n"
        "clgemm.matmul = lambda a, b, out: np.matmul(a[:, 1:], b[1:], out=out)\n"
        "from clgemm.bench import rounds\n"
        "rounds.main(sys.argv[1:])"
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
