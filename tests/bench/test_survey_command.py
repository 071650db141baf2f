"""Tests of ``python -m clgemm bench --survey``."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest
from surveyed import MACHINE, PLAN, SURVEY, made_up, right

from clgemm.__main__ import main
from clgemm.bench import survey_command
from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, ROUTED
from clgemm.bench.pipe import RequestError
from clgemm.bench.rounds import Settings, Tournament
from clgemm.bench.survey import Bounds, random_cases
from clgemm.bench.survey_report import SurveyReport


@pytest.fixture
def short_turns(monkeypatch):
    """Make a survey's turns short."""
    short = Settings(rounds=2, turn_s=0.001, pause_s=0.0)
    monkeypatch.setattr(survey_command, "SETTINGS", short)


def test_a_survey_runs_from_end_to_end(short_turns, tmp_path, capsys):
    """Three products against NumPy: checked, with ratios, regrets, plans and pictures."""
    files = ["--json", str(tmp_path / "s.json"), "--plot", str(tmp_path / "s.png")]
    arguments = ["--survey", "3", "--seed", "7", "--sides", "8:64", "--work", "1e4:1e6"]
    assert main(["bench", *arguments, "--peers", "numpy", "--precision", "strict", *files]) == 0
    printed = capsys.readouterr().out
    assert "survey of 3 random products, seed 7: sides 8 to 64" in printed
    assert "precision strict" in printed
    found = json.loads((tmp_path / "s.json").read_text())
    assert found["precision"] == found["survey"]["precision"] == "strict"
    expected = random_cases(3, 7, Bounds((8, 64), (10**4, 10**6)))
    assert [Case.from_dict(each) for each in found["cases"]] == expected
    for each in found["cases"]:
        assert DEVICE not in each
        assert set(each[HOST]) == {"plan", "clgemm", "NumPy", ROUTED}
        assert all(each[HOST][name]["time_s"] > 0 for name in ("clgemm", "NumPy", ROUTED))
        assert each["regret"] > 0
        assert each[HOST][ROUTED]["side"] in (HOST, DEVICE)
        assert each[HOST]["plan"]["launches"]
    assert found["summary"][HOST]["NumPy"]["all"]["all"]["count"] == 3
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_a_survey_ends_when_its_time_is_up(monkeypatch):
    """It has measured some products of any size, one at least, and says how many."""
    now = [0.0]
    monkeypatch.setattr(survey_command.time, "monotonic", lambda: now[0])
    drawn = {}
    for minutes in (None, 2.0):
        args = Namespace(
            survey=40, seed=7, sides=None, work=None, data="normal", shapes=None, minutes=minutes
        )
        drawn[minutes] = survey_command.cases(args, ["NumPy"])
    assert drawn[2.0] != drawn[None]
    assert sorted(map(str, drawn[2.0])) == sorted(map(str, drawn[None]))
    report, seen = SurveyReport(MACHINE, survey=SURVEY), []
    for product in survey_command.within_time(args, drawn[2.0], report):
        seen.append(product)
        now[0] += 50.0
    assert seen == drawn[2.0][:3]
    assert report.notes == ["3 of 40 products were measured in 2 minutes"]
    args.minutes = 1e-9
    late = survey_command.within_time(args, drawn[2.0], SurveyReport(MACHINE, survey=SURVEY))
    assert len(list(late)) >= 1
    args.minutes = None
    assert list(survey_command.within_time(args, drawn[None], report)) == drawn[None]


def test_only_a_survey_has_minutes(capsys):
    """A benchmark of named shapes measures all of them."""
    assert main(["bench", "--shapes", "8", "--minutes", "1"]) != 0
    assert "--minutes is for a survey" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("peers", "contenders"),
    [
        (["cuBLAS"], {DEVICE: ["clgemm", "cuBLAS"]}),
        (["MKL"], {HOST: ["clgemm", "MKL"]}),
        (["NumPy", "MKL"], {HOST: ["clgemm", "NumPy", "MKL", ROUTED]}),
        (["NumPy", "cuBLAS"], {HOST: ["clgemm", "NumPy", ROUTED], DEVICE: ["clgemm", "cuBLAS"]}),
    ],
)
def test_the_peers_say_what_is_surveyed(peers, contenders, tmp_path):
    """Arrays without a peer are left out, and the regret is measured if NumPy is a peer."""
    tournament = Tournament({}, peers, survey_command.SETTINGS, tmp_path)
    survey_command.enter(tournament, peers)
    assert tournament.contenders == contenders


def test_a_survey_without_peers_fails(tmp_path):
    """A survey of which no peer is installed ends with an error."""
    with pytest.raises(RequestError, match="none of the peers is here"):
        survey_command.enter(Tournament({}, [], survey_command.SETTINGS, tmp_path), [])


def test_a_plan_that_fails_is_said():
    """The plan of a right product is kept for each mode; a failure is kept as its text."""

    class Planner:
        def ask(self, request, **keywords):
            assert (request, keywords["case"]) == ("plan", case.as_dict())
            if keywords["mode"] == DEVICE:
                raise RequestError("boom")
            return PLAN

    report = SurveyReport(MACHINE, survey=SURVEY)
    case, modes = made_up().results[0]
    survey_command.explain(report, Planner(), case, modes)
    assert report.plans[case][HOST] == PLAN
    assert report.plans[case][DEVICE]["launches"] == "no plan: boom"
    report.plans.clear()
    survey_command.explain(report, Planner(), case, {HOST: [right("clgemm", case, 1, worst=2)]})
    assert not report.plans


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--survey", "3", "--shapes", "8"], "--shapes and --survey exclude each other"),
        (["--survey", "3", "--peers", "none"], "a survey needs a peer"),
        (["--survey", "3", "--programs", "1"], "--survey and --programs exclude each other"),
        (["--survey", "3", "--sides", "9:4"], "sides=9:4 is not a range"),
        (["--survey", "3", "--sides", "1:2", "--work", "1e9:2e9"], "no product found within"),
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
    [["--sides", "64"], ["--work", "1e5:x"], ["--survey", "0"], ["--data", "odd"], ["--seed", "a"]],
)
def test_command_refuses_values(arguments, capsys):
    """A wrong value ends the command with argparse's error, which names it."""
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "--survey", "1", *arguments])
    assert arguments[1] in capsys.readouterr().err
