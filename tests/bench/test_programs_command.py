"""Tests of ``python -m clgemm bench --programs``."""

from __future__ import annotations

import json

import pytest

from clgemm.__main__ import main
from clgemm.bench import programs_command
from clgemm.bench.contenders import ACCELERATED, ROUTED
from clgemm.bench.pipe import WorkerDiedError

ARGUMENTS = ["bench", "--programs", "2", "--seed", "7", "--sides", "8:64", "--work", "1e4:1e5"]


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    """Make the turns short."""
    monkeypatch.setattr(programs_command, "ROUNDS", 2)
    monkeypatch.setattr(programs_command, "TURN_S", 1e-3)
    monkeypatch.setattr(programs_command, "PAUSE_S", 0.0)


def test_programs_run_from_end_to_end(tmp_path, capsys):
    """Two programs by NumPy, the device, matmul and accelerated NumPy: timed and checked."""
    file = tmp_path / "p.json"
    assert main([*ARGUMENTS, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "2 of 2 random programs, seed 7: products with sides 8 to 64" in printed
    found = json.loads(file.read_text())
    assert found["seed"] == 7
    assert set(found["summary"]) == {"clgemm", ROUTED, ACCELERATED}
    assert found["summary"][ROUTED]["all"]["count"] == 2
    for each in found["programs"]:
        assert set(each["time_s"]) == {"NumPy", "clgemm", ROUTED, ACCELERATED}
        assert all(seconds > 0 for seconds in each["time_s"].values())
        assert set(each["ratio"]) == set(each["time_s"]) - {"NumPy"}
        assert each["wrong"] == ""
        assert len(each["products"]) == len(set(each["steps"]))


def test_programs_end_when_their_time_is_up(capsys):
    """One at least is measured."""
    assert main([*ARGUMENTS, "--minutes", "1e-6"]) == 0
    assert "1 of 2 random programs" in capsys.readouterr().out


def test_a_wrong_result_is_found_out(monkeypatch, capsys):
    """It is named, and the exit code is 1."""
    monkeypatch.setattr(programs_command, "WRONG", "off by {:.0g}")
    original = programs_command.Worker.ask

    def ask(self, request, timeout_s=None, **keywords):
        answer = original(self, request, timeout_s, **keywords)
        return float("nan") if (request, self.name) == ("judge_program", ROUTED) else answer

    monkeypatch.setattr(programs_command.Worker, "ask", ask)
    assert main(ARGUMENTS) == 1
    assert f"{ROUTED}: off by nan" in capsys.readouterr().out


def test_a_worker_that_fails_is_named(monkeypatch, capsys):
    """The exit code is 1, as without --programs."""

    def ask(self, request, timeout_s=None, **keywords):
        raise WorkerDiedError(f"{self.name}: planted")

    monkeypatch.setattr(programs_command.Worker, "ask", ask)
    assert main(ARGUMENTS) == 1
    assert "NumPy: planted" in capsys.readouterr().err


def test_wrong_arguments(capsys):
    """Bounds without products, and a second kind of run."""
    assert main(["bench", "--programs", "1", "--sides", "8:9", "--work", "1e6:1e7"]) == 2
    assert "no product found within" in capsys.readouterr().err
    assert main(["bench", "--programs", "1", "--survey", "3"]) == 2
    assert "exclude each other" in capsys.readouterr().err
