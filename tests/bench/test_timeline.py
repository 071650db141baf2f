"""Tests of ``bench --timeline``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clgemm.__main__ import main
from clgemm.bench import timeline
from clgemm.bench.cases import Case
from clgemm.bench.spans import CALLER, COMPUTE, DOWN, UP, contributors
from clgemm.runtime.transfer import call

SMALL = "threads=2,threaded_bytes=0,tile_bytes=32KiB,rows=32,tiles=4,chunk_bytes=16KiB,ramp=1"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Cut transfers as those of large matrices are."""
    monkeypatch.setattr(call, "SMALLEST_PIECE_BYTES", 4096)


# Recording


@pytest.mark.parametrize("out_new", [False, True])
def test_a_recording_has_every_byte_and_every_kernel(device, out_new):
    """Transfers move A, B and C once, and so do copies; the lanes fit."""
    config = timeline.config_of(device, SMALL)
    found = timeline.record(device, config, Case("x", 192, 96, 128), out_new, rounds=1)
    assert found.error <= 1
    line = found.timeline
    sizes = {lane: sum(s.size_bytes for s in line.lane(lane)) for lane in line.lanes()}
    assert sizes[UP] == 4 * (192 * 128 + 128 * 96)
    assert sizes[DOWN] == 4 * 192 * 96
    for what, lane in (("copy in", UP), ("copy out", DOWN)):
        assert sum(s.size_bytes for s in line.spans if s.what == what) == sizes[lane]
    assert len(line.lane(COMPUTE)) >= 4
    caller = {s.what for s in line.lane(CALLER)}
    assert ("allocate the result" in caller) == out_new
    assert {"plan and allocate", "enqueue kernels", "enqueue a transfer"} <= caller
    assert line.limit_ns == max(line.limits().values()) > 0
    assert sum(p.time_ns for p in contributors(line)) == line.time_ns
    shown = json.loads(timeline.as_json(found, device))
    assert len(shown["spans"]) == len(line.spans)
    assert shown["config"]["ramp"] == 1


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
        (["--timeline", "8", "--through", "ramp=x"], "ramp='x' is not a whole number"),
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


# The script


def test_the_script_that_measures_runs_whole(device, tmp_path):
    """It compares settings and writes its table."""
    script = Path(__file__).parents[2] / "docs" / "measure_transfers.py"
    out = tmp_path / "transfers.json"
    options = ["--sizes", "64", "--rounds", "1", "--settings", "tiles=2", "threads=1,chunks=2"]
    options += ["--device", device.platform.split(",")[0], "--out", str(out)]
    subprocess.run([sys.executable, str(script), *options], check=True, timeout=240)
    found = json.loads(out.read_text())
    assert [row[0] for row in found["rows"]] == [
        "**the default**",
        "`tiles=2`",
        "`threads=1,chunks=2`",
    ]
    assert all(len(row) == len(found["columns"]) for row in found["rows"])
    times = [float(time) for row in found["rows"] for time in row[1].split(" / ")]
    assert len(times) == 6
    assert min(times) > 0
