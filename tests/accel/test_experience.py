"""Tests of what a program's own products show."""

from __future__ import annotations

import pytest

from clgemm.accel.experience import LOST_SECONDS, MOST_LOSSES, OnDevice, OnHost


def test_the_host_is_known_by_its_best_rate():
    """The host's rate is that of its fastest product, and its seconds are those of all."""
    host = OnHost()
    for size, seconds in ((100, 2.0), (100, 1.0), (300, 4.0)):
        host.add(size, seconds)
    assert (host.seconds, host.rate) == (7.0, 100.0)
    assert (host.expected_seconds(50), OnHost().expected_seconds(50)) == (0.5, 0.0)
    host.add(1, 0.0)  # a clock may stand still
    assert host.seconds == 7.0


def test_a_device_is_given_up_after_losses_in_a_row():
    """It is given up after so many losses in a row; a win in between counts."""
    device = OnDevice()
    for _ in range(5):
        for _ in range(MOST_LOSSES - 1):
            device.add(100, 1.1, 100.0)
        assert not device.is_given_up
        device.add(100, 0.9, 100.0)
    for _ in range(MOST_LOSSES):
        assert not device.is_given_up
        device.add(100, 1.0, 100.0)
    assert device.is_given_up


@pytest.mark.parametrize("first", [0.0, 1000.0])
def test_a_device_is_given_up_early_if_it_costs_much(first):
    """The second loss may end it, and the first may not, since it may compile."""
    device = OnDevice()
    device.add(0, first, 100.0)
    assert not device.is_given_up
    device.add(0, LOST_SECONDS + 0.1, 100.0)
    assert device.is_given_up
