"""Tests of the pictures of a benchmark."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bench_results import CUBE, fake_report, outcome
from hypothesis import given
from hypothesis import strategies as st

from clgemm.bench.cases import Case, default_cases
from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.report import MARKERS, draw, picture, spread_out
from clgemm.bench.rounds import Outcome


def test_pictures_of_little(tmp_path):
    """A report without a peak or a right result can be drawn."""
    bad = fake_report([(CUBE, {HOST: [outcome(failure="boom")], DEVICE: [outcome(worst=9)]})])
    bad.roofs = {"failures": ["no peak"]}
    draw(bad, tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def drawn(figure):
    """Lay out a figure, and return its renderer."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def whole_report(noise=1.1):
    """Return a report of all default cases with two contenders in each mode."""
    results = []
    for number, case in enumerate(default_cases()):
        modes = {}
        for mode, peer in ((HOST, "NumPy"), (DEVICE, "cuBLAS")):
            modes[mode] = [
                Outcome(name, case, [seconds * (1 + number % 5), seconds, noise * seconds], 0, 0.1)
                for name, seconds in (("clgemm", case.flops / 4e6), (peer, case.flops / 1e6))
            ]
        results.append((case, modes))
    report = fake_report(results)
    report.roofs = {"gflops": 2e-3, "bandwidth_gbps": 1e-4, "failures": []}
    return report


def points(axes):
    """Return the places of the markers of axes on the page."""
    lines = [line for line in axes.get_lines() if line.get_marker() in MARKERS.values()]
    return [place for line in lines for place in line.get_transform().transform(line.get_xydata())]


def test_each_shape_of_the_roofline_is_named():
    """Each shape of the roofline is named once above its points, and no names overlap."""
    pytest.importorskip("matplotlib")
    from matplotlib.text import Text

    figure = picture(whole_report())
    renderer = drawn(figure)
    axes = figure.subfigs[0].subfigs[0].axes[0]
    names = [text for text in axes.texts if text.get_rotation() == 90]
    texts = [text.get_text() for text in names]
    assert "1024, 8 layouts" in texts
    assert "1000x777x3000, 2 layouts" in texts
    assert {"64", "8192", "64x64x100000", "100 of 128, one B"} <= set(texts)
    assert len(texts) == len(set(texts)) == 21
    boxes = [Text.get_window_extent(text, renderer) for text in names]  # without its line
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        assert box.y0 > axes.get_window_extent(renderer).y1
        assert box.x1 < figure.bbox.x1
    titles = [axes._left_title.get_window_extent(renderer)]
    assert not any(box.overlaps(title) for box in boxes for title in titles)


def test_labels_are_of_what_is_drawn():
    """A case that was skipped has no label in the roofline."""
    pytest.importorskip("matplotlib")
    report = whole_report()
    for outcomes in report.results[0][1].values():
        for each in outcomes:
            each.failure = "skipped: too long"
    figure = picture(report)
    axes = figure.subfigs[0].subfigs[0].axes[0]
    assert "64" not in [text.get_text() for text in axes.texts]
    assert "128" in [text.get_text() for text in axes.texts]


def test_legends_cover_no_point():
    """Legends are outside all axes, where no point lies."""
    pytest.importorskip("matplotlib")
    figure = picture(whole_report())
    renderer = drawn(figure)
    left, right = figure.subfigs[0].subfigs
    below = figure.subfigs[1].axes[0]
    legends = [left.legends[0], right.legends[0], below.get_legend()]
    axes = [left.axes[0], right.axes[0], below]
    for legend in legends:
        box = legend.get_window_extent(renderer)
        for each in axes:
            assert points(each)
            assert not any(box.contains(*place) for place in points(each))
            assert not box.overlaps(each.get_window_extent(renderer))


def test_a_ratio_has_the_range_of_its_rounds():
    """The median is a marker, the least and the greatest are the ends of a bar, within the axes."""
    pytest.importorskip("matplotlib")
    case = Case("rectangular", 6, 3, 4)
    ours = Outcome("clgemm", case, [1.0] * 3, 0, 0.1)
    numpy = Outcome("NumPy", case, [2.0, 90.0, 100.0], 0, 0.1)
    figure = picture(fake_report([(case, {HOST: [ours, numpy]})]))
    drawn(figure)
    axes = figure.subfigs[1].axes[0]
    assert any(line.get_xydata().tolist() == [[0.0, 90.0]] for line in axes.get_lines())
    segments = [x.tolist() for c in axes.collections for x in c.get_segments()]
    assert segments == [[[0.0, 2.0], [0.0, 100.0]]]
    low, high = axes.get_ylim()
    assert low < 2 < 100 < high


@given(st.lists(st.floats(0, 1), max_size=25).map(sorted), st.sampled_from([0.0, 0.01, 0.026, 0.3]))
def test_labels_are_spread_out(places, gap):
    """Labels get a gap between neighbours, and labels that are far apart do not move."""
    found = spread_out(places, gap)
    assert all(b - a > gap - 1e-9 for a, b in pairwise(found))
    for number, place in enumerate(places):
        others = places[:number] + places[number + 1 :]
        if all(abs(place - other) > len(places) * gap for other in others):
            assert found[number] == pytest.approx(place)
