"""Tests of the random products of a survey and of their statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clgemm.bench import survey
from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.figures import Outcome
from clgemm.bench.survey import Bounds, random_cases, regret, regret_of_choice, summary

CUBE = Case("square", 8, 8, 8)


# Products


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
        assert case.size_bytes <= survey.STORAGE_BYTES
        assert case.data == "wide"


def test_a_longer_survey_has_the_products_of_a_shorter_one():
    """A survey of more products of the same seed contains those of a shorter one."""
    assert set(random_cases(20, 3, Bounds())) <= set(random_cases(60, 3, Bounds()))


def test_every_kind_layout_and_decade_is_drawn():
    """Three hundred products have every kind, layout and decade of work, none too rarely."""
    cases = random_cases(300, 5, Bounds())
    groups = survey.groupings(cases)
    assert set(groups["kind"]) == set(survey.KINDS)
    assert min(map(len, groups["kind"].values())) >= 8
    assert {case.layout_a for case in cases} == {case.layout_b for case in cases} == set("NTSD")
    assert {f"1e{p} to 1e{p + 1}" for p in range(5, 12)} == set(groups["multiply-adds"])
    assert {case.shared_b for case in cases if case.batch > 1} == {False, True}
    for name, found in groups.items():
        assert sum(map(len, found.values())) == 300, name


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
    draw = survey.Draw(0, Bounds((10, 10**6)))
    sizes = [draw.side() for _ in range(5000)]
    for power in range(1, 6):
        share = sum(10**power <= size < 10 ** (power + 1) for size in sizes) / len(sizes)
        assert abs(share - 0.2) < 5 * math.sqrt(0.2 * 0.8 / len(sizes))


def test_impossible_kinds_are_left_out():
    """Kinds outside the bounds are not drawn; without any, the error names the bounds."""
    bounds = Bounds((64, 2048))
    assert set(survey.KINDS) - set(survey.possible_kinds(bounds)) == {"short k"}
    assert not [case for case in random_cases(60, 1, bounds) if case.group == "short k"]
    with pytest.raises(ValueError, match=r"no product found within Bounds\(sides=\(1, 2\)"):
        random_cases(1, 0, Bounds((1, 2), (10**6, 10**7)))
    with pytest.raises(ValueError, match=r"only \d+ products of 999 found"):
        random_cases(999, 0, Bounds((8, 8), (512, 512)))
    with pytest.raises(ValueError, match="sides=5:3 is not a range"):
        Bounds((5, 3))


# Statistics


def test_ratios_are_summarised():
    """The mean is geometric, and percentiles are NumPy's."""
    ratios = [0.5, 2.0, 1.0, 4.0, 8.0, 0.25]
    found = summary(ratios)
    assert found.count == 6
    assert found.mean == pytest.approx(np.exp(np.mean(np.log(ratios))))
    assert (found.low, found.median, found.high) == pytest.approx(
        np.percentile(ratios, (5, 50, 95))
    )
    assert (found.least, found.greatest) == (0.25, 8)
    assert survey.percentile([3.0], 95) == 3
    with pytest.raises(ValueError, match="no ratios"):
        summary([])


def test_products_are_grouped():
    """Products are grouped by work, kind, smallest side and layout, in a fixed order."""
    small = Case("batch", 5, 6, 7, "T", "N", batch=3)
    large = Case("square", 1000, 1000, 1000, "S", "T")
    plain = Case("any sizes", 70, 300, 100)
    groups = survey.groupings([large, plain, small])
    assert groups["all"] == {"all": [small, plain, large]}
    assert groups["multiply-adds"] == {
        "1e2 to 1e3": [small],
        "1e6 to 1e7": [plain],
        "1e9 to 1e10": [large],
    }
    assert list(groups["kind"]) == ["any sizes", "square", "batch"]
    assert groups["smallest side"] == {
        "1 to 7": [small],
        "64 to 383": [plain],
        "384 or more": [large],
    }
    assert groups["layout"] == {"row-major": [plain], "transposed": [small], "sliced": [large]}


def outcome(name: str, *rounds_s: float, worst: float = 0.1) -> Outcome:
    """Return an outcome with these times."""
    return Outcome(name, CUBE, list(rounds_s), 1e-7, worst)


def test_the_regret_is_over_the_better_side():
    """The regret is the median of the ratios to the side whose median is less."""
    routed = outcome("clgemm.matmul", 2, 6, 4)
    host, device = outcome("NumPy", 9, 1, 3), outcome("clgemm", 2, 2, 2)
    assert regret(routed, host, device) == 2
    assert regret(routed, outcome("NumPy", 1, 1, 1), device) == 4
    assert regret(routed, host, outcome("clgemm", 2, 2, 2, worst=3)) is None


def test_the_regret_of_the_choice_is_of_the_chosen_side():
    """It is 1 if the better side was chosen, whatever the choice took."""
    routed = outcome("clgemm.matmul", 7, 7, 7)
    host, device = outcome("NumPy", 3, 3, 3), outcome("clgemm", 2, 2, 2)
    routed.side = DEVICE
    assert regret_of_choice(routed, host, device) == 1
    routed.side = HOST
    assert regret_of_choice(routed, host, device) == 1.5
    routed.worst = 3
    assert regret_of_choice(routed, host, device) is None
