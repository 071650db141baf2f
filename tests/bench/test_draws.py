"""Tests of random products."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clgemm.bench.draws import KINDS, STORAGE_BYTES, Bounds, Draw, possible_kinds, random_cases


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
