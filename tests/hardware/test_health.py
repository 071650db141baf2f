"""Tests of the check whether a device works."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from children import child_of

import clgemm
from clgemm.core import cache, child
from clgemm.hardware import choice, health
from clgemm.hardware.health import Verdict

PLANTED = {
    "refuses": "error: unknown target CPU 'generic'",
    "hangs": "it did not multiply small matrices within 3 s",
    "aborts": "the check's process died (signal SIGABRT): LLVM ERROR: Cannot select",
    "wrong": "the kernel family 'direct': wrong result at",
}


@pytest.fixture
def unknown(device, monkeypatch, tmp_path):
    """Return a device without a verdict on disk."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    health.reset()
    yield device
    monkeypatch.undo()
    health.reset()
    choice.devices.cache_clear()
    choice._default.cache_clear()


@pytest.fixture
def planted(unknown, monkeypatch):
    """Return a function that plants a fault into the check of a device."""

    def plant(fault):
        monkeypatch.setenv("PLANTED_FAULT", fault)
        made = child_of("planted_check")
        monkeypatch.setattr(health, "trial_child", made)
        return unknown

    return plant


def test_a_device_that_works_is_checked_once(unknown, monkeypatch):
    """A device that works is checked once, and the next process reads the verdict from disk."""
    assert health.check(unknown).reason == ""
    assert health.check(unknown).fresh
    addresses = unknown.claims_addresses
    monkeypatch.setattr(health, "trial_child", None)  # no child can be made
    health.reset()
    assert health.check(unknown) == Verdict("", "", date.today().isoformat(), addresses)
    assert health.takes_addresses(unknown) == addresses


@pytest.mark.parametrize("fault", ["addresses wrong", "addresses abort"])
def test_a_device_that_fails_with_addresses_works_with_buffers(fault, planted):
    """Only addresses are left out."""
    verdict = health.check(planted(fault))
    assert verdict == Verdict("", "", date.today().isoformat(), addresses=False, fresh=True)
    assert not health.takes_addresses(planted(fault))


def test_a_verdict_from_before_addresses_is_checked_again(unknown):
    """A verdict on disk that says nothing of addresses is not valid."""
    key = health._key(unknown)
    cache.remember(key, {"reason": "", "details": "", "date": date.today().isoformat()})
    assert health.check(unknown).fresh


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_is_found_and_named_in_one_line(fault, planted, monkeypatch):
    """A failed build, a hang, a crash and a wrong result each give a reason of one line."""
    monkeypatch.setattr(health, "CHECK_SECONDS", 3.0 if fault == "hangs" else 60.0)
    verdict = health.check(planted(fault))
    assert verdict.reason.startswith(PLANTED[fault])
    assert "\n" not in verdict.reason
    health.reset()
    assert health.check(planted(fault)).reason == verdict.reason  # from the disk
    assert not health.check(planted(fault)).fresh


def test_a_device_that_fails_is_refused_by_name(planted, monkeypatch):
    """The error names device, reason and remedy, and its cause has the compiler's log."""
    device = planted("refuses")
    platform = device.platform.partition(",")[0]
    for refused in (device, device.cl_device, device.context, platform):
        with pytest.raises(RuntimeError, match="unknown target CPU 'generic'\nWhat helps: ") as got:
            clgemm.set_device(refused)
        assert device.label in str(got.value)
        assert "log: (options" not in str(got.value)
        assert "log: (options" in str(got.value.__cause__)
    monkeypatch.setenv("CLGEMM_DEVICE", platform)
    monkeypatch.setattr(choice, "_chosen", None)
    with pytest.raises(RuntimeError, match=rf"^CLGEMM_DEVICE={re.escape(platform)}: .*generic"):
        clgemm.sgemm(1.0, [[1.0]], [[1.0]])


class Stand:
    """A stand-in for a device, with nothing but a name and a kind."""

    def __init__(self, name, kind="CPU"):
        self.name = self.label = self.platform = name
        self.kind = kind


@pytest.fixture
def listed(monkeypatch):
    """Return a function that makes stand-ins the only devices, some of them broken."""

    def let(*stands, broken=(), fresh=True):
        present = choice.present()._replace(devices=stands)
        monkeypatch.setattr(choice, "present", lambda: present)
        monkeypatch.setattr(choice, "remedy", lambda *_: "another driver")
        monkeypatch.setattr(choice, "findings", list)
        monkeypatch.setattr(
            choice.health,
            "check",
            lambda d: Verdict(
                "it crashes" if d.name in broken else "", "the log", "today", fresh=fresh
            ),
        )
        monkeypatch.setattr(choice, "_chosen", None)
        choice.devices.cache_clear()
        choice._default.cache_clear()

    yield let
    choice.devices.cache_clear()
    choice._default.cache_clear()


def test_the_next_best_device_is_used_with_one_warning(listed, caplog):
    """The next best device is used, and one warning names the device, the reason and the remedy."""
    listed(Stand("fast"), Stand("slow"), broken=["fast"])
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert clgemm.get_device().name == clgemm.get_device().name == "slow"
    assert [record.getMessage() for record in caplog.records] == [
        "clgemm: fast cannot be used: it crashes. slow is used instead. What helps: another driver."
    ]
    assert [d.name for d in clgemm.devices()] == ["slow"]
    assert [d.name for d in choice.left_out()] == ["fast"]


@pytest.mark.parametrize(("kind", "warns"), [("GPU", 1), ("CPU", 0)])
def test_later_processes_warn_only_if_a_slower_kind_serves(kind, warns, listed, caplog):
    """Later processes warn only if the device in use is of another kind than the broken one."""
    listed(Stand("fast", kind), Stand("slow"), broken=["fast"], fresh=False)
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert clgemm.get_device().name == "slow"
    assert len(caplog.records) == warns


def test_names_prefer_devices_that_work(listed):
    """A name that several devices share names the first of them that works."""
    listed(Stand("amd one"), Stand("amd two"), broken=["amd one"])
    assert choice.find_device("amd").name == choice.find_device("cpu").name == "amd two"
    assert choice.find_device(0).name == "amd two"
    with pytest.raises(RuntimeError, match="amd one cannot be used: it crashes"):
        choice.find_device("amd one")
    with pytest.raises(ValueError, match="'3' names no OpenCL device; there is 0: amd two"):
        choice.find_device("3")


def test_if_no_device_works_the_error_lists_all(listed, monkeypatch):
    """If no device works, sgemm's error lists all of them and matmul uses NumPy."""
    listed(Stand("fast"), Stand("slow"), broken=["fast", "slow"])
    said = (
        "no OpenCL device works here.\n  fast cannot be used: it crashes\n"
        "  slow cannot be used: it crashes\nWhat helps: another driver."
    )
    with pytest.raises(RuntimeError) as got:
        clgemm.sgemm(1.0, [[1.0]], [[1.0]])
    assert str(got.value) == said
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    large = np.ones((1200, 1200), np.float32)
    assert (clgemm.matmul(large, large) == 1200).all()


def test_a_failure_is_checked_again_another_day(unknown, monkeypatch):
    """A device that failed is checked again on another day."""
    today = date.today().isoformat()
    verdict = {"reason": "it crashed", "details": "", "date": today, "addresses": False}
    cache.remember(health._key(unknown), verdict)
    assert health.check(unknown).reason == "it crashed"
    health.reset()
    yesterday = (date.today() - timedelta(days=1)).isoformat()
    cache.remember(health._key(unknown), verdict | {"date": yesterday})
    assert health.check(unknown).reason == ""


@pytest.mark.parametrize("entry", [True, "no", {"reason": 1}, {"reason": ""}, None])
def test_a_damaged_verdict_is_not_believed(entry, unknown):
    """A damaged verdict on disk is ignored, and the device is checked again."""
    cache.remember(health._key(unknown), entry)
    assert health.check(unknown).fresh


def test_a_verdict_depends_on_driver_processor_and_versions(unknown, monkeypatch):
    """A verdict does not hold for another driver, processor, pyopencl or kernel."""
    before = health._key(unknown)
    assert unknown.cl_device.driver_version in before
    for name, value in (
        ("_processor", lambda: "another"),
        ("kernels_hash", lambda _: "others"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(health, name, value)
            assert health._key(unknown) != before
    with monkeypatch.context() as patch:
        patch.setattr(health.cl, "VERSION_TEXT", "1")
        assert health._key(unknown) != before


def test_a_process_that_cannot_start_children_uses_devices_unchecked(unknown, monkeypatch):
    """If no child process can be started, devices are used unchecked and nothing is stored."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert health.check(unknown).reason == ""
    monkeypatch.delattr(sys, "frozen")
    for error in (OSError("no memory"), child.ChildDiedError("No module named clgemm")):

        def fails(*_, error=error):
            raise error

        monkeypatch.setattr(health, "trial_child", fails)
        health.reset()
        assert health.check(unknown).reason == ""
    assert cache.recall(health._key(unknown)) is None


def test_processes_that_start_together_check_once(unknown, tmp_path):
    """Of processes that start together one checks the device, and the others wait for it."""
    code = (
        "import sys, clgemm\n"
        "from clgemm.hardware import health\n"
        "from clgemm.hardware.identity import find\n"
        "print(health.check(find(sys.argv[1:])).fresh)"
    )
    paths = [str(Path(clgemm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-c", code, *health.identity(unknown)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    assert sorted(process.communicate()[0].strip() for process in started) == [
        *("False", "False", "True")
    ]
    (verdict,) = json.loads((tmp_path / "verdicts.json").read_text()).values()
    assert verdict["reason"] == ""
