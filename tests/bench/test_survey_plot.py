"""Tests of the pictures of a survey."""

from __future__ import annotations

import pytest
from surveyed import CASES, MACHINE, SURVEY, made_up

from clgemm.bench import survey_plot
from clgemm.bench.contenders import DEVICE
from clgemm.bench.survey_report import SurveyReport


def test_pictures_are_drawn(tmp_path):
    """The pictures have a curve and points for each peer, and two more for the regrets."""
    pytest.importorskip("matplotlib")
    figure = survey_plot.picture(made_up())
    distribution, over_work, *of_regrets = figure.axes
    assert len(of_regrets) == 2
    curves = {line.get_label(): line.get_data()[0] for line in of_regrets[0].get_lines()}
    assert set(curves["regret"]) == {1.5}
    assert set(curves["of it, the choice"]) == {1, 2}
    for axis in (of_regrets[0].xaxis, of_regrets[1].yaxis):
        low, high = axis.get_view_interval()
        assert sum(low <= tick <= high for tick in axis.get_majorticklocs()) >= 3
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
