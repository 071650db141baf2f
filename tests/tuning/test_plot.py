"""Tests of the picture of a search."""

from __future__ import annotations

import pytest

from clgemm.core.problem import SHAPE_CLASSES
from clgemm.hardware.device import identify
from clgemm.kernels.common.family import Choice
from clgemm.kernels.direct.family import direct_config
from clgemm.tuning.trials import Trial, Trials


@pytest.mark.parametrize("classes", [1, 2, 3, 5])
def test_the_picture_of_a_search_is_full_and_explained(classes, empty):
    """As many columns as there are classes, and a legend that covers no panel."""
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from clgemm.tuning import plot

    choice = Choice(direct_config(empty.limits), None)
    trials = Trials(identify(empty))
    for name in SHAPE_CLASSES[:classes]:
        for number in range(classes):
            trials.add(Trial(name, f"{number}", choice, number / 2 + 0.1, 5.0, ""))
        trials.add(Trial(name, "bad", choice, 0.0, 0.0, "wrong"))
    figure = plot.picture(trials, "D")
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
