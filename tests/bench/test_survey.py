"""Tests of ``python -m clgemm bench --survey`` and of its statistics."""

from __future__ import annotations

import importlib.util
import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from bench_results import CASES, SURVEY, made_up

from clgemm.__main__ import main
from clgemm.bench import survey
from clgemm.bench.cases import KINDS, Bounds, Case, random_cases
from clgemm.bench.contenders import CONTROL, DEVICE, HOST, ROUTED
from clgemm.bench.report import as_json
from clgemm.bench.rounds import Outcome, Settings
from clgemm.bench.survey import (
    BEST,
    print_survey,
    regret,
    summary,
)
from clgemm.core.child import RequestError

CUBE = Case("square", 8, 8, 8)


def test_ratios_are_summarised():
    """The mean is geometric, and percentiles are NumPy's."""
    ratios = [0.5, 2.0, 1.0, 4.0, 8.0, 0.25]
    found = summary(ratios)
    assert found["count"] == 6
    assert found["mean"] == pytest.approx(np.exp(np.mean(np.log(ratios))))
    percentiles = [found[name] for name in ("low", "median", "high")]
    assert percentiles == pytest.approx(np.percentile(ratios, (5, 50, 95)))
    assert (found["least"], found["greatest"]) == (0.25, 8)
    assert summary([3.0])["high"] == 3


def test_every_kind_layout_and_decade_is_drawn():
    """Three hundred products have every kind, layout and decade of work, none too rarely."""
    cases = random_cases(300, 5, Bounds())
    groups = survey.groupings(cases)
    assert set(groups["kind"]) == set(KINDS)
    assert min(map(len, groups["kind"].values())) >= 8
    assert {case.layout_a for case in cases} == {case.layout_b for case in cases} == set("NTSD")
    assert {f"1e{p} to 1e{p + 1}" for p in range(5, 12)} == set(groups["multiply-adds"])
    assert {case.shared_b for case in cases if case.batch > 1} == {False, True}
    for name, found in groups.items():
        assert sum(map(len, found.values())) == 300, name


def test_products_are_grouped():
    """Products are grouped by work, kind, smallest side and layout, in a fixed order."""
    small = Case("batch", 5, 6, 7, "T", "N", batch=3)
    large = Case("square", 1000, 1000, 1000, "S", "T")
    plain = Case("any sizes", 70, 300, 100)
    groups = survey.groupings([large, plain, small])
    assert groups["all"] == {"all": [small, plain, large]}
    assert groups["multiply-adds"] == {
        "1e2 to 1e3": [small],
        "1e6 to 1e7": [plain],
        "1e9 to 1e10": [large],
    }
    assert list(groups["kind"]) == ["any sizes", "square", "batch"]
    assert groups["smallest side"] == {
        "1 to 7": [small],
        "64 to 383": [plain],
        "384 or more": [large],
    }
    assert groups["layout"] == {"row-major": [plain], "transposed": [small], "sliced": [large]}


def outcome(name: str, *rounds_s: float, worst: float = 0.1) -> Outcome:
    """Return an outcome with these times."""
    return Outcome(name, CUBE, list(rounds_s), 1e-7, worst)


def test_the_regret_is_over_the_better_side():
    """The regret is the median of the ratios to the side whose median is less."""
    routed = outcome("clgemm.matmul", 2, 6, 4)
    host, device = outcome("NumPy", 9, 1, 3), outcome("clgemm", 2, 2, 2)
    assert regret(routed, host, device) == 2
    assert regret(routed, outcome("NumPy", 1, 1, 1), device) == 4
    assert regret(routed, host, outcome("clgemm", 2, 2, 2, worst=3)) is None


def test_the_control_is_numpy_again_where_numpy_is_better():
    """Of other products it says nothing: the better side was not measured twice."""
    report = made_up()
    first, second = report.results[0], report.results[1]
    for (_, modes), device_s in ((first, 1.0), (second, 9.0)):
        modes[HOST] = [
            *(outcome("clgemm", *[device_s] * 3), outcome("NumPy", 2, 2, 2)),
            *(outcome(ROUTED, 2, 2, 2), outcome(CONTROL, 3, 3, 3)),
        ]
    assert report.regrets(CONTROL) == {second[0]: 1.5}
    assert "NumPy again" not in report.ratios(HOST)


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
    """The report names the survey, each group, and the twenty worst products."""
    print_survey(made_up())
    printed = capsys.readouterr().out
    for text in (
        *("40 random products, seed 1", "sides 1 to 500", "multiply-adds 1e5 to 1e8"),
        *("NumPy arrays: how many times faster than best peer", "mean (5 %) to each peer"),
        *("2.00 (2.00)", "1.35 (0.60)"),
        *("device arrays: how many times faster than CLBlast", "1e5 to 1e6", "batch", "1 to 7"),
        *("the 20 worst", "a note"),
        *("matmul of NumPy arrays: its time over the better side's", "regret"),
    ):
        assert text in printed
    worst = printed[printed.index("NumPy arrays: the 20 worst") :].split("device arrays")[0]
    lines = [line for line in worst.splitlines() if line.split()[-3:-2] in (["MKL"], ["NumPy"])]
    assert len(lines) == 20
    assert CASES[0].label in lines[0]
    assert "0.50" in lines[0]


def test_the_json_is_for_the_docs(tmp_path, monkeypatch):
    """The JSON holds each product and the statistics, and docs/render.py makes a table of it."""
    found = json.loads(as_json(made_up()))
    assert found["survey"] == SURVEY | {"sides": [1, 500], "work": [10**5, 10**8]}
    assert found["summary"][DEVICE]["CLBlast"]["all"]["all"]["mean"] == pytest.approx(3)
    assert found["regret"]["all"]["all"] == {
        **dict.fromkeys(("low", "median", "high", "least", "greatest"), 1.5),
        "mean": pytest.approx(1.5),
        "count": 40,
    }
    assert [Case.from_dict(each) for each in found["cases"]] == CASES
    first = found["cases"][0]
    of = {each["contender"]: each for each in first[HOST]}
    assert of["MKL"]["time_s"]["median"] == of["MKL"]["clgemm_is_faster_by"]["median"] == 0.5
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


@pytest.fixture
def short_turns(monkeypatch):
    """Make a survey's turns short."""
    short = Settings(rounds=2, turn_s=0.001, pause_s=0.0)
    monkeypatch.setattr(survey, "SETTINGS", short)


def test_a_survey_runs_from_end_to_end(short_turns, tmp_path, capsys):
    """Three products against NumPy: checked, with ratios and regrets."""
    files = ["--json", str(tmp_path / "s.json")]
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
        assert [outcome["contender"] for outcome in each[HOST]] == [
            *("clgemm", "NumPy", ROUTED, CONTROL)
        ]
        assert all(outcome["time_s"]["median"] > 0 for outcome in each[HOST])
        assert each["regret"] > 0
    assert found["summary"][HOST]["NumPy"]["all"]["all"]["count"] == 3


def test_a_survey_that_may_be_too_long_is_shuffled():
    """With --minutes, the products are the same in another order, which favours no size."""
    args = Namespace(survey=40, seed=7, sides=None, work=None, data="normal", shapes=None)
    whole, shuffled = (
        survey.cases(Namespace(**vars(args), minutes=minutes), ["NumPy"]) for minutes in (None, 2.0)
    )
    assert shuffled != whole
    assert sorted(map(str, shuffled)) == sorted(map(str, whole))


def test_a_survey_ends_when_its_time_is_up(short_turns, capsys):
    """It measures one product at least, and says how many there were."""
    arguments = ["--survey", "3", "--sides", "8:64", "--work", "1e4:1e6", "--minutes", "1e-6"]
    assert main(["bench", *arguments, "--peers", "numpy"]) == 0
    assert "1 of 3 products were measured in 1e-06 minutes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("peers", "contenders"),
    [
        (["cuBLAS"], {DEVICE: ["clgemm", "cuBLAS"]}),
        (["MKL"], {HOST: ["clgemm", "MKL"]}),
        (["NumPy", "MKL"], {HOST: ["clgemm", "NumPy", "MKL", ROUTED, CONTROL]}),
        (
            ["NumPy", "cuBLAS"],
            {HOST: ["clgemm", "NumPy", ROUTED, CONTROL], DEVICE: ["clgemm", "cuBLAS"]},
        ),
    ],
)
def test_the_peers_say_what_is_surveyed(peers, contenders):
    """Arrays without a peer are left out, and the regret is measured if NumPy is a peer."""
    assert survey.contenders(peers) == contenders


def test_a_survey_without_peers_fails():
    """A survey of which no peer is installed ends with an error."""
    with pytest.raises(RequestError, match="none of the peers is here"):
        survey.contenders([])
