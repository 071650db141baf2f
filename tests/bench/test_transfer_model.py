"""Tests of the model of transfers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clgemm.bench.transfer_model import Rates, Task, product_tasks, simulate
from clgemm.bench.transfer_settings import GROUPS, changed, parsed
from clgemm.core.transfer import TransferConfig

CONFIG = TransferConfig(memory_bytes=2**30, threads=2)


def rate(threads):
    """A hundred bytes per second and thread, up to two."""
    return 100.0 * min(threads, 2)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([], []),
        ([Task("caller", 2), Task("caller", 3)], [(0, 2), (2, 5)]),
        ([Task("copy", 100), Task("copy", 300)], [(0, 1), (0, 3)]),
        # Three copies share the rate of two until a thread is free.
        ([Task("copy", 100)] * 3, [(0, 1.5)] * 3),
        # The link keeps the order of the list though its second task is ready first.
        (
            [Task("copy", 200), Task("link up", 1, (0,)), Task("link up", 1)],
            [(0, 2), (2, 3), (3, 4)],
        ),
        # The caller takes what is ready.
        (
            [Task("copy", 200), Task("caller", 1, (0,)), Task("caller", 1)],
            [(0, 2), (2, 3), (0, 1)],
        ),
        # A transfer overlaps the next copy; the kernel waits for both transfers.
        (
            [
                Task("copy", 100),
                Task("link up", 1, (0,)),
                Task("copy", 100, (0,)),
                Task("link up", 1, (2,)),
                Task("compute", 5, (1, 3)),
                Task("link down", 2, (4,)),
            ],
            [(0, 1), (1, 2), (1, 2), (2, 3), (3, 8), (8, 10)],
        ),
    ],
)
def test_schedules_of_a_few_tasks(tasks, expected):
    """The times are those worked out by hand."""
    found = simulate(tasks, 3, rate)
    assert found == [pytest.approx(each) for each in expected]


def test_tasks_that_wait_for_one_another_are_refused():
    """A circle is an error, not an endless loop."""
    with pytest.raises(ValueError, match="wait for one another"):
        simulate([Task("caller", 1, (1,)), Task("caller", 1, (0,))], 1, rate)


RATES = Rates(link_gbps=1, copy_gbps=((1, 10.0), (2, 20.0)), gflops=1e9, transfer_s=0, launch_s=0)


def seconds(config, rates, out_new=False, n=512):
    """The model's time of a square product."""
    tasks = product_tasks((n, n, n), config, rates, out_new)
    found = simulate(tasks, config.threads, rates.copies)
    return max(each.end for each in found), tasks, found


def test_a_slow_link_limits_the_model():
    """The link is busy all the time with A and B; the rest is the ends."""
    rates = replace(RATES, caller_s=0.0)
    time_s, tasks, found = seconds(replace(CONFIG, tile_bytes=2**18, rows=64), rates)
    sent = [run for task, run in zip(tasks, found, strict=True) if task.lane == "link up"]
    up_s = 8 * 512 * 512 / 1e9
    assert sum(run.end - run.start for run in sent) == pytest.approx(up_s)
    assert up_s < time_s < 1.5 * up_s


def test_the_model_moves_every_byte_once():
    """By copies or page locks, in both directions, for every setting to try."""
    for text in ("", *(each for group in GROUPS.values() for each in group)):
        config = changed(CONFIG, parsed(text))
        _, tasks, _ = seconds(config, replace(RATES, lock_gbps=1.0, unlock_gbps=1e12))
        up, down = (
            sum(t.amount for t in tasks if t.lane == f"link {way}") for way in ("up", "down")
        )
        assert up == pytest.approx(8 * 512 * 512 / 1e9)
        assert down == pytest.approx(4 * 512 * 512 / 1e9)


def test_new_pages_cost_the_model_time():
    """A copy to a new array takes longer."""
    rates = replace(RATES, link_gbps=100.0, copy_gbps=((1, 1.0),))
    assert seconds(CONFIG, rates, out_new=True)[0] > seconds(CONFIG, rates)[0]


def test_rates_between_those_measured():
    """By a straight line; beyond the last one, no more."""
    rates = replace(RATES, copy_gbps=((1, 10.0), (3, 20.0)))
    assert [rates.copies(n) / 1e9 for n in (1, 2, 3, 9)] == [10, 15, 20, 20]
