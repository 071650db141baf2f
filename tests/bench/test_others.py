"""Tests of what the benchmark runs instead of a comparison: whole processes and other dtypes."""

from __future__ import annotations

import json

import pytest

from clgemm.__main__ import main
from clgemm.bench import dtypes, startup, whole_programs
from clgemm.hardware.choice import get_device


def test_new_processes_are_timed(monkeypatch, tmp_path, capsys):
    """``--startup`` prints and writes the times of programs and of commands, cold and warm."""
    monkeypatch.setattr(startup, "RUNS", 1)
    monkeypatch.setattr(startup, "WARM_RUNS", 1)
    monkeypatch.setattr(startup, "PROGRAMS", {"NumPy": startup.PROGRAMS["NumPy"]})
    name = "script that imports NumPy"
    monkeypatch.setattr(startup, "COMMANDS", {name: startup.COMMANDS[name]})
    file = tmp_path / "s.json"
    assert main(["bench", "--startup", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "first product of 2048 x 2048 NumPy arrays" in printed
    found = json.loads(file.read_text())
    for times in (*found["first products"].values(), *found["commands"].values()):
        assert set(times) == {"cold", "warm"}
        assert all(0 < seconds < 100 for each in times.values() for seconds in each)
    for numpy_s, all_s, product_s in found["first products"]["NumPy"].values():
        assert 0 < numpy_s <= all_s <= product_s
    assert name in printed


def test_other_dtypes_are_timed_and_checked(monkeypatch, tmp_path, capsys):
    """``--dtypes`` has a row for each dtype and size, and fails if a result is wrong."""
    if get_device().kind != "CPU":
        pytest.skip("other dtypes are for CPU devices")
    monkeypatch.setattr(dtypes, "TURNS", 1)
    monkeypatch.setattr(dtypes, "IDLE_S", 0.0)
    monkeypatch.setattr(dtypes, "DTYPES", ("int16", "bool"))
    file = tmp_path / "d.json"
    assert main(["bench", "--dtypes", "9", "16", "--json", str(file)]) == 0
    found = json.loads(file.read_text())["products"]
    assert [(row["dtype"], row["n"]) for row in found] == [
        *(("int16", 9), ("int16", 16), ("bool", 9), ("bool", 16))
    ]
    assert all(row["ms"] > 0 and row["numpy_ms"] > 0 for row in found)
    monkeypatch.setattr(dtypes.exact, "expected", lambda *_: -1)
    assert main(["bench", "--dtypes", "9"]) == 1
    assert "2 results are wrong" in capsys.readouterr().err


def test_wrong_arguments_of_whole_programs_are_named(capsys):
    """A program that there is not, and a picture that cannot be drawn, end the command."""
    assert {"mlp_training", "whitening"} <= set(whole_programs.names())
    assert main(["bench", "--whole-programs", "sudoku"]) == 2
    assert "no such program: sudoku; there is mlp_training" in capsys.readouterr().err
    assert main(["bench", "--whole-programs", "whitening", "--plot", "nowhere/w.png"]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err
