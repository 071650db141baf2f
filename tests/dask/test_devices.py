"""Tests of the choice of a worker's device, and of the files by which workers claim them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")


import clgemm
import clgemm.dask
from clgemm.dask import devices, workers
from clgemm.dask.devices import claim_first
from clgemm.dask.workers import Settings


def test_the_environment_names_the_device(undone, device, monkeypatch):
    """CLGEMM_DEVICE limits the choice of a worker's device."""
    clgemm.set_device(None)
    position = clgemm.devices().index(device)
    monkeypatch.setenv("CLGEMM_DEVICE", str(position))
    found = devices.candidates(None, 64)
    assert {candidate.device.name for candidate in found} == {device.name}
    workers.begin("test", Settings(0, None, "one-each"), 64)
    assert workers.about_process()["device"] == device.name


def test_a_list_of_names_gives_each_worker_another_device(device, tmp_path):
    """With a list of names, each worker of a machine gets another device."""
    position = clgemm.devices().index(device)
    one, claim = devices.assign((position, 0), 1, tmp_path)
    other, other_claim = devices.assign((position, 0), 1, tmp_path)
    assert one.device.cl_device == device.cl_device
    assert other.device.cl_device == clgemm.devices()[0].cl_device
    claim.release()
    other_claim.release()


def test_gpus_of_one_name_are_told_apart(device, monkeypatch):
    """A report says which of them a worker has."""
    gpus = [clgemm.Device(device.cl_device) for _ in range(3)]
    for gpu, name in zip(gpus, ("one", "two", "one"), strict=True):
        gpu.__dict__.update(name=name, kind="GPU")
    monkeypatch.setattr(devices, "devices", lambda: tuple(gpus))
    monkeypatch.delenv("CLGEMM_DEVICE", raising=False)
    assert [each.part for each in devices.candidates(None, 1)] == ["1 of 2", "", "2 of 2"]


def test_claims_go_to_those_that_fewest_hold(tmp_path):
    """A claim is for the first free candidate, or else for one that the fewest processes hold."""
    candidates = [("a",), ("b1", "b2"), ("b2", "b3")]
    claims = [claim_first(candidates, tmp_path) for _ in range(4)]
    # The third candidate shares b2 with the second.
    assert [(c.position, c.others) for c in claims] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    claims[1].release()
    again = claim_first(candidates[2:], tmp_path)
    assert again.others == 0
    for claim in (*claims, again):
        claim.release()


HOLDS = """
import pathlib, sys
from clgemm.dask.devices import claim_first
held = claim_first([("a",)], pathlib.Path(sys.argv[1]))
print(held.others, flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_holds_nothing(tmp_path):
    """After a process is killed, its claim is free."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "0\n"
        with_child = claim_first([("a",)], tmp_path)
        assert with_child.others == 1
        child.kill()
    without = claim_first([("a",)], tmp_path)
    assert without.others == 0
    with_child.release()
    without.release()


def test_claims_need_no_folder_that_can_be_written(tmp_path):
    """If no claim can be written, each process gets the first candidate."""
    (tmp_path / "file").write_text("no folder")
    assert claim_first([("a",)], tmp_path / "file").position == 0
