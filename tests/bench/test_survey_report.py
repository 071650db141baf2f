"""Tests of a survey's report."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from surveyed import CASES, PLAN, SURVEY, made_up

from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, ROUTED
from clgemm.bench.survey_report import BEST, as_json, print_survey


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
    assert list(report.regrets_of_choice().values()) == [1.0, 2.0] * 20
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
        *("the chosen side's time over the better side's", "1.41", "of it, the choice"),
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
    assert found["regret_of_choice"]["all"]["all"]["greatest"] == 2
    assert [Case.from_dict(each) for each in found["cases"]] == CASES
    first = found["cases"][0]
    assert first[HOST]["plan"] == PLAN
    assert first[HOST]["MKL"] == {"time_s": 0.5, "ratio": 0.5}
    assert first["regret"] == 1.5
    assert [each["regret_of_choice"] for each in found["cases"][:2]] == [1, 2]
    assert [each[HOST][ROUTED]["side"] for each in found["cases"][:2]] == [DEVICE, HOST]
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
