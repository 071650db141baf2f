"""Tests of the cases of a benchmark, of their operands and of how results are checked."""

from __future__ import annotations

import numpy as np
import pytest

from clgemm.bench.cases import (
    COLUMNS_IN_FRONT,
    DATA,
    LAYOUTS,
    Case,
    default_cases,
    judge,
    operands,
    parse_shapes,
    quick_cases,
    reference,
)


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_lie_as_their_layouts_say(layout):
    """Operands are the same each time and have the strides of their layouts."""
    case = Case("", 6, 8, 7, layout, layout, batch=3)
    (a, b), (again, _) = operands(case), operands(case)
    np.testing.assert_array_equal(a, again)
    assert (a.shape, b.shape) == ((3, 6, 7), (3, 7, 8))
    assert a.dtype == np.float32
    assert abs(a).max() <= 1
    strides = {
        "N": (28, 4),
        "T": (4, 24),
        "S": (2 * 4 * (7 + COLUMNS_IN_FRONT), 4),
        "D": (112, 8),
    }
    assert a.strides[1:] == strides[layout]
    assert reference(case).shape == (3, 6, 8)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_wrong_element_is_found(batch, monkeypatch):
    """judge accepts rounding errors and finds a wrong element, a NaN and a wrong shape."""
    monkeypatch.setattr("clgemm.bench.cases.BLOCK", 50)  # several blocks, the last one short
    case = Case("", 17, 11, 40, batch=batch, shared_b=batch > 1)
    expected = reference(case)
    c = np.matmul(*operands(case))
    error, worst = judge(case, c, expected)
    assert error == pytest.approx(np.linalg.norm(c - expected) / np.linalg.norm(expected))
    assert worst <= 1
    off = c.copy()
    off[..., -1, -1] += 0.01
    assert judge(case, off, expected)[1] > 1
    off[..., 0, 0] = np.nan
    assert np.isnan(judge(case, off, expected)[1])
    with pytest.raises(ValueError, match="shape"):
        judge(case, c[..., 1:], expected)


@pytest.mark.parametrize("data", DATA)
def test_data_have_their_distribution(data):
    """Uniform data are within 1, normal data have deviation 1, wide data a wide range."""
    a, _ = operands(Case("", 300, 5, 300, data=data))
    again, _ = operands(Case("", 300, 5, 300, data=data))
    np.testing.assert_array_equal(a, again)
    assert (a.dtype, a.shape) == (np.float32, (300, 300))
    sizes = np.log(np.abs(a[a != 0]).astype(np.float64))
    if data == "uniform":
        assert abs(a).max() <= 1
    elif data == "normal":
        assert abs(a.std() - 1) < 0.05
    else:
        # The logarithm of a normal number's size has a variance of pi^2 / 8.
        assert abs(sizes.std() - np.hypot(4, np.pi / np.sqrt(8))) < 0.1


def test_each_mode_is_held_to_its_promise():
    """An error is judged by the mode's bound: "fast" by the largest element of each piece."""
    case = Case("", 1, 1, 128, "N", "T", data="wide")
    a, b = (np.abs(x.astype(np.float64)) for x in operands(case))
    expected = reference(case)

    def gamma(n: int) -> float:
        return n * 2.0**-24 / (1 - n * 2.0**-24)

    euclid = np.linalg.norm(a) * np.linalg.norm(b)
    pieces = [np.linalg.norm([x.flat[:64].max(), x.flat[64:].max()]) for x in (a, b)]
    bounds = {
        "strict": gamma(130) * euclid,
        "float32": gamma(192) * euclid,
        "fast": gamma(256) * 64 * pieces[0] * pieces[1],
    }
    assert bounds["strict"] < bounds["float32"] < bounds["fast"]
    for mode, bound in bounds.items():
        for factor in (0.9, 1.1):
            off = expected + factor * bound
            worst = judge(case, off, expected, mode)[1]
            assert worst == pytest.approx(factor, rel=1e-6), mode
