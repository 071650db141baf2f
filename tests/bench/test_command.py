"""Tests of ``python -m clgemm bench``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from bench_workers import gone

from clgemm.__main__ import main
from clgemm.bench import command, contenders, other_products, report
from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.rounds import SKIPPED, spread
from clgemm.hardware.choice import devices

SIMULATED = any(name in d.name for d in devices() for name in ("llvmpipe", "Oclgrind"))
runs_whole = pytest.mark.skipif(SIMULATED, reason="a simulator takes hours over the peak")


@runs_whole
@pytest.mark.parametrize("device", devices()[:1], ids=lambda d: d.name)  # it takes half a minute
def test_command_prints_writes_and_draws(device, tmp_path, capsys, monkeypatch):
    """A tiny run prints its tables, draws a picture and writes a consistent JSON."""
    # Nothing is made of the times here: no call waits until another library's threads are idle.
    monkeypatch.setattr(other_products, "IDLE_S", 0.0)
    monkeypatch.setattr(command, "QUICK", replace(command.QUICK, pause_s=0.0))
    files = ["--json", str(tmp_path / "b.json"), "--plot", str(tmp_path / "b.png")]
    arguments = ["bench", "--device", str(devices().index(device)), "--quick", *files]
    assert main([*arguments, "--shapes", "16,8x9x10,3x8x8x8", "--rounds", "2"]) == 0
    printed = capsys.readouterr().out
    for text in ("End to end", "on the device", "3 of 8"):
        assert text in printed
    verdict = (
        r"In short, NumPy's time .*: float32 \d+\.\d\d on average \(.*\); int32 [\d.,]+ at 500"
    )
    assert re.search(verdict, printed)
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
        for outcome in case[HOST] + case[DEVICE]:
            if outcome["contender"] in ("BLIS", "oneDNN") and outcome["failure"]:  # no batches
                assert outcome["failure"].startswith(SKIPPED)
                continue
            assert outcome["correct"]
            assert outcome["error"] < 1e-5
        assert ours["gflops"] == case["flops"] / median(ours["rounds_s"]) / 1e9
        assert ours["of_peak"] == ours["gflops"] / written["roofs"]["gflops"]
        pairs = zip(numpy["rounds_s"], ours["rounds_s"], strict=True)
        by_round = [theirs_s / ours_s for theirs_s, ours_s in pairs]
        assert numpy["clgemm_is_faster_by"] == spread(by_round)._asdict()
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "12x12"], "'12x12' is not a shape"),
        (["--device", "no such device"], "no such device"),
        (["--peers", "NumPy,ATLAS"], "unknown peers ['atlas']; the peers are NumPy, MKL, BLIS"),
        (["--json", "nowhere/b.json"], "there is no folder nowhere"),
        (["--plot", "nowhere/b.png"], "there is no folder nowhere"),
        (["--shapes", "8", "--minutes", "1"], "--minutes is for a survey"),
        (["--survey", "3", "--shapes", "8"], "--shapes and --survey exclude each other"),
        (["--survey", "3", "--peers", "none"], "a survey needs a peer"),
        (["--survey", "3", "--plot", "s.png"], "--survey and --plot exclude each other"),
        (["--survey", "3", "--sides", "9:4"], "sides=9:4 is not a range"),
        (["--survey", "3", "--sides", "1:2", "--work", "1e9:2e9"], "no product found within"),
        (["--startup", "--device", "no such device"], "no such device"),
        (["--whole-programs", "sudoku"], "no such program: sudoku; there is mlp_training"),
        (["--whole-programs", "--plot", "w.png"], "--whole-programs and --plot exclude each other"),
    ],
)
def test_command_refuses_clearly(arguments, message, capsys):
    """A wrong argument ends the command with code 2 and a message before it measures."""
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_precision_is_refused(monkeypatch, capsys):
    """A wrong CLGEMM_PRECISION ends the command with code 2 and a message before it measures."""
    monkeypatch.setenv("CLGEMM_PRECISION", "odd")
    assert main(["bench", "--survey", "1"]) == 2
    assert "CLGEMM_PRECISION='odd' is not one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--budget", "0"], ["--budget", "x"], ["--rounds", "0"], ["--survey", "0"]),
        *(["--sides", "64"], ["--work", "1e5:x"], ["--data", "odd"], ["--seed", "a"]),
        *(["--syrk", "3y"], ["--syrk", "0"], ["--dtypes", "1.5"]),
    ],
)
def test_command_refuses_values(arguments, capsys):
    """A wrong value ends the command with argparse's error, which names it."""
    with pytest.raises(SystemExit, match="2"):
        main(["bench", *arguments])
    assert repr(arguments[1]) in capsys.readouterr().err


def test_peers_are_chosen():
    """--peers takes names in upper or lower case, and the default is all peers."""
    assert command._peers(None) == list(contenders.PEERS)
    assert {"NumPy", "MKL", "BLIS", "oneDNN", "CLBlast", "cuBLAS"} <= set(contenders.PEERS)
    assert command._peers("cublas, numpy") == ["NumPy", "cuBLAS"]
    assert command._peers("none") == []


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
