"""Tests of the cases of a benchmark."""

from __future__ import annotations

import pytest

from clgemm.bench.cases import Case, default_cases, parse_shapes, quick_cases


def test_shapes_are_parsed():
    """An argument of squares, products and batches gives their cases."""
    square, product, stack = parse_shapes("1024, 1000x777x3000,100x1x2x3")
    assert square == Case("square", 1024, 1024, 1024)
    assert product == Case("rectangular", 1000, 777, 3000)
    assert stack == Case("batch", 1, 2, 3, batch=100)
    assert [c.label for c in (square, product, stack)] == ["1024", "1000x777x3000", "100 of 1x2x3"]


@pytest.mark.parametrize("text", ["", "12x12", "0", "5x0x5", "a", "-3", "1.5", "1x2x3x4x5", "8,,8"])
def test_bad_shapes_are_named(text):
    """The error for a bad shape names it."""
    with pytest.raises(ValueError, match="is not a shape"):
        parse_shapes(text)


def test_cases_are_refused():
    """The error for a bad case names the parameter and its value."""
    with pytest.raises(ValueError, match="k=0 is less than 1"):
        Case("square", 1, 1, 0)
    with pytest.raises(ValueError, match="layout_b='Q' is not one of"):
        Case("square", 1, 1, 1, "N", "Q")


def test_work_and_traffic_are_counted():
    """The bytes count a shared B once, and the operations count it for each A."""
    stack, shared = (Case("batch", 2, 3, 5, batch=7, shared_b=shared) for shared in (False, True))
    assert stack.flops == shared.flops == 2 * 2 * 3 * 5 * 7
    assert stack.size_bytes == 4 * 7 * (10 + 15 + 6)
    assert shared.size_bytes == 4 * (7 * (10 + 6) + 15)
    assert shared.intensity == shared.flops / shared.size_bytes


def test_the_default_cases_are_those_promised():
    """The default cases cover squares, layouts, skinny and deep shapes and batches, none twice."""
    cases = default_cases()
    assert len(set(cases)) == len(cases)
    assert {c.m for c in cases if c.group == "square"} == {2**p for p in range(6, 14)}
    assert {c.layout_a + c.layout_b for c in cases} >= {"NN", "NT", "TN", "TT", "SS", "DD"}
    shapes = {(c.m, c.n, c.k) for c in cases}
    assert shapes >= {(1000, 777, 3000), (4096, 64, 4096), (64, 4096, 4096), (1, 4096, 4096)}
    assert {(c.batch, c.shared_b) for c in cases} >= {(100, False), (100, True)}
    assert sum(c.flops for c in quick_cases()) < 1e10
    for case in cases:
        assert Case.from_dict({**case.as_dict(), "label": "ignored"}) == case
