"""Tests of the log of trials, and of its picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import clgemm
from clgemm.core.problem import SHAPE_CLASSES
from clgemm.hardware.device import identify
from clgemm.kernels.common.family import Choice
from clgemm.kernels.direct.family import direct_config
from clgemm.records import tuned
from clgemm.tuning.trials import Trial, Trials, picture

pytestmark = pytest.mark.one_device


def test_a_log_cut_short_is_read_as_far_as_it_goes(empty):
    """Every whole line counts."""
    who, choice = identify(empty), Choice(direct_config(empty.limits), None)
    trials = Trials(who)
    for number in range(3):
        trials.add(Trial("tiny", f"{number}", choice, 1.0, 2.0, ""))
    text = trials.path.read_text()
    trials.path.write_text(text[:-30] + "\n{}\nnonsense\n")
    assert [t.shapes for t in Trials(who).all] == ["0", "1"]


def test_two_tuners_at_once(empty):
    """Both end with their records stored, and every trial of both is in the log."""
    script = "import clgemm; clgemm.tune({}, shapes=[{}], minutes=0.02)"
    number = clgemm.devices().index(empty)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    both = [
        subprocess.Popen([sys.executable, "-c", script.format(number, shape)], env=variables)
        for shape in ((12, 12, 12), (9, 10, 10, 10))
    ]
    assert [process.wait(120) for process in both] == [0, 0]
    tuned.forget()
    stored = tuned.own_records(identify(empty))
    assert {r.shape_class for r in stored} == {"tiny", "batched"}
    trials = Trials(identify(empty))
    lines = trials.path.read_text().splitlines()
    assert len(trials.all) == len(lines) == len([json.loads(line) for line in lines])
    assert {t.shape_class for t in trials.all} == {"tiny", "batched"}


@pytest.mark.parametrize("classes", [1, 2, 3, 5])
def test_the_picture_of_a_search_is_full_and_explained(classes, empty):
    """As many columns as there are classes, and a legend that covers no panel."""
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    choice = Choice(direct_config(empty.limits), None)
    trials = Trials(identify(empty))
    for name in SHAPE_CLASSES[:classes]:
        for number in range(classes):
            trials.add(Trial(name, f"{number}", choice, number / 2 + 0.1, 5.0, ""))
        trials.add(Trial(name, "bad", choice, 0.0, 0.0, "wrong"))
    figure = picture(trials, "D")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    panels = figure.axes
    assert len(panels) == classes
    right = max(axis.get_window_extent(renderer).x1 for axis in panels[:3])
    assert right > 0.75 * figure.bbox.width
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("candidate", "rejected", "best so far", "the default"),
    ]
    outlines = [axis.get_window_extent(renderer) for axis in panels]
    for axis in panels:
        labels = [tick.get_text() for tick in axis.get_xticklabels()]
        assert all(label.isdecimal() for label in labels)
    box = legend.get_window_extent(renderer)
    assert not any(box.overlaps(outline) for outline in outlines)
