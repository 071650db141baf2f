"""Tests of docs/measure_transfers.py, the script that compares settings of transfers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "measure_transfers.py"


def run(device, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a device."""
    command = [sys.executable, str(SCRIPT), *options, "--device", device.platform.split(",")[0]]
    return subprocess.run(command, check=False, timeout=240, capture_output=True, text=True)


def test_the_script_compares_settings_and_writes_its_table(device, tmp_path):
    """Each setting has a row with positive times of both kinds of product."""
    out = tmp_path / "transfers.json"
    settings = ["tiles=2", "threads=1,chunks=2,chunk_bytes=512KiB"]
    options = "--sizes", "64", "--rounds", "1", "--settings", *settings, "--out", str(out)
    done = run(device, *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert [row[0] for row in found["rows"]] == ["**the default**", *(f"`{x}`" for x in settings)]
    assert all(len(row) == len(found["columns"]) for row in found["rows"])
    times = [float(time) for row in found["rows"] for time in row[1].split(" / ")]
    assert len(times) == 6
    assert min(times) > 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tiles", "tiles='' is not a whole number"),
        ("locking=1", "'locking=1' is not name=value with one of"),
        ("tiles=many", "tiles='many' is not a whole number"),
    ],
)
def test_wrong_settings_are_named(device, setting, message, tmp_path):
    """The exit status is 2, and nothing is measured."""
    done = run(device, "--settings", setting, "--out", str(tmp_path / "none.json"))
    assert done.returncode == 2
    assert message in done.stderr
