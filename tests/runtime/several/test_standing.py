"""Tests of what is known of devices that share products, without a device."""

from __future__ import annotations

import pytest

from clgemm.runtime.several import standing


class Device:
    """A stand-in with a name."""

    def __init__(self, label):
        self.label = label


@pytest.fixture
def now(monkeypatch):
    """Return a clock that a test moves."""
    time = [1000.0]
    monkeypatch.setattr(standing.time, "monotonic", lambda: time[0])
    return time


ERROR = RuntimeError("boom")


def test_a_failure_pauses_a_device(now, caplog):
    """It takes no part for ten seconds; the warning names device, error and pause."""
    one, other = Device("one"), Device("other")
    standing.note_failure(one, ERROR, [other])
    assert standing.fit([one, other]) == [other]
    assert "one failed in the middle of a product (RuntimeError: boom). other finished it." in (
        caplog.text
    )
    assert "no part for 10 seconds" in caplog.text
    now[0] += 10
    assert standing.fit([one, other]) == [one, other]


def test_each_further_failure_doubles_the_pause(now):
    """Up to ten minutes; a success ends the count."""
    one, other = Device("one"), Device("other")
    for pause in (10, 20, 40, 80, 160, 320, 600, 600):
        standing.note_failure(one, ERROR, [other])
        now[0] += pause - 1
        assert standing.fit([one, other]) == [other]
        now[0] += 1
        assert standing.fit([one, other]) == [one, other]
    standing.note_success(one)
    standing.note_failure(one, ERROR, [other])
    now[0] += 10
    assert standing.fit([one, other]) == [one, other]


def test_if_all_have_failed_all_take_part(now):
    """A product needs some device."""
    both = [Device("one"), Device("other")]
    for device in both:
        standing.note_failure(device, ERROR, both)
    assert standing.fit(both) == both


def test_rates_are_those_of_a_kind_of_product():
    """Nothing is known of other kinds, and nothing is kept of a device that is gone."""
    one = Device("one")
    assert standing.rate_of(one, "large") is None
    standing.note_rate(one, "large", 5.0)
    standing.note_rate(one, "large", 6.0)
    assert standing.rate_of(one, "large") == 6.0
    assert standing.rate_of(one, "small") is None
    before = len(standing._rates)
    del one
    assert len(standing._rates) == before - 1
