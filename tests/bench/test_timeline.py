"""Tests of ``bench --timeline``, of transfer settings as text, and of the model of transfers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from clgemm.__main__ import main
from clgemm.bench import spans, timeline
from clgemm.bench.cases import Case
from clgemm.bench.recording import Recorder
from clgemm.bench.spans import CALLER, COMPUTE, DOWN, UP, Span, Timeline, busy_ns, contributors
from clgemm.bench.timeline_plot import picture
from clgemm.bench.transfer_model import Rates, Task, product_tasks, simulate
from clgemm.bench.transfer_settings import GROUPS, changed, forced, parsed
from clgemm.core.locking import Locking
from clgemm.core.transfer import TransferConfig
from clgemm.runtime.transfer import pipeline

CONFIG = TransferConfig(memory_bytes=2**30, threads=2)
SMALL = (
    "threads=2,threaded_bytes=0,tile_bytes=32KiB,rows=32,tiles=4,chunk_bytes=16KiB,"
    "locking.loads=0.5,locking.results=0.5,locking.region_bytes=4KiB,prefault=touch"
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Cut transfers as those of large matrices are."""
    monkeypatch.setattr(pipeline, "SMALLEST_PIECE_BYTES", 4096)


# Spans


def test_busy_time_counts_overlapping_spans_once():
    """The union of intervals, whatever their order."""
    made = [Span("x", "", *interval) for interval in ((5, 9), (0, 4), (2, 6), (20, 21), (3, 4))]
    assert busy_ns(made) == 10
    assert busy_ns([]) == 0


def test_the_critical_path_follows_data_and_lanes():
    """A copy, its transfer, the kernel, the result and its copy: each waited for the one before."""
    thread = "clgemm-copy_0"
    line = Timeline(
        (
            Span(thread, "copy in", 0, 10, 100, part=1),
            Span("clgemm-copy_1", "copy in", 0, 4, 100, part=2),
            Span(UP, "", 4, 6, 100, part=2, enqueued_ns=4),
            Span(UP, "", 12, 20, 100, part=1, enqueued_ns=11),
            Span(COMPUTE, "multiply", 21, 50, enqueued_ns=15),
            Span(DOWN, "", 50, 60, 50, part=3, enqueued_ns=16),
            Span(thread, "copy out", 62, 70, 50, part=3),
            Span(CALLER, "wait for the device", 16, 61),
        ),
        0,
        71,
        1000,
    )
    path = [(s.lane, s.start_ns) for s in spans.critical_path(line)]
    assert path == [(thread, 62), (DOWN, 50), (COMPUTE, 21), (UP, 12), (thread, 0)]
    found = {(p.lane, p.what): p.time_ns for p in contributors(line)}
    assert found == {
        (COMPUTE, ""): 29,
        (DOWN, ""): 10,
        ("copying threads", "copy in"): 10,
        (UP, ""): 8,
        ("copying threads", "copy out"): 8,
        ("", "latency and caller"): 6,
    }
    assert line.limits() == {UP: 10, COMPUTE: 29, DOWN: 10}
    assert line.limit_ns == 29


def test_what_the_caller_waited_for_is_on_the_path():
    """A copy by the caller after a wait for the device leads to what the device did."""
    line = Timeline(
        (
            Span(COMPUTE, "multiply", 10, 40, enqueued_ns=5),
            Span(CALLER, "enqueue kernels", 0, 5),
            Span(CALLER, "wait for the device", 5, 41),
            Span(CALLER, "copy out", 41, 50, 10, part=7),
        ),
        0,
        50,
        10,
    )
    assert [s.what for s in spans.critical_path(line)] == ["copy out", "multiply"]
    assert sum(p.time_ns for p in contributors(line)) == line.time_ns


def test_the_callers_spans_do_not_overlap():
    """One inside another interrupts it; another thread's span has its own lane."""
    recorder = Recorder()
    recorder.begin()

    def copy():
        with recorder.span("copy in", 4, 9):
            pass

    with recorder.span("outer"), recorder.span("inner", 8, 5):
        thread = threading.Thread(target=copy, name="other")
        thread.start()
        thread.join()
    line = recorder.end(1, lambda: 0)
    own = line.lane(CALLER)
    assert [s.what for s in own] == ["outer", "inner", "outer"]
    assert all(first.end_ns <= second.start_ns for first, second in pairwise(own))
    assert [(s.lane, s.size_bytes, s.part) for s in line.lane("other")] == [("other", 4, 9)]
    assert line.start_ns <= own[0].start_ns


# Recording


@pytest.mark.parametrize("out_new", [False, True])
def test_a_recording_has_every_byte_and_every_kernel(device, out_new):
    """Transfers move A, B and C once; copies and page locks together do, too; the lanes fit."""
    config = timeline.config_of(device, SMALL)
    found = timeline.record(device, config, Case("x", 192, 96, 128), out_new, rounds=1)
    assert found.error <= 1
    line = found.timeline
    sizes = {lane: sum(s.size_bytes for s in line.lane(lane)) for lane in line.lanes()}
    assert sizes[UP] == 4 * (192 * 128 + 128 * 96)
    assert sizes[DOWN] == 4 * 192 * 96
    hosts = [s for s in line.spans if s.what in ("copy in", "copy out", "lock pages")]
    assert sum(s.size_bytes for s in hosts) == sizes[UP] + sizes[DOWN]
    assert {s.what for s in hosts} == {"copy in", "copy out", "lock pages"}
    assert len(line.lane(COMPUTE)) >= 4
    caller = {s.what for s in line.lane(CALLER)}
    assert ("allocate the result" in caller) == out_new
    assert {"plan and allocate", "enqueue kernels", "enqueue a transfer"} <= caller
    assert line.limit_ns == max(line.limits().values()) > 0
    assert sum(p.time_ns for p in contributors(line)) == line.time_ns
    shown = json.loads(timeline.as_json(found, device))
    assert len(shown["spans"]) == len(line.spans)
    assert shown["config"]["locking"]["loads"] == 0.5


def test_the_command_prints_and_writes(device, tmp_path, capsys):
    """Tables on the screen, JSON and a picture in files."""
    files = tmp_path / "t.json", tmp_path / "t.png"
    options = ["--json", str(files[0]), "--plot", str(files[1]), "--rounds", "1", "--out-new"]
    assert main(["bench", "--timeline", "96x64x80", "--through", SMALL, *options]) == 0
    printed = capsys.readouterr().out
    for text in ("96x64x80 into a new array", "Critical path", "limit: the longest of link up"):
        assert text in printed
    assert json.loads(files[0].read_text())["case"]["m"] == 96
    assert files[1].stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--timeline", "12x12"], "'12x12' is not a shape"),
        (["--timeline", "8,8"], "--timeline takes one shape, not 2"),
        (["--timeline", "8", "--through", "speed=3"], "'speed=3' is not name=value with one of"),
        (["--timeline", "8", "--through", "ramp=x"], "ramp='x' is not of type int"),
        (["--out-new"], "--out-new and --through go with --timeline"),
        (["--through"], "--out-new and --through go with --timeline"),
    ],
)
def test_wrong_arguments_are_named(device, options, message, capsys):
    """The exit status is 2, and nothing is computed."""
    if "--timeline" in options and "--through" not in options:
        options = [*options, "--through"]
    assert main(["bench", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_device_that_shares_memory_is_told_apart(device, capsys):
    """Without --through it has no transfers to show."""
    if not device.shares_host_memory:
        pytest.skip("this device takes copies anyway")
    assert main(["bench", "--timeline", "8"]) == 2
    assert "--through makes it take copies" in capsys.readouterr().err


def test_the_picture_has_a_row_for_each_lane():
    """Caller, threads, link up, compute, link down, from the top."""
    made = Span(CALLER, "other", 0, 9), Span("clgemm-copy_0", "copy in", 1, 2, 3)
    line = Timeline((*made, Span(UP, "", 2, 3, 3)), 0, 10, 1)
    axes = picture(line, "title").axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [CALLER, "clgemm-copy_0", UP, COMPUTE, DOWN]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


# Settings


def test_settings_are_parsed_and_applied():
    """Numbers with units, shares, words and truth; the pool holds twice a call's chunks."""
    text = "chunk_bytes=512KiB, chunks=48,locking.loads=0.25,locking.in_thread=yes,prefault=touch"
    config = changed(CONFIG, parsed(text))
    expected = replace(
        CONFIG,
        chunk_bytes=2**19,
        chunks=48,
        pool_chunks=96,
        prefault="touch",
        locking=Locking(loads=0.25, in_thread=True),
    )
    assert config == expected
    assert changed(CONFIG, parsed("")) == CONFIG


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiles", "'tiles' is not name=value"),
        ("locking=1", "'locking=1' is not name=value"),
        ("caller_copies=maybe", "caller_copies='maybe' is not of type bool"),
        ("locking.loads=much", "locking.loads='much' is not of type float"),
    ],
)
def test_wrong_settings_are_named(text, message):
    """The message has the setting and the value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        parsed(text)


def test_all_settings_to_try_are_valid():
    """Those that docs/measure_transfers.py measures."""
    for alternatives in GROUPS.values():
        for text in alternatives:
            config = changed(forced(2, 2**31), parsed(text))
            assert config.pool_chunks >= 2 * config.chunks
            if "region_bytes" in text:  # a region that is refused goes through a chunk
                assert config.locking.region_bytes <= config.chunk_bytes


# Model


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


# The scripts


def test_the_script_that_measures_runs_whole(device, tmp_path):
    """It searches, compares the results, records timelines, checks memory, and writes its table."""
    script = Path(__file__).parents[2] / "docs" / "measure_transfers.py"
    options = ["--sizes", "64", "--rounds", "1", "--groups", "edges", "--through"]
    options += ["--device", device.platform.split(",")[0], "--out", str(tmp_path), "--calls", "30"]
    subprocess.run([sys.executable, str(script), *options], check=True, timeout=240)
    (report,) = tmp_path.glob("transfers_*.json")
    found = json.loads(report.read_text())
    assert found["run"]["sizes"][0]["n"] == 64
    assert not found["run"]["sizes"][0]["failures"]
    assert found["run"]["memory"]["locked_bytes"] == 0
    assert all(len(row) == len(found["columns"]) for row in found["rows"])
    assert np.isfinite([float(cell) for row in found["rows"] for cell in row[2:]]).all()
    assert len(list(tmp_path.glob("timeline_*.json"))) >= 2
