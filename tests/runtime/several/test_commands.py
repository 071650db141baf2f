"""Tests of the commands with several devices."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import clgemm
from clgemm.bench.worker import Server
from clgemm.core.named import named
from clgemm.hardware import choice, identity
from clgemm.tuning import command as tuning


@pytest.fixture
def two(device, monkeypatch):
    """Return the device twice, as two equal ones that are chosen."""
    made = tuple(clgemm.Device(device.cl_device) for _ in range(2))
    monkeypatch.setattr(named, "by_process", made)
    return made


def test_of_equal_devices_one_is_tuned(two):
    """The records of one device serve all equal ones, so the tuner takes the first."""
    assert tuning._distinct(two) == [two[0]]


def test_tune_shares_its_time_between_devices(two, monkeypatch):
    """tune calls itself for each kind of device, with its part of the minutes."""
    asked = []
    monkeypatch.setattr(tuning, "_distinct", lambda devices: list(devices))
    tune = tuning.tune

    def recorded(device, *, shapes, minutes):
        asked.append((device, shapes, minutes))
        return [device]

    monkeypatch.setattr(tuning, "tune", recorded)
    assert tune(shapes=[(8, 8, 8)], minutes=3) == list(two)
    assert asked == [(each, [(8, 8, 8)], 1.5) for each in two]


def test_the_benchmark_gives_products_of_host_arrays_to_all(two, monkeypatch):
    """clgemm's worker chooses every device that the command names; the first one is measured."""
    found = iter(two)
    monkeypatch.setattr(identity, "find", lambda _: next(found))
    monkeypatch.setattr(choice, "find_devices", lambda *devices: devices)
    words = [word for each in two for word in identity.identity(each)]
    assert Server("clgemm", words).device is two[0]
    assert clgemm.get_devices() == two


def test_dask_knows_a_list_of_devices(two, monkeypatch):
    """Each worker gets another one of the devices that CLGEMM_DEVICE lists."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    from clgemm.dask import devices as dask_devices

    monkeypatch.setattr(dask_devices, "find_devices", lambda _: two)
    assert dask_devices._named("0,1") == list(two)


def test_a_program_runs_on_all_devices_with_a_bar(device, tmp_path):
    """python -m clgemm.accel takes --device all and --progress."""
    if device is not clgemm.devices()[0]:
        pytest.skip("one program is enough")
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np, clgemm, os\n"
        "from clgemm.runtime import progress\n"
        "assert progress._callback.get() is not None\n"
        "a = np.ones((300, 300), 'f')\n"
        "assert ((a @ a) == 300).all()\n"
        "print(len(clgemm.get_devices()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "clgemm.accel", "--device", "all", "--progress", str(program)],
        env={**os.environ, "CLGEMM_THRESHOLD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{len(choice.find_devices('all'))}\n"
