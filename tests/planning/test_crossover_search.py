"""Tests of the search for a crossover, with made-up times: no device and no clock."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from clgemm.planning.crossover_search import (
    CLIMB,
    HOST_SECONDS,
    RESOLUTION,
    Search,
    largest_side,
)

LEAST, MOST = 160, 8192
RATE = 1e11  # the host's multiply-adds a second
MARGIN = 0.95
# A climb from LEAST to MOST, a bisection of its last step, and as much again for confirmation.
MOST_TRIALS = 2 * (math.ceil(math.log(MOST**3 / LEAST**3, CLIMB)) + 4)


def cube(side):
    return side**3


def host_seconds(side):
    return cube(side) / RATE


def device_wins_from(crossover):
    """Return a device's times: slower than the host's below a side, and faster from it on."""

    def seconds(side):
        return host_seconds(crossover) * MARGIN * (0.5 + 0.5 * cube(side) / cube(crossover))

    return seconds


def run(search, device_seconds, disturbed=lambda seconds: seconds):
    """Search to the end, each trial three products on either side; return the sides tried."""
    tried = []
    while (side := search.next()) is not None:
        tried.append(side)
        assert len(tried) <= MOST_TRIALS
        times = [(disturbed(host_seconds(side)), disturbed(device_seconds(side))) for _ in range(3)]
        ratio = sorted(device / host for host, device in times)[1]
        search.record(side, ratio <= MARGIN, tuple(map(min, zip(*times, strict=True))))
    return tried


def largest_tried():
    return largest_side(cube, int(RATE * HOST_SECONDS))


@given(crossover=st.integers(LEAST, int(largest_tried() * 0.99)))
def test_the_crossover_is_found(crossover):
    """The result is at or above the true crossover, by the resolution at most."""
    search = Search(cube, LEAST, MOST)
    run(search, device_wins_from(crossover))
    assert cube(crossover) <= search.crossover <= RESOLUTION * cube(crossover) * 1.05


def test_a_device_that_always_wins():
    """The crossover is the least product if the device wins that; the largest is tried too."""
    search = Search(cube, LEAST, MOST)
    tried = run(search, lambda side: host_seconds(side) / 2)
    assert search.crossover == cube(LEAST)
    assert tried == [LEAST, LEAST, largest_tried()]


def test_a_device_that_never_wins():
    """The search climbs once to the largest product, and finds no crossover."""
    search = Search(cube, LEAST, MOST)
    tried = run(search, lambda side: host_seconds(side) * 1.5)
    assert search.crossover is None
    assert tried == sorted(set(tried))
    assert cube(tried[-1]) * RESOLUTION >= RATE * HOST_SECONDS


def test_a_device_that_wins_only_in_between():
    """A device that loses the largest product has no crossover."""
    search = Search(cube, LEAST, MOST)
    run(search, lambda side: host_seconds(side) * (0.5 if 300 < side < 1000 else 1.5))
    assert search.crossover is None


def test_sizes_are_bounded():
    """No product is larger than the limit, nor than one that takes the host about its limit."""
    for most in (LEAST, 500, MOST):
        search = Search(cube, LEAST, most)
        tried = run(search, lambda side: host_seconds(side) * 2)
        assert max(tried) <= min(most, largest_tried())
        assert search.crossover is None


def test_coarse_sizes():
    """A kind with few sizes, such as a batch of large matrices, has an end too."""

    def size(side):
        return side * 128**3

    for crossover in range(2, 12):
        search = Search(size, 2, 12)
        tried = []
        while (side := search.next()) is not None:
            tried.append(side)
            search.record(side, side >= crossover, (size(side) / RATE, 0.0))
        assert len(tried) < 10
        assert size(crossover) <= search.crossover <= RESOLUTION * size(crossover)


def test_noise_does_not_make_it_absurd():
    """With noise of a tenth, and one product in ten taking five times as long, it stays near."""
    source = random.Random(0)

    def disturbed(seconds):
        noise = math.exp(source.gauss(0, 0.1))
        return seconds * noise * (5 if source.random() < 0.1 else 1)

    for _ in range(300):
        crossover = source.randint(LEAST, largest_tried())
        search = Search(cube, LEAST, MOST)
        device = device_wins_from(crossover)
        run(search, device, disturbed)
        # The regret counts: of the device at the result, or of the host where the device is left.
        found = search.won or largest_tried()
        regret = device(found) / host_seconds(found)
        assert (regret if found < crossover else 1 / regret) < 3


def test_it_can_be_ended():
    """A search that is ended keeps what it knows."""
    search = Search(cube, LEAST, MOST)
    search.record(LEAST, False, (1e-3, 2e-3))
    search.record(4 * LEAST, True, (1e-3, 1e-4))
    assert search.next() is not None
    search.end()
    assert search.next() is None
    assert search.crossover == cube(4 * LEAST)


def test_times_that_are_expected():
    """Times of a tried product bound those of smaller ones, and grow with the work beyond."""
    search = Search(cube, LEAST, MOST)
    assert search.expected(LEAST) == (0.0, 0.0)
    search.record(200, False, (1.0, 2.0))
    search.record(400, False, (4.0, 5.0))
    assert search.expected(150) == (1.0, 2.0)
    assert search.expected(201) == (4.0, 5.0)
    assert search.expected(800) == (32.0, 40.0)


@given(limit=st.integers(1, 10**12))
def test_the_largest_side(limit):
    """It is the last one within the limit."""
    side = largest_side(cube, limit)
    assert cube(side) <= limit < cube(side + 1)
