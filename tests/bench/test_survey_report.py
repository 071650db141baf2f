"""Tests of a survey's report, pictures and command."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from clgemm.__main__ import main
from clgemm.bench import survey_command, survey_plot
from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, ROUTED
from clgemm.bench.figures import Outcome
from clgemm.bench.pipe import RequestError
from clgemm.bench.rounds import Settings, Tournament
from clgemm.bench.survey import Bounds, random_cases
from clgemm.bench.survey_report import BEST, SurveyReport, as_json, print_survey

CASES = random_cases(40, 1, Bounds((1, 500), (10**5, 10**8)))
MACHINE = {
    "date": "2026-01-01T00:00:00",
    "python": "3",
    "clgemm": "0",
    "device": {"name": "D", "kind": "CPU", "platform": "P", "driver": "1", "compute_units": 2},
    "threads": 2,
    "peers": {"NumPy": "2 (openblas)", "MKL": "3"},
}
SURVEY = {
    "count": 40,
    "seed": 1,
    "sides": (1, 500),
    "work": (10**5, 10**8),
    "data": "normal",
    "precision": "strict",
}
PLAN = {"family": "blocked", "config": "work_m=8, width=16", "launches": "2 pack, 1 blocked"}


def right(name: str, case: Case, seconds: float, **values) -> Outcome:
    """Return a right outcome."""
    return Outcome(name, case, [seconds] * 3, **{"error": 1e-7, "worst": 0.1} | values)


def made_up(**bad: dict) -> SurveyReport:
    """Return a report in which NumPy takes 2 s, MKL 0.5 to 2.5 s, and clgemm 1 s.

    Parameters
    ----------
    bad : dict
        The values of the first product's outcomes, by contender.
    """
    report = SurveyReport(MACHINE, survey=SURVEY, notes=["a note"])
    for number, case in enumerate(CASES):
        seconds = {"clgemm": 1.0, "NumPy": 2.0, "MKL": 0.5 + number / 20, ROUTED: 1.5}
        values = bad if number == 0 else {}
        host = [right(name, case, s, **values.get(name, {})) for name, s in seconds.items()]
        device = [right("clgemm", case, 1.0), right("CLBlast", case, 3.0)]
        report.results.append((case, {HOST: host, DEVICE: device}))
        report.plans[case] = {HOST: PLAN, DEVICE: PLAN}
    return report


def test_ratios_are_those_of_each_peer_and_of_the_best():
    """The best peer of a product is the one with the least ratio; alone, it is not named."""
    report = made_up()
    ratios = report.ratios(HOST)
    assert list(ratios) == [BEST, "NumPy", "MKL"]
    assert set(ratios["NumPy"].values()) == {2}
    assert [ratios["MKL"][case] for case in CASES] == [0.5 + i / 20 for i in range(40)]
    assert [ratios[BEST][case] for case in CASES] == [min(2, 0.5 + i / 20) for i in range(40)]
    assert report.ratios(DEVICE) == {"CLBlast": dict.fromkeys(CASES, 3)}
    assert report.regrets() == dict.fromkeys(CASES, 1.5)
    assert report.ok


@pytest.mark.parametrize("wrong", ["clgemm", ROUTED])
def test_a_wrong_product_has_no_ratio(wrong, capsys):
    """A wrong product of clgemm has neither ratio nor regret, is named, and the run fails."""
    report = made_up(**{wrong: {"worst": 2.0}})
    assert not report.ok
    assert CASES[0] not in report.regrets()
    assert (CASES[0] in report.ratios(HOST)["NumPy"]) == (wrong == ROUTED)
    print_survey(report)
    assert f"1 products ({CASES[0].label}): {wrong}: WRONG" in capsys.readouterr().out


def test_a_skipped_peer_is_no_error(capsys):
    """A product that one peer skips keeps the ratio to the other, and the reason is printed."""
    report = made_up(MKL={"failure": "skipped: it needs operands with a unit stride"})
    ratios = report.ratios(HOST)
    assert report.ok
    assert CASES[0] not in ratios["MKL"]
    assert ratios[BEST][CASES[0]] == 2
    print_survey(report)
    assert "MKL: skipped: it needs operands with a unit stride" in capsys.readouterr().out


def test_the_report_has_groups_and_the_worst(capsys):
    """The report names the survey, each group, and the twenty worst products with their plans."""
    print_survey(made_up())
    printed = capsys.readouterr().out
    for text in (
        *("40 random products, seed 1", "sides 1 to 500", "multiply-adds 1e5 to 1e8"),
        *("NumPy arrays: how many times faster than best peer", "mean (5 %) to each peer"),
        *("2.00 (2.00)", "1.35 (0.60)"),
        *("device arrays: how many times faster than CLBlast", "1e5 to 1e6", "batch", "1 to 7"),
        *("the 20 worst", "2 pack, 1 blocked; work_m=8, width=16", "a note"),
        *("matmul of NumPy arrays: its time over the better side's", "regret"),
    ):
        assert text in printed
    worst = printed[printed.index("NumPy arrays: the 20 worst") :].split("device arrays")[0]
    lines = [line for line in worst.splitlines() if "work_m=8" in line]
    assert len(lines) == 20
    assert CASES[0].label in lines[0]
    assert "0.50" in lines[0]


def test_the_json_is_for_the_docs(tmp_path, monkeypatch):
    """The JSON holds each product and the statistics, and docs/render.py makes a table of it."""
    found = json.loads(as_json(made_up()))
    assert found["survey"] == SURVEY | {"sides": [1, 500], "work": [10**5, 10**8]}
    assert found["summary"][DEVICE]["CLBlast"]["all"]["all"]["mean"] == 3
    assert found["regret"]["all"]["all"] == {
        **dict.fromkeys(("mean", "low", "median", "high", "least", "greatest"), 1.5),
        "count": 40,
    }
    assert [Case.from_dict(each) for each in found["cases"]] == CASES
    first = found["cases"][0]
    assert first[HOST]["plan"] == PLAN
    assert first[HOST]["MKL"] == {"time_s": 0.5, "ratio": 0.5}
    assert first["regret"] == 1.5
    script = Path(__file__).resolve().parents[2] / "docs" / "render.py"
    specification = importlib.util.spec_from_file_location("render_survey", script)
    render = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(render)
    monkeypatch.setattr(render, "MEASURED", tmp_path)
    (tmp_path / "survey_x.json").write_text(json.dumps(found))
    table = render.table("survey_x")
    assert table.columns[1:3] == ["products", "NumPy arrays: best peer"]
    assert table.columns[-2:] == ["on the device: CLBlast", "regret of `matmul`"]
    assert {len(row) for row in table.rows} == {len(table.columns)} == {len(table.align)}
    assert table.rows[0][0:2] == ["all", "40"]
    assert table.rows[0][-2:] == ["3.00 (3.00 to 3.00)", "1.50 (1.50 to 1.50)"]
    assert "--survey 40 --seed 1 --sides 1:500" in table.text()
    assert "Greatest regret: 1.50." in table.text()


def test_pictures_are_drawn(tmp_path):
    """The pictures have a curve and points for each peer, and two more for the regrets."""
    pytest.importorskip("matplotlib")
    figure = survey_plot.picture(made_up())
    distribution, over_work, *of_regrets = figure.axes
    assert len(of_regrets) == 2
    labels = {line.get_label() for line in distribution.get_lines()}
    assert {"to best peer, NumPy arrays", "to CLBlast, on the device"} <= labels
    curve = next(x for x in distribution.get_lines() if x.get_label() == "to MKL, NumPy arrays")
    x, y = curve.get_data()
    assert (list(x), list(y)) == (sorted(x), sorted(y))
    assert (x[-1], y[0], y[-1]) == (0.5 + 39 / 20, 0, 100)
    points = next(x for x in over_work.get_lines() if x.get_label() == "to MKL, NumPy arrays")
    assert list(points.get_data()[0]) == [case.work for case in CASES]
    alone = SurveyReport(MACHINE, survey=SURVEY)
    alone.results = [(case, {DEVICE: modes[DEVICE]}) for case, modes in made_up().results]
    assert len(survey_plot.picture(alone).axes) == 2
    survey_plot.draw(SurveyReport(MACHINE, survey=SURVEY), str(tmp_path / "s.png"))
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


# The command


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
        assert each[HOST]["plan"]["launches"]
    assert found["summary"][HOST]["NumPy"]["all"]["all"]["count"] == 3
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


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
        (["--survey", "3", "--timeline"], "--timeline and --survey exclude each other"),
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


def test_the_contender_of_the_regret_chooses_its_side(monkeypatch):
    """Only this contender's process has the user's crossover; all others are on the device."""
    from clgemm.bench.host_blas_peers import OTHER_OPENBLAS
    from clgemm.bench.pipe import environment, own_environment

    monkeypatch.delenv("CLGEMM_THRESHOLD", raising=False)
    variables = environment(2)
    assert own_environment("clgemm", variables)["CLGEMM_THRESHOLD"] == "0"
    assert "CLGEMM_THRESHOLD" not in own_environment(ROUTED, variables)
    monkeypatch.setenv("CLGEMM_THRESHOLD", "1e9")
    assert own_environment(ROUTED, environment(2))["CLGEMM_THRESHOLD"] == "1e9"
    assert own_environment(OTHER_OPENBLAS, variables)["OPENBLAS_CORETYPE"] == "SkylakeX"
    assert own_environment("NumPy", variables) == variables
