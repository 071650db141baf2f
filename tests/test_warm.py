"""Tests of `warmup`."""

from __future__ import annotations

import json

import pytest

import clgemm
from clgemm.__main__ import main
from clgemm.hardware import trial
from clgemm.hardware.device import where
from clgemm.kernels.exact.types import Types
from clgemm.records import verdicts
from clgemm.runtime import exact
from clgemm.trials.worker import missing_dtypes

JOBS = [["check", {}], ["family", {"family": "tiled"}], ["plan", {"problem": 1}]]


@pytest.fixture
def answering(device, monkeypatch):
    """Workers whose answers the test sets, by the name of the job."""
    answers = {name: {"outcome": "right"} for name, _ in JOBS}
    asked, names = [], {}
    monkeypatch.setattr(trial, "ask", lambda *_, **__: {"jobs": JOBS, "outcome": "right"})

    def request(name, **_):
        asked.append(name)
        names[len(asked)] = name
        return len(asked)

    monkeypatch.setattr(trial, "request", request)
    monkeypatch.setattr(trial, "wait", lambda number: answers[names[number]])
    return answers


def run(device, *arguments):
    """Run the command for a device."""
    with clgemm.device(device):
        return main(["warmup", *arguments])


def test_each_part_is_done_and_timed(answering, device):
    """The progress is told before each part, and at the end."""
    told = []
    found = clgemm.warmup(device, progress=lambda *each: told.append(each))
    assert (found["device"], found["parts"], found["problems"]) == (device.label, 3, [])
    assert found["seconds"].keys() == {"all", "check", "family", "plan"}
    assert [done for done, _, _ in told] == [0, 1, 2, 3]
    assert {total for _, total, _ in told} == {3}


def test_what_fails_is_named_and_the_rest_is_done(answering, device, capsys):
    """The command's exit status says so."""
    answering["family"] = {"outcome": "wrong", "reason": "7 elements differ"}
    assert run(device) == 1
    printed = capsys.readouterr().out
    assert "failed: kernel families: 7 elements differ" in printed
    assert "3 parts" in printed


def test_json(answering, device, capsys):
    """The result is one line of JSON."""
    assert run(device, "--json") == 0
    assert json.loads(capsys.readouterr().out)["parts"] == 3


def test_an_unknown_device_is_an_error(capsys):
    """The command says which devices there are."""
    assert main(["warmup", "--device", "no such device"]) == 2
    assert "no such device" in capsys.readouterr().err


def test_a_process_that_cannot_start_children_prepares_nothing(device, monkeypatch, capsys):
    """It says why, in place of a traceback."""
    verdicts.store(verdicts.about_device(where(device)), verdicts.Verdict())

    def ask(*_, **__):
        raise trial.UncheckedError("no processes here")

    monkeypatch.setattr(trial, "ask", ask)
    assert run(device) == 2
    assert "no processes here" in capsys.readouterr().err


def test_other_dtypes_are_tried_until_each_has_a_verdict(device, alone):
    """Bytes that are added up in 32 bits are one of them; a CPU leaves float64 to its BLAS."""
    verdicts.forget()
    jobs = missing_dtypes(device)
    assert {name for name, _ in jobs} == {"exact"}
    kinds = [job["types"] for _, job in jobs]
    assert {Types("i4", "i4", "i4"), Types("i1", "i1", "i4")} <= {*kinds}
    assert device.kind == "GPU" or Types("f8", "f8", "f8") not in kinds
    verdicts.store(exact.about(device, kinds[0]), verdicts.Verdict(), keep=False)
    assert [job["types"] for _, job in missing_dtypes(device)] == kinds[1:]
    verdicts.forget()


@pytest.mark.parametrize("outcome", ["right", "unchecked"])
def test_plans_are_prepared_after_a_calibration_whatever_came_of_it(
    outcome, answering, device, monkeypatch
):
    """The second list is asked for once."""
    asked = []

    def ask(_, is_calibrated, **__):
        asked.append(is_calibrated)
        jobs = [["plan", {"problem": 1}]] if is_calibrated else [["calibrate", {}]]
        return {"jobs": jobs, "outcome": "right"}

    monkeypatch.setattr(trial, "ask", ask)
    answering["calibrate"] = {"outcome": outcome, "reason": "too busy"}
    found = clgemm.warmup(device)
    assert asked == [False, True]
    assert found["parts"] == 2
    assert found["problems"] == ([] if outcome == "right" else ["what launches cost: too busy"])


def test_a_folder_that_keeps_nothing_is_a_problem(answering, device, tmp_path, monkeypatch):
    """Another process would find nothing."""
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(file))
    (problem,) = clgemm.warmup(device)["problems"]
    assert problem.startswith("nothing is kept for later processes: ")
    assert str(file) in problem
