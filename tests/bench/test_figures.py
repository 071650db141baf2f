"""Tests of the figures of a benchmark: spreads and ratios."""

from __future__ import annotations

import pytest
from bench_results import CUBE, outcome

from clgemm.bench.figures import Spread, ratios, spread


def test_the_ratio_is_the_median_of_the_rounds():
    """The ratio is the median of the rounds' ratios, not the ratio of the medians."""
    ours, theirs = outcome(rounds_s=(1, 3, 3)), outcome("NumPy", (2, 2, 9))
    assert ratios(ours.rounds_s, theirs.rounds_s) == pytest.approx([2, 2 / 3, 3])
    assert ours.ratio_to(theirs) == pytest.approx((2, 2 / 3, 3))
    assert ours.time_s == Spread(3, 1, 3)
    assert ours.gflops == CUBE.flops / 3 / 1e9


def test_figures_are_refused():
    """A spread of no figures and ratios of unequal numbers of rounds raise ValueError."""
    with pytest.raises(ValueError, match="no figures"):
        spread([])
    with pytest.raises(ValueError, match="longer"):
        ratios([1, 2], [1, 2, 3])
