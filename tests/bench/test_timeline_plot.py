"""Tests of the picture of a timeline."""

from __future__ import annotations

from clgemm.bench.spans import CALLER, COMPUTE, DOWN, UP, Span, Timeline
from clgemm.bench.timeline_plot import picture


def test_the_picture_has_a_row_for_each_lane():
    """Caller, threads, link up, compute, link down, from the top."""
    made = Span(CALLER, "other", 0, 9), Span("clgemm-copy_0", "copy in", 1, 2, 3)
    line = Timeline((*made, Span(UP, "", 2, 3, 3)), 0, 10, 1)
    axes = picture(line, "title").axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [CALLER, "clgemm-copy_0", UP, COMPUTE, DOWN]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
