"""Tests of drivers with faults in some kernels: the product is right, and made on the device."""

from __future__ import annotations

import json

import numpy as np
import pytest
import workers

import clgemm
from clgemm.core.problem import Problem, Shape
from clgemm.hardware import choice, trial
from clgemm.hardware.device import where
from clgemm.planning import planner
from clgemm.records import verdicts
from clgemm.records.tuned import as_json
from clgemm.runtime import programs, readiness

pytestmark = pytest.mark.one_device

SHAPE = Shape(140, 141, 37)
PROBLEM = Problem.of(SHAPE, "strict")
# How a kernel fails, and whether that is a verdict on it.
FAULTS = {
    "refuses": True,
    "hangs": True,
    "aborts": True,
    "wrong": True,
    "launch fails": True,
    "host memory": False,
}
rng = np.random.default_rng(5)
A, B = (rng.integers(-8, 9, size).astype(np.float32) for size in ((140, 37), (37, 141)))


@pytest.fixture
def unknown(device, alone, monkeypatch, tmp_path):
    """Return a device of which nothing is known, chosen: here and in workers."""
    monkeypatch.setattr(trial, "JOB_SECONDS", 6.0)
    (tmp_path / "shipped.json").write_text(as_json([]))
    workers.plant(monkeypatch, "none", PLANTED_RECORDS=str(tmp_path / "shipped.json"))
    with clgemm.device(device):
        yield device
    workers.begin_anew()


def plant(monkeypatch, fault, config, other, is_spared=False):
    """Plant a fault in a config, or in all of its kernel's that do not differ so from another."""
    # The packing, or whether operands are read in place, may be another one with each product.
    macros = [x for x in config.macros() if x not in other.macros() and x[0] != "IN_PLACE"]
    text = json.dumps([f"{config.entry}(", macros, is_spared])
    workers.plant(monkeypatch, fault, PLANTED_CONFIG=text)


def multiply():
    """Multiply and compare, in a process that knows nothing and in the next one."""
    for _ in range(2):
        result = clgemm.sgemm(1.0, A, B, precision="strict")
        np.testing.assert_array_equal(result, A @ B)
        workers.begin_anew()


def planned(device):
    """Return the config that a product uses."""
    return readiness.planned(device, PROBLEM).choice.config


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_one_config_leaves_the_device_in_use(fault, unknown, monkeypatch):
    """Another config takes its place, for all processes; a want of memory is nobody's fault."""
    found = planner.plan_of(unknown, PROBLEM)
    first = found.choice.config
    plain, defaults = (
        found.family.plainest(unknown.traits),
        found.family.defaults(found.problem.shape, unknown.traits),
    )
    other = next(each.config for each in (plain, *defaults) if each.config != first)
    plant(monkeypatch, fault, first, other)
    multiply()
    assert (planned(unknown) != first) == FAULTS[fault]
    workers.begin_anew()
    assert choice.checked([unknown])[0].reason == ""
    assert not (verdicts.known(verdicts.about_device(where(unknown))) or verdicts.Verdict()).reason


def test_the_plainest_serves_where_all_others_fail(unknown, monkeypatch):
    """The planner comes to it by itself."""
    found = planner.plan_of(unknown, PROBLEM)
    plainest = found.family.plainest(unknown.traits).config
    if plainest == found.choice.config:
        pytest.skip("it is used anyway")
    plant(monkeypatch, "refuses", plainest, found.choice.config, is_spared=True)
    multiply()
    used = planned(unknown)  # or another family, where that is expected to be faster
    assert used == plainest or used.family != plainest.family


def test_where_the_plainest_fails_too_the_device_is_refused_at_once(unknown, monkeypatch):
    """Four processes try, and no later one does."""
    workers.plant(monkeypatch, "refuses")
    with pytest.raises(choice.BrokenDeviceError, match="unknown target CPU"):
        clgemm.sgemm(1.0, A, B, precision="strict")
    workers.begin_anew()
    monkeypatch.setattr(trial, "request", lambda *_, **__: pytest.fail("it is checked again"))
    assert "unknown target CPU" in choice.checked([unknown])[0].reason


def test_a_damaged_binary_is_built_again(unknown):
    """The driver does not see it."""
    multiply()
    for file in programs.program_cache_folder().rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-40] + bytes(40))
    multiply()
    assert choice.checked([unknown])[0].reason == ""
