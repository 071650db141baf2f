"""Tests of the schedule of a product that devices share, with a simulated clock."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.planning.schedule import WAIT, Draw, Drawer, Schedule
from clgemm.planning.tiles import TileGrid


def grid_of(bands, tiles, joins=True):
    """Bands of equal square tiles, with a depth of one."""
    return TileGrid(
        tuple(
            tuple((slice(10 * i, 10 * i + 10), slice(10 * j, 10 * j + 10)) for i in range(tiles))
            for j in range(bands)
        ),
        joins,
        1,
    )


def simulated(grid, rates, known=(), setup_s=0.0, failing=()):
    """Run a schedule; return when it ends, who made which tiles, and the draws of each."""
    drawers = [Drawer(rate if who in known else None, setup_s) for who, rate in enumerate(rates)]
    schedule = Schedule(grid, drawers)
    made, draws, end = [], [0] * len(rates), 0.0
    events = [(0.0, who) for who in range(len(rates))]
    heapq.heapify(events)
    while events:
        now, who = heapq.heappop(events)
        if drawers[who].held is not None:
            if who in failing:
                schedule.failed(who)
                continue
            band, first, stop = drawers[who].held
            made += [(band, tile, who) for tile in range(first, stop)]
            schedule.finished(who, now)
            end = now
        drawn = schedule.draw(who, now)
        if drawn is None:
            continue
        if drawn is WAIT:
            heapq.heappush(events, (now + 0.001, who))
            continue
        draws[who] += 1
        work = grid.work(schedule.box(drawn))
        heapq.heappush(events, (now + setup_s + work / rates[who], who))
    assert schedule.is_over or len(failing) == len(rates)
    return end, made, draws


@given(
    bands=st.integers(1, 3),
    tiles=st.integers(1, 30),
    rates=st.lists(st.floats(100, 10_000), min_size=1, max_size=4),
    known=st.sets(st.integers(0, 3)),
    setup_s=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_every_tile_is_made_once(bands, tiles, rates, known, setup_s):
    """Every tile is made once, whatever the speeds are and whether they are known."""
    _, made, _ = simulated(grid_of(bands, tiles), rates, known, setup_s)
    assert sorted((band, tile) for band, tile, _ in made) == [
        (band, tile) for band in range(bands) for tile in range(tiles)
    ]


@given(tiles=st.integers(1, 20), failing=st.sets(st.integers(0, 2), max_size=2))
def test_what_a_failing_device_drew_is_made_by_others(tiles, failing):
    """The tiles of a device that fails are made by others, and it draws no more."""
    _, made, draws = simulated(grid_of(2, tiles), [1000.0] * 3, (0, 1, 2), 0.0, failing)
    assert len(made) == 2 * tiles
    assert not failing & {who for _, _, who in made}
    assert all(draws[who] <= 1 for who in failing)


def test_a_draw_after_a_failure_is_a_share_of_all_that_is_left():
    """What a failed device drew counts as free work again, beside what was free."""
    schedule = Schedule(grid_of(1, 100), [Drawer(100.0, 5.0), Drawer(1000.0, 5.0)])
    drawn = schedule.draw(0, 0.0)
    assert isinstance(drawn, Draw)
    assert (drawn.first, drawn.stop) == (0, 9)
    schedule.failed(0)
    assert schedule.draw(1, 0.0) == Draw(0, 9, 100)
    schedule.finished(1, 14.1)
    assert schedule.draw(1, 14.1) == Draw(0, 0, 9)


def test_nothing_is_made_if_all_fail():
    """The schedule is not over if all devices have failed."""
    schedule = Schedule(grid_of(1, 4), [Drawer(), Drawer()])
    for who in (0, 1):
        assert schedule.draw(who, 0.0) is not None
    schedule.failed(0)
    assert schedule.draw(1, 1.0) is not None
    schedule.failed(1)
    assert schedule.draw(1, 2.0) is None
    assert not schedule.is_over


def test_equal_devices_end_together():
    """Two equal devices make half of the tiles each."""
    end, _, draws = simulated(grid_of(1, 24), [1000.0, 1000.0])
    assert end == pytest.approx(1.2)
    assert draws == [12, 12]


def test_unequal_devices_are_as_fast_as_their_sum_nearly():
    """A device of a quarter of the speed makes fewer tiles, and the time is nearly the best one."""
    end, _, draws = simulated(grid_of(1, 48), [4000.0, 1000.0], (0, 1))
    assert end <= 1.05 * 4800 / 5000
    assert draws[0] > 3 * draws[1]


def test_a_slow_device_takes_no_tile_that_it_would_end_last():
    """A device draws nothing that the other one would finish sooner alone."""
    end, made, _ = simulated(grid_of(1, 8), [1000.0, 10.0], (0, 1))
    assert end == pytest.approx(0.8)
    assert {who for _, _, who in made} == {0}


@pytest.mark.parametrize(("tiles", "draws"), [(10, True), (9, False)])
def test_a_device_that_ends_with_the_others_draws(tiles, draws):
    """A device draws a tile if it ends when the others would end all that is left, not later."""
    schedule = Schedule(grid_of(1, tiles), [Drawer(100.0), Drawer(1000.0)])
    drawn = schedule.draw(0, 0.0)
    assert drawn == (Draw(0, 0, 1) if draws else WAIT)


def test_draws_that_cost_something_are_large_first():
    """Devices whose draws are expensive take their share at once, others in few draws."""
    _, _, dear = simulated(grid_of(1, 100), [1000.0, 1000.0], (0, 1), setup_s=1.0)
    assert dear == [1, 1]
    _, _, cheap = simulated(grid_of(1, 100), [1000.0, 1000.0], (0, 1), setup_s=0.01)
    assert all(1 < count < 20 for count in cheap)


def test_devices_begin_in_bands_of_their_own():
    """Each device draws from its own band as long as there is work in it."""
    _, made, _ = simulated(grid_of(2, 10), [1000.0, 1000.0], (0, 1))
    assert {(band, who) for band, _, who in made} == {(0, 0), (1, 1)}


def test_a_tile_that_may_have_waited_for_kernels_tells_no_rate():
    """The rate of a device is measured from its second draw on."""
    schedule = Schedule(grid_of(1, 4), [Drawer()])
    for now, expected in ((50.0, None), (51.0, 100.0)):
        schedule.draw(0, now - 1 if expected else 0.0)
        schedule.finished(0, now)
        assert schedule.drawers[0].rate == expected
