"""Tests of ``python -m clgemm bench``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.__main__ import main
from clgemm.bench import command, contenders, operands, peak, plot, report, rounds, startup
from clgemm.bench.cases import LAYOUTS, Case, default_cases, parse_shapes, quick_cases
from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.figures import Outcome, Spread, ratios, spread
from clgemm.bench.pipe import RequestError, Worker, WorkerDiedError, environment
from clgemm.bench.rounds import Settings, Tournament
from clgemm.hardware.choice import devices, get_device
from clgemm.hardware.identity import find, identity

SIMULATED = any(name in d.name for d in devices() for name in ("llvmpipe", "Oclgrind"))
runs_whole = pytest.mark.skipif(SIMULATED, reason="a simulator takes hours over the peak")
CUBE = Case("square", 8, 8, 8)


def outcome(name: str = "clgemm", rounds_s: tuple[float, ...] = (1.0,), **values) -> Outcome:
    """Return a right outcome, with some of its values replaced."""
    return Outcome(name, CUBE, list(rounds_s), **{"error": 1e-7, "worst": 0.1} | values)


# Figures


def test_the_ratio_is_the_median_of_the_rounds():
    """The ratio is the median of the rounds' ratios, not the ratio of the medians."""
    ours, theirs = outcome(rounds_s=(1, 3, 3)), outcome("NumPy", (2, 2, 9))
    assert ratios(ours.rounds_s, theirs.rounds_s) == pytest.approx([2, 2 / 3, 3])
    assert ours.ratio_to(theirs) == pytest.approx((2, 2 / 3, 3))
    assert ours.time_s == Spread(3, 1, 3)
    assert ours.gflops == CUBE.flops / 3 / 1e9


def test_figures_are_refused():
    """A spread of no figures and ratios of unequal numbers of rounds raise ValueError."""
    with pytest.raises(ValueError, match="no figures"):
        spread([])
    with pytest.raises(ValueError, match="longer"):
        ratios([1, 2], [1, 2, 3])


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


def fake_report(results) -> report.Report:
    """Return a report of invented results."""
    device = {"name": "D", "kind": "CPU", "platform": "P", "driver": "1", "compute_units": 2}
    machine = {
        "device": device,
        "threads": 2,
        "peers": {"NumPy": "2"},
        "clgemm": "0",
        "python": "3",
    }
    roofs = {"gflops": 1e-6, "bandwidth_gbps": 1e-6, "failures": []}
    return report.Report({**machine, "date": "2026-01-01T00:00:00"}, roofs, results)


# Cases and operands


def test_shapes_are_parsed():
    """An argument of squares, products and batches gives their cases."""
    square, product, stack = parse_shapes("1024, 1000x777x3000,100x1x2x3")
    assert square == Case("square", 1024, 1024, 1024)
    assert product == Case("rectangular", 1000, 777, 3000)
    assert stack == Case("batch", 1, 2, 3, batch=100)
    assert [c.label for c in (square, product, stack)] == ["1024", "1000x777x3000", "100 of 1x2x3"]


@pytest.mark.parametrize("text", ["", "12x12", "0", "5x0x5", "a", "-3", "1.5", "1x2x3x4x5", "8,,8"])
def test_bad_shapes_are_named(text):
    """The error for a bad shape names it."""
    with pytest.raises(ValueError, match="is not a shape"):
        parse_shapes(text)


def test_cases_are_refused():
    """The error for a bad case names the parameter and its value."""
    with pytest.raises(ValueError, match="k=0 is less than 1"):
        Case("square", 1, 1, 0)
    with pytest.raises(ValueError, match="layout_b='Q' is not one of"):
        Case("square", 1, 1, 1, "N", "Q")


def test_work_and_traffic_are_counted():
    """The bytes count a shared B once, and the operations count it for each A."""
    stack, shared = (Case("batch", 2, 3, 5, batch=7, shared_b=shared) for shared in (False, True))
    assert stack.flops == shared.flops == 2 * 2 * 3 * 5 * 7
    assert stack.size_bytes == 4 * 7 * (10 + 15 + 6)
    assert shared.size_bytes == 4 * (7 * (10 + 6) + 15)
    assert shared.intensity == shared.flops / shared.size_bytes


def test_the_default_cases_are_those_promised():
    """The default cases cover squares, layouts, skinny and deep shapes and batches, none twice."""
    cases = default_cases()
    assert len(set(cases)) == len(cases)
    assert {c.m for c in cases if c.group == "square"} == {2**p for p in range(6, 14)}
    assert {c.layout_a + c.layout_b for c in cases} >= {"NN", "NT", "TN", "TT", "SS", "DD"}
    shapes = {(c.m, c.n, c.k) for c in cases}
    assert shapes >= {(1000, 777, 3000), (4096, 64, 4096), (64, 4096, 4096), (1, 4096, 4096)}
    assert {(c.batch, c.shared_b) for c in cases} >= {(100, False), (100, True)}
    assert sum(c.flops for c in quick_cases()) < 1e10
    for case in cases:
        assert Case.from_dict({**case.as_dict(), "label": "ignored"}) == case


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_lie_as_their_layouts_say(layout):
    """Operands are the same each time and have the strides of their layouts."""
    case = Case("", 6, 8, 7, layout, layout, batch=3)
    (a, b), (again, _) = operands.operands(case), operands.operands(case)
    np.testing.assert_array_equal(a, again)
    assert (a.shape, b.shape) == ((3, 6, 7), (3, 7, 8))
    assert a.dtype == np.float32
    assert abs(a).max() <= 1
    strides = {
        "N": (28, 4),
        "T": (4, 24),
        "S": (2 * 4 * (7 + operands.COLUMNS_IN_FRONT), 4),
        "D": (112, 8),
    }
    assert a.strides[1:] == strides[layout]
    assert operands.reference(case).shape == (3, 6, 8)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_wrong_element_is_found(batch, monkeypatch):
    """judge accepts rounding errors and finds a wrong element, a NaN and a wrong shape."""
    monkeypatch.setattr(operands, "BLOCK", 50)  # several blocks, the last one short
    case = Case("", 17, 11, 40, batch=batch, shared_b=batch > 1)
    expected = operands.reference(case)
    c = np.matmul(*operands.operands(case))
    error, worst = operands.judge(case, c, expected)
    assert error == pytest.approx(np.linalg.norm(c - expected) / np.linalg.norm(expected))
    assert worst <= 1
    off = c.copy()
    off[..., -1, -1] += 0.01
    assert operands.judge(case, off, expected)[1] > 1
    off[..., 0, 0] = np.nan
    assert np.isnan(operands.judge(case, off, expected)[1])
    with pytest.raises(ValueError, match="shape"):
        operands.judge(case, c[..., 1:], expected)


LYING = [Case("", 9, 10, 11, a, b) for a, b in ("NN", "NT", "TN", "TT", "SN", "NS", "SS", "DD")]
STACKS = [Case("", 9, 10, 11, batch=3), Case("", 9, 10, 11, "T", "S", batch=3, shared_b=True)]


NVIDIA = SimpleNamespace(is_nvidia=True)


@pytest.mark.parametrize("case", LYING + STACKS, ids=lambda case: case.label)
@pytest.mark.parametrize(
    ("name", "mode"), [("clgemm", HOST), ("clgemm", DEVICE), ("NumPy", HOST), ("CLBlast", DEVICE)]
)
def test_contenders_compute_the_case(device, name, mode, case):
    """Each contender's C is full of NaN before the first call and right after it."""
    try:
        contenders.available(name, device)
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        call = contenders.prepare(name, case, mode, device)
    except NotImplementedError as error:
        assert name == "CLBlast"
        assert "D" in case.layout_a  # no BLAS takes this layout
        pytest.skip(str(error))
    assert np.isnan(call.fetch()).all()
    call.once()
    assert operands.judge(case, call.fetch(), operands.reference(case))[1] <= 1


class OnHost(ModuleType):
    """A stand-in for CuPy that computes on the host and lists one GPU."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asarray, self.matmul, self.asnumpy = np.asarray, np.matmul, np.array
        self.__version__ = "0"
        device = SimpleNamespace(use=list, synchronize=list)
        runtime = SimpleNamespace(
            getDeviceCount=lambda: 1,
            getDeviceProperties=lambda _: {"name": b"NVIDIA H"},
            runtimeGetVersion=lambda: 13000,
            CUDARuntimeError=OSError,
        )
        self.cuda = SimpleNamespace(runtime=runtime, Device=lambda *_: device)


@pytest.mark.parametrize("case", LYING + STACKS, ids=lambda case: case.label)
def test_cublas_computes_the_case(case, monkeypatch):
    """cuBLAS by CuPy computes each case, and refuses a GPU that CuPy does not list."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", OnHost("cupy"))
    device = SimpleNamespace(name="NVIDIA H", traits=NVIDIA)
    assert contenders.available("cuBLAS", device) == "cupy 0, CUDA 13000"
    call = contenders.prepare("cuBLAS", case, DEVICE, device)
    call.once()
    assert operands.judge(case, call.fetch(), operands.reference(case))[1] <= 1
    device.name = "NVIDIA X"
    with pytest.raises(RuntimeError, match="CuPy: it does not list NVIDIA X; its devices are"):
        contenders.available("cuBLAS", device)


# The device's roofs


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


# Workers


@pytest.fixture
def worker():
    """Start clgemm's worker on the default device."""
    with Worker("clgemm", identity(get_device()), environment(2)) as started:
        yield started


def scripted(text: str) -> Worker:
    """Return a worker that runs a script instead."""
    made = Worker("clgemm", ["", "", "0"], os.environ)
    made.command = [sys.executable, "-c", text]
    return made


def gone(process_id: int) -> bool:
    """Tell whether a process has ended."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


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


def test_a_killed_worker_is_reported_and_replaced(worker):
    """The error names the signal that killed a worker, and the next request starts another."""
    worker.ask("about")
    killed = worker.process_id
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=r"clgemm's process died \(signal SIGKILL\)"):
        worker.ask("about")
    assert gone(killed)
    assert worker.ask("about")
    assert worker.process_id != killed


def test_a_dying_workers_last_words_are_kept():
    """The error for a worker that dies has the line in which it names the error."""
    words = "import sys; print('LLVM ERROR: Cannot select', file=sys.stderr); sys.exit(3)"
    with scripted(words) as dying, pytest.raises(WorkerDiedError) as death:
        dying.ask("about")
    assert str(death.value) == ("clgemm's process died (exit status 3): LLVM ERROR: Cannot select")


def test_runtimes_may_print():
    """Text that a runtime prints to a worker's standard output is not read as an answer."""
    noisy = (
        "import os; from clgemm.bench import worker\n"
        "worker.Server.about = lambda self: os.write(1, b'noise\\n')\n"
        "worker.main(['NumPy'])"
    )
    with scripted(noisy) as printing:
        assert printing.ask("about") == len("noise\n")


def test_no_child_is_left():
    """A worker's process ends with its block, also after an interruption in a long call."""
    with Worker("NumPy", ["", "", "0"], environment(1)) as counting:
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


def test_the_device_is_found_again():
    """find returns the device of an identity, and refuses an unknown one."""
    for device in devices():
        assert find(identity(device)) is device
    with pytest.raises(RuntimeError, match="this process has no device X of Y"):
        find(["X", "Y", "0"])


# Turns


class Scripted:
    """A stand-in for a worker with given times and errors, which may die."""

    def __init__(self, seconds=1.0, worst=0.1, dies_at="", alive=True):
        self.seconds, self.worst, self.dies_at, self.alive = seconds, worst, dies_at, alive
        self.asked: list[str] = []

    def ask(self, request, **_):
        self.asked.append(request)
        if request == self.dies_at:
            raise WorkerDiedError("process died")
        return {"turn": self.seconds, "judge": [1e-7, self.worst]}.get(request)


def tournament(tmp_path, settings=None, **contestants: Scripted) -> Tournament:
    """Return a tournament of stand-ins."""
    settings = settings or Settings(rounds=4)
    peers = [name for name in contestants if name != "clgemm"]
    return Tournament(contestants, peers, settings, tmp_path)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Remove the pauses between turns."""
    monkeypatch.setattr(rounds, "PAUSE_S", 0)


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


# The command


@runs_whole
@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_command_prints_writes_and_draws(device, tmp_path, capsys, monkeypatch):
    """A tiny run prints its tables, draws a picture and writes a consistent JSON."""
    monkeypatch.setattr(rounds, "PAUSE_S", 0)
    files = ["--json", str(tmp_path / "b.json"), "--plot", str(tmp_path / "b.png")]
    arguments = ["bench", "--device", str(devices().index(device)), "--quick", *files]
    assert main([*arguments, "--shapes", "16,8x9x10,3x8x8x8", "--rounds", "2"]) == 0
    printed = capsys.readouterr().out
    for text in ("End to end", "on the device", "Cold start", "Tiny products", "3 of 8"):
        assert text in printed
    written = json.loads((tmp_path / "b.json").read_text())
    assert written["schema"] == report.SCHEMA
    assert written["device"]["name"] == device.name
    assert written["device"]["driver"]
    assert written["threads"] >= 1
    assert written["numpy"]["version"] == np.__version__
    assert written["numpy"]["blas"]
    assert written["settings"]["rounds"] == 2
    assert written["roofs"]["gflops"] > 0
    assert written["roofs"]["bandwidth_gbps"] > 0
    assert {"NumPy"} <= set(written["peers"])
    assert set(written["peers"]) | set(written["absent"]) == set(contenders.PEERS)
    for name, why in written["absent"].items():
        assert f"{name} is not among the peers: {why}" in printed
    assert [case["label"] for case in written["cases"]] == ["16", "8x9x10", "3 of 8"]
    for case in written["cases"]:
        of = {outcome["contender"]: outcome for outcome in case[HOST]}
        ours, numpy = of["clgemm"], of["NumPy"]
        assert len(ours["rounds_s"]) == len(numpy["rounds_s"]) == 2
        assert all(o["correct"] and o["error"] < 1e-5 for o in case[HOST] + case[DEVICE])
        assert ours["gflops"] == case["flops"] / median(ours["rounds_s"]) / 1e9
        assert ours["of_peak"] == ours["gflops"] / written["roofs"]["gflops"]
        by_round = ratios(ours["rounds_s"], numpy["rounds_s"])
        assert numpy["clgemm_is_faster_by"] == spread(by_round)._asdict()
    assert set(written["cold_start"]) == {"empty", "warm", "NumPy"}
    assert all(
        kind["first_s"] > 0 and kind["import_s"] > 0 for kind in written["cold_start"].values()
    )
    assert {row["n"] for row in written["overheads"]} == set(startup.TINY)
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "12x12"], "'12x12' is not a shape"),
        (["--device", "no such device"], "no such device"),
        (["--peers", "NumPy,ATLAS"], "unknown peers ['atlas']; the peers are NumPy, OpenBLAS"),
        (["--json", "nowhere/b.json"], "there is no folder nowhere"),
        (["--plot", "nowhere/b.png"], "there is no folder nowhere"),
    ],
)
def test_command_refuses_clearly(arguments, message, capsys):
    """A wrong argument ends the command with code 2 and a message before it measures."""
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--budget", "0"], ["--budget", "x"], ["--rounds", "0"]])
def test_command_refuses_numbers(arguments, capsys):
    """A wrong number ends the command with argparse's error, which names it."""
    with pytest.raises(SystemExit, match="2"):
        main(["bench", *arguments])
    assert repr(arguments[1]) in capsys.readouterr().err


def test_peers_are_chosen():
    """--peers takes names in upper or lower case, and the default is all peers."""
    assert command._peers(None) == list(contenders.PEERS)
    assert {"NumPy", "MKL", "BLIS", "oneDNN", "CLBlast", "cuBLAS"} <= set(contenders.PEERS)
    assert command._peers("cublas, numpy") == ["NumPy", "cuBLAS"]
    assert command._peers("none") == []


def test_missing_peers_say_why(device):
    """The error for a missing peer says that it is not installed or not for this device."""
    with pytest.raises(RuntimeError, match="cuBLAS runs on NVIDIA's GPUs only; this is a toaster"):
        contenders.available(
            "cuBLAS", SimpleNamespace(name="a toaster", traits=SimpleNamespace(is_nvidia=False))
        )
    with pytest.MonkeyPatch.context() as patch:
        for library in ("pyclblast", "torch", "cupy"):
            patch.setitem(sys.modules, library, None)  # as if it were not installed
        with pytest.raises(RuntimeError, match="pyclblast cannot be imported"):
            contenders.available("CLBlast", device)
        with pytest.raises(RuntimeError, match=r"PyTorch: .*torch.*; CuPy: .*cupy"):
            contenders.available("cuBLAS", SimpleNamespace(name="H", traits=NVIDIA))


class Interrupted:
    """A tournament that the user interrupts by Ctrl-C."""

    def __init__(self, workers, *_):
        self.workers = workers
        Interrupted.children = []

    def contest(self, _):
        for each in self.workers.values():
            each._started()
            Interrupted.children.append(each.process_id)
        raise KeyboardInterrupt


def test_an_interruption_ends_the_children(monkeypatch, capsys):
    """After Ctrl-C the command returns 130, and all child processes have ended."""
    monkeypatch.setattr(command, "Tournament", Interrupted)
    monkeypatch.setattr(command, "_roofs", lambda _: {"failures": []})
    assert main(["bench", "--shapes", "8"]) == 130
    assert capsys.readouterr().err.strip().endswith("interrupted")
    assert len(Interrupted.children) >= 2
    assert all(map(gone, Interrupted.children))


@runs_whole
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are counted in /proc")
def test_ctrl_c_reaches_everybody():
    """A SIGINT to the process group, as Ctrl-C sends it, ends the command and its children."""
    whole = subprocess.Popen(
        [sys.executable, "-m", "clgemm", "bench", "--shapes", "512", "--rounds", "100000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    children = Path(f"/proc/{whole.pid}/task/{whole.pid}/children")
    deadline = time.monotonic() + 60
    while len(children.read_text().split()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    started = [int(child) for child in children.read_text().split()]
    os.killpg(whole.pid, signal.SIGINT)
    _, errors = whole.communicate(timeout=60)
    assert whole.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert len(started) >= 2
    assert all(map(gone, started))


def test_caches_are_kept_apart(tmp_path):
    """Each cache of compiled programs is inside the given folder."""
    variables = startup.cache_variables(tmp_path)
    assert {"CLGEMM_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"} <= set(variables)
    assert all(Path(value).is_relative_to(tmp_path) for value in variables.values())


def test_a_failing_cold_start_is_said():
    """A cold start that fails reports the process's last line of errors."""
    kinds = startup.cold_start(["X", "Y", "0"], environment(1), 1)
    assert "this process has no device X of Y" in kinds["empty"]["failure"]
    assert kinds["NumPy"]["first_s"] > 0


def test_pictures_of_little(tmp_path):
    """A report without a peak or a right result can be drawn."""
    bad = fake_report([(CUBE, {HOST: [outcome(failure="boom")], DEVICE: [outcome(worst=9)]})])
    bad.roofs = {"failures": ["no peak"]}
    plot.draw(bad, str(tmp_path / "b.png"))
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


# Pictures


def drawn(figure):
    """Lay out a figure, and return its renderer."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def whole_report(noise=1.1):
    """Return a report of all default cases with two contenders in each mode."""
    results = []
    for number, case in enumerate(default_cases()):
        modes = {}
        for mode, peer in ((HOST, "NumPy"), (DEVICE, "cuBLAS")):
            modes[mode] = [
                Outcome(name, case, [seconds * (1 + number % 5), seconds, noise * seconds], 0, 0.1)
                for name, seconds in (("clgemm", case.flops / 4e6), (peer, case.flops / 1e6))
            ]
        results.append((case, modes))
    report = fake_report(results)
    report.roofs = {"gflops": 2e-3, "bandwidth_gbps": 1e-4, "failures": []}
    return report


def points(axes):
    """Return the places of the markers of axes on the page."""
    lines = [line for line in axes.get_lines() if line.get_marker() in plot.MARKERS.values()]
    return [place for line in lines for place in line.get_transform().transform(line.get_xydata())]


def test_each_shape_of_the_roofline_is_named():
    """Each shape of the roofline is named once above its points, and no names overlap."""
    pytest.importorskip("matplotlib")
    from matplotlib.text import Text

    figure = plot.picture(whole_report())
    renderer = drawn(figure)
    axes = figure.subfigs[0].subfigs[0].axes[0]
    names = [text for text in axes.texts if text.get_rotation() == 90]
    texts = [text.get_text() for text in names]
    assert "1024, 8 layouts" in texts
    assert "1000x777x3000, 2 layouts" in texts
    assert {"64", "8192", "64x64x100000", "100 of 128, one B"} <= set(texts)
    assert len(texts) == len(set(texts)) == 21
    boxes = [Text.get_window_extent(text, renderer) for text in names]  # without its line
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        assert box.y0 > axes.get_window_extent(renderer).y1
        assert box.x1 < figure.bbox.x1
    titles = [axes._left_title.get_window_extent(renderer)]
    assert not any(box.overlaps(title) for box in boxes for title in titles)


def test_labels_are_of_what_is_drawn():
    """A case that was skipped has no label in the roofline."""
    pytest.importorskip("matplotlib")
    report = whole_report()
    for outcomes in report.results[0][1].values():
        for each in outcomes:
            each.failure = "skipped: too long"
    figure = plot.picture(report)
    axes = figure.subfigs[0].subfigs[0].axes[0]
    assert "64" not in [text.get_text() for text in axes.texts]
    assert "128" in [text.get_text() for text in axes.texts]


def test_legends_cover_no_point():
    """Legends are outside all axes, where no point lies."""
    pytest.importorskip("matplotlib")
    figure = plot.picture(whole_report())
    renderer = drawn(figure)
    left, right = figure.subfigs[0].subfigs
    below = figure.subfigs[1].axes[0]
    legends = [left.legends[0], right.legends[0], below.get_legend()]
    axes = [left.axes[0], right.axes[0], below]
    for legend in legends:
        box = legend.get_window_extent(renderer)
        for each in axes:
            assert points(each)
            assert not any(box.contains(*place) for place in points(each))
            assert not box.overlaps(each.get_window_extent(renderer))


def test_a_median_of_rounds_that_differ_much_is_hollow():
    """The median of rounds with a wide range is drawn hollow, with the range."""
    pytest.importorskip("matplotlib")
    sure, unsure = (Case("rectangular", n, 3, 4) for n in (5, 6))
    ours = [Outcome("clgemm", case, [1.0] * 3, 0, 0.1) for case in (sure, unsure)]
    theirs = [
        Outcome("NumPy", sure, [90.0, 100.0, 110.0], 0, 0.1),
        Outcome("NumPy", unsure, [2.0, 100.0, 100.0], 0, 0.1),
    ]
    both = zip(ours, theirs, strict=True)
    figure = plot.picture(fake_report([(o.case, {HOST: [o, t]}) for o, t in both]))
    drawn(figure)
    axes = figure.subfigs[1].axes[0]
    (hollow,) = [x for x in axes.get_lines() if x.get_markerfacecolor() == "white"]
    assert hollow.get_xydata().tolist() == [[1.0, 100.0]]
    low, high = axes.get_ylim()
    assert low < 2
    assert high > 100
    segments = [x.tolist() for c in axes.collections for x in c.get_segments()]
    assert [[1.0, 2.0], [1.0, 100.0]] in segments


@given(st.lists(st.floats(0, 1), max_size=25).map(sorted), st.sampled_from([0.0, 0.01, 0.026, 0.3]))
def test_labels_are_spread_out(places, gap):
    """Labels get a gap between neighbours, and labels that are far apart do not move."""
    found = plot.spread_out(places, gap)
    assert all(b - a > gap - 1e-9 for a, b in pairwise(found))
    for number, place in enumerate(places):
        others = places[:number] + places[number + 1 :]
        if all(abs(place - other) > len(places) * gap for other in others):
            assert found[number] == pytest.approx(place)
