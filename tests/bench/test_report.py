"""Tests of the report of a benchmark."""

from __future__ import annotations

import json

import pytest
from bench_results import CUBE, fake_report, outcome

from clgemm.bench import report
from clgemm.bench.contenders import HOST


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
