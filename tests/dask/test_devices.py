"""Tests of the choice of a worker's device."""

from __future__ import annotations

import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")


import clgemm
import clgemm.dask
from clgemm.dask import devices as assignment
from clgemm.dask import process
from clgemm.dask.process import Settings


def test_the_environment_names_the_device(undone, device, monkeypatch):
    """CLGEMM_DEVICE limits the choice of a worker's device."""
    clgemm.set_device(None)
    position = clgemm.devices().index(device)
    monkeypatch.setenv("CLGEMM_DEVICE", str(position))
    found = assignment.candidates(None, 64)
    assert {candidate.device.name for candidate in found} == {device.name}
    process.begin("test", Settings(0, None, "one-each"), 64)
    assert process.about_process()["device"] == device.name


def test_a_list_of_names_gives_each_worker_another_device(device, tmp_path):
    """With a list of names, each worker of a machine gets another device."""
    position = clgemm.devices().index(device)
    one = assignment.assign((position, 0), 1, tmp_path)
    other = assignment.assign((position, 0), 1, tmp_path)
    assert one.candidate.device.cl_device == device.cl_device
    assert other.candidate.device.cl_device == clgemm.devices()[0].cl_device
    one.claim.release()
    other.claim.release()


def test_gpus_of_one_name_are_told_apart(device, monkeypatch):
    """A report says which of them a worker has."""
    gpus = [clgemm.Device(device.cl_device) for _ in range(3)]
    for gpu, name in zip(gpus, ("one", "two", "one"), strict=True):
        gpu.__dict__.update(name=name, kind="GPU")
    monkeypatch.setattr(assignment, "devices", lambda: tuple(gpus))
    monkeypatch.delenv("CLGEMM_DEVICE", raising=False)
    assert [each.part for each in assignment.candidates(None, 1)] == ["1 of 2", "", "2 of 2"]
