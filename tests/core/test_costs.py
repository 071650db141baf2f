"""Tests of the costs of launches."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from clgemm.core.costs import H200, joined


def test_what_overlaps_takes_as_long_as_the_longest():
    """It takes longer only where several are about as long, and never as long as their sum."""
    assert joined(2.0, 7.0) == 7
    assert joined(2.0, 3.0, 4.0) == pytest.approx(5)
    assert joined(8.0, 3.0, 4.0) < joined(2.0, 3.0, 4.0) < 7
    assert joined(4.0, 1e-6, 1.0) == pytest.approx(1)
    assert joined(2.0, 0.0, 0.0) == 0


def test_every_cost_counts():
    """No time, rate or share is 0 or negative."""
    assert all(value > 0 for value in asdict(H200).values())
