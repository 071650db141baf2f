"""Tests of a benchmark's products: named, random, their operands, and how results are checked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clgemm.bench.cases import (
    COLUMNS_IN_FRONT,
    DATA,
    KINDS,
    LAYOUTS,
    STORAGE_BYTES,
    Bounds,
    Case,
    Draw,
    default_cases,
    judge,
    operands,
    parse_shapes,
    possible_kinds,
    quick_cases,
    random_cases,
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


def test_a_seed_gives_the_same_products_everywhere():
    """These products of seed 1 were drawn on one machine; any other draws them too."""
    labels = [case.label for case in random_cases(8, 1, Bounds())]
    assert labels == SEED_1
    assert labels != [case.label for case in random_cases(8, 2, Bounds())]


SEED_1 = [
    *("8x11x1918", "63x63x129", "5077x107x1 TN", "344x1664x21 TT"),
    *("3727x1655x11", "921x13918x316", "13759x1793x191 DT", "1088x1024x8832 NT"),
]


@given(
    seed=st.integers(0, 10**6),
    sides=st.tuples(st.integers(1, 300), st.integers(1, 60)),
    work=st.tuples(st.integers(3, 9), st.integers(1, 5)),
)
@settings(deadline=None, max_examples=10)
def test_products_are_within_the_bounds(seed, sides, work):
    """Sides, work and storage are within the bounds, or the error names the bounds."""
    low, factor = sides
    bounds = Bounds((low, low * factor), (10 ** work[0], 10 ** sum(work)))
    try:
        cases = random_cases(12, seed, bounds, "wide")
    except ValueError as error:
        assert str(bounds) in str(error)  # noqa: PT017 - there may be such products or none
        return
    assert len(set(cases)) == 12
    assert [case.work for case in cases] == sorted(case.work for case in cases)
    for case in cases:
        assert low <= min(case.m, case.n, case.k)
        assert max(case.m, case.n, case.k) <= low * factor
        assert bounds.work[0] <= case.work <= bounds.work[1]
        assert case.size_bytes <= STORAGE_BYTES
        assert case.data == "wide"


def test_a_longer_survey_has_the_products_of_a_shorter_one():
    """A survey of more products of the same seed contains those of a shorter one."""
    assert set(random_cases(20, 3, Bounds())) <= set(random_cases(60, 3, Bounds()))


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        ("square", lambda m, n, k: m == n == k),
        ("multiples of 8", lambda m, n, k: m % 8 == n % 8 == k % 8 == 0),
        ("multiples of 64", lambda m, n, k: m % 64 == n % 64 == k % 64 == 0),
        ("one off multiples of 64", lambda *sides: {x % 64 for x in sides} <= {1, 63}),
        ("short k", lambda m, n, k: k <= 32 and min(m, n) >= 64),
        ("long k", lambda m, n, k: k >= 1000 and max(m, n) <= 128),
        ("few rows or columns", lambda m, n, k: min(m, n) <= 64 and min(max(m, n), k) >= 128),
    ],
)
def test_kinds_are_what_they_are_called(kind, fits):
    """Each product has the sides that the name of its kind says."""
    chosen = [case for case in random_cases(200, 4, Bounds()) if case.group == kind]
    assert len(chosen) > 4
    assert all(fits(case.m, case.n, case.k) for case in chosen)


def test_sizes_are_log_uniform():
    """A fifth of the sizes between 10 and 10**6 is in each decade, within 5 standard deviations."""
    draw = Draw(0, Bounds((10, 10**6)))
    sizes = [draw.side() for _ in range(5000)]
    for power in range(1, 6):
        share = sum(10**power <= size < 10 ** (power + 1) for size in sizes) / len(sizes)
        assert abs(share - 0.2) < 5 * math.sqrt(0.2 * 0.8 / len(sizes))


def test_impossible_kinds_are_left_out():
    """Kinds outside the bounds are not drawn; without any, the error names the bounds."""
    bounds = Bounds((64, 2048))
    assert set(KINDS) - set(possible_kinds(bounds)) == {"short k"}
    assert not [case for case in random_cases(60, 1, bounds) if case.group == "short k"]
    with pytest.raises(ValueError, match=r"no product found within Bounds\(sides=\(1, 2\)"):
        random_cases(1, 0, Bounds((1, 2), (10**6, 10**7)))
    with pytest.raises(ValueError, match=r"only \d+ products of 999 found"):
        random_cases(999, 0, Bounds((8, 8), (512, 512)))
    with pytest.raises(ValueError, match="sides=5:3 is not a range"):
        Bounds((5, 3))
