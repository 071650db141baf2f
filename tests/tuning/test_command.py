"""Tests of `clgemm.tune` and of ``python -m clgemm tune``."""

from __future__ import annotations

import contextlib
import errno
import logging
from pathlib import Path

import numpy as np
import pytest

import clgemm
from clgemm.__main__ import main
from clgemm.core.cache import cache_folder
from clgemm.hardware.device import identify
from clgemm.kernels.common.family import Choice
from clgemm.kernels.direct.family import direct_config
from clgemm.planning import planner
from clgemm.records import tuned
from clgemm.records.tuned import findings_from, kernels_hash
from clgemm.tuning import command
from clgemm.tuning.session import Session
from clgemm.tuning.trials import Trial, Trials

pytestmark = pytest.mark.one_device


def test_ctrl_c_keeps_what_was_found(empty, monkeypatch, capsys):
    """The best so far is checked and stored, and the command's exit code is the shell's."""
    pressed = []

    def say(self, text):
        if "tried" in text and not pressed:
            pressed.append(text)
            raise KeyboardInterrupt

    monkeypatch.setattr(Session, "say", say)
    assert main(["tune", "--shapes", "12x12x12", "--budget", "5"]) == 130
    assert pressed
    stored = tuned.own_records(identify(empty))
    assert [r.key for r in stored] == [("direct", "tiny")]
    assert "12" in capsys.readouterr().out


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_there_must_be_some_time(minutes, empty):
    """What is no number above 0 is refused before anything is tried or stored."""
    with pytest.raises(ValueError, match=f"minutes={minutes} is not a number above 0"):
        clgemm.tune(empty, minutes=minutes)


def test_dtypes_are_known_and_the_devices(empty, monkeypatch):
    """An error names the values; float64 needs a device that has it."""
    with pytest.raises(ValueError, match=r"'int128' is not one of the dtypes float32, bool, int8"):
        clgemm.tune(empty, dtypes=["int128"])
    monkeypatch.setattr(command.exact, "computes", lambda *_: False)
    with pytest.raises(ValueError, match="does not multiply complex64"):
        clgemm.tune(empty, dtypes=[np.complex64])


def test_tuning_serves_at_once(empty):
    """tune() returns its records, and products use them, with right results."""
    (record,) = clgemm.tune(empty, shapes=[(3, 12, 12, 12)], minutes=0.03)
    assert record.family == "direct"
    assert record.shape_class == "batched"
    assert record.kernels == kernels_hash("direct")
    assert all(gflops > 0 for gflops in record.gflops)
    assert planner.tuned(empty, "direct", "batched") == record.choice
    assert "this user's" in clgemm.show_config("dicts")["Tuning"]["batched"]["direct"]
    a = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    with clgemm.device(empty):
        np.testing.assert_array_equal(clgemm.matmul(a, a), a @ a)


def test_records_that_cannot_be_stored_are_printed(empty, capsys, caplog, monkeypatch):
    """A full disk loses nothing: the command says so, and its exit code does."""
    assert main(["tune", "--shapes", "12x12x12", "--budget", "0.01"]) == 0

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tuned, "rewrite", full)
    with caplog.at_level(logging.WARNING):
        assert main(["tune", "--shapes", "12x12x12", "--budget", "0.01"]) == 1
    out = capsys.readouterr().out
    assert findings_from(out[out.rindex('{\n "format"') :]).records
    assert "is not stored" in caplog.text


def test_show_draws_the_search(empty, tmp_path, capsys, monkeypatch):
    """In a file, else in the cache folder; where nothing was tried, it says so."""
    (tmp_path / "empty").mkdir()
    assert main(["tune", "--show"]) == 2
    assert "nothing has been tried" in capsys.readouterr().err
    choice = Choice(direct_config(empty.limits), None)
    trials = Trials(identify(empty))
    for number, name in enumerate(("tiny", "tiny", "small", "vector", "deep")):
        trials.add(Trial(name, f"{number}", choice, number / 2, 5.0, "" if number else "wrong"))
    assert main(["tune", "--show", str(tmp_path / "search.png")]) == 0
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["tune", "--show"]) == 0
    assert Path(capsys.readouterr().out.splitlines()[-1]).is_relative_to(cache_folder())
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(("dtype", "family"), [("float32", "direct"), ("uint32", "exact_int32")])
def test_records_go_to_others_and_come_from_them(
    empty, tmp_path, capsys, monkeypatch, dtype, family
):
    """A file that one command writes and another one reads; what was found here stays."""
    file = tmp_path / "records.json"
    assert main(["tune", "--export", str(file)]) == 2
    assert "there are no records" in capsys.readouterr().err
    (record,) = clgemm.tune(empty, shapes=[(3, 12, 12, 12)], minutes=0.03, dtypes=[dtype])
    assert record.key == (family, "batched")
    assert planner.tuned(empty, family, "batched") == record.choice
    assert "this user's" in clgemm.show_config("dicts")["Tuning"]["batched"][family]
    assert main(["tune", "--export", str(file)]) == 0
    assert main(["tune", "--import", str(file)]) == 1  # each has one already
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "elsewhere"))
    tuned.forget()
    assert main(["tune", "--import", str(file)]) == 0
    assert "1 of 1 records serve" in capsys.readouterr().out
    assert tuned.own_records(identify(empty)) == findings_from(file.read_text()).records
    file.write_text("{}")
    assert main(["tune", "--import", str(file)]) == 1
    assert "it is not in format" in capsys.readouterr().err
    assert main(["tune", "--import", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    "arguments",
    [["--shapes", "12x12"], ["--budget", "0"], ["--device", "?"], ["--dtypes", "int128"]],
)
def test_wrong_arguments_are_refused(arguments, capsys):
    """With exit code 2 and a word on what is wrong."""
    try:
        code = main(["tune", *arguments])
    except SystemExit as left:
        code = left.code
    assert code == 2
    assert arguments[1] in capsys.readouterr().err


def test_the_budget_holds_and_what_it_was_too_short_for_is_named(clock, monkeypatch, capsys, empty):
    """Classes that were not reached keep their records, and the command names them."""
    monkeypatch.setattr(type(empty.traits), "has_cost_model", False)
    monkeypatch.setattr(command, "trial_child", lambda _: contextlib.nullcontext(clock))
    assert main(["tune", "--budget", "1"]) == 0
    assert clock.now <= 60.0 + clock.LONGEST_TASK
    assert "1 minutes were too short for" in capsys.readouterr().out


def test_costs_are_measured_where_plans_are_chosen_by_them(clock, monkeypatch, capsys, empty):
    """They get their share of the budget and are kept, if there were plans enough."""
    kept, given = [], []

    def timed(device, seconds):
        given.append(seconds)
        return [None] * 40

    monkeypatch.setattr(type(empty.traits), "has_cost_model", True)
    monkeypatch.setattr(command, "timed_plans", timed)
    monkeypatch.setattr(command.verdicts, "keep_costs", lambda *arguments: kept.append(arguments))
    monkeypatch.setattr(command, "trial_child", lambda _: contextlib.nullcontext(clock))
    for found in (None, "costs"):
        monkeypatch.setattr(command, "fitted", lambda *_, found=found: found)
        assert main(["tune", "--budget", "1"]) == 0
    assert given == [9.0, 9.0]
    assert kept == [(empty.name, empty.runtime, "costs", 40)]
