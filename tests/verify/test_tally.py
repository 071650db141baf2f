"""Tests of the counts of what was verified."""

from __future__ import annotations

import json

from clgemm.verify.tally import MOST_MESSAGES, Tally


def test_products_are_counted_by_family_precision_and_part():
    """All of them are products of the tally; the largest error is in units of the bound."""
    tally = Tally()
    for worst in (0.2, 0.12345, 0.1):
        tally.add(tally.of_family("tiled", "strict"), "here", 10, worst, "")
    tally.add(tally.of_family("tiled", "fast"), "here", 10, 0.9, "")
    tally.add(tally.of_part("threads"), "there", 5, 0.3, "")
    assert tally.of_family("tiled", "strict").as_dict() == {
        "products": 3, "elements": 30, "failures": 0, "worst": 0.2
    }  # fmt: skip
    assert (tally.products, tally.failures) == (5, 0)


def test_a_failure_is_counted_and_its_error_is_not():
    """The error of a wrong product is no error of right ones; its message says where."""
    tally = Tally()
    count = tally.of_part("threads")
    for _ in range(MOST_MESSAGES + 5):
        tally.add(count, "there", 5, 99.0, "wrong")
    assert count.worst == 0
    assert tally.failures == tally.products == MOST_MESSAGES + 5
    assert tally.messages == ["there: wrong"] * MOST_MESSAGES


def test_an_error_that_is_no_number_is_null_in_json():
    """JSON has no infinity."""
    tally = Tally()
    tally.add(tally.of_part("threads"), "there", 5, float("inf"), "")
    assert json.loads(json.dumps(tally.of_part("threads").as_dict()))["worst"] is None
