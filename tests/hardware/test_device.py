"""Tests of the list of devices, and of how other processes find a device again."""

from __future__ import annotations

from dataclasses import replace

import pytest

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.core.costs import H200
from clgemm.hardware.choice import devices
from clgemm.hardware.device import find, identify, identity
from clgemm.hardware.traits import POCL, register_width
from clgemm.records import verdicts


def test_gpus_come_before_cpus():
    """devices() lists GPUs first, then accelerators, then CPUs."""
    kinds = [d.kind for d in devices() if "llvmpipe" not in d.name]
    assert kinds == sorted(kinds, key=["GPU", "accelerator", "CPU"].index)


def test_measured_costs_are_among_the_limits(device, tmp_path, monkeypatch):
    """They are read with the limits, and read again when better plans may be known."""
    slow = replace(H200, multiply_adds=1.0)
    with monkeypatch.context() as patch:
        patch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
        forget_plans()
        mine = clgemm.Device(device.cl_device)
        assert mine.limits.costs == mine.traits.limits.costs == H200
        verdicts.keep_costs(mine.name, mine.runtime, slow, 30)
        forget_plans()
        assert mine.limits.costs == mine.traits.limits.costs == slow
        assert replace(mine.limits, costs=H200) == replace(device.limits, costs=H200)
    forget_plans()
    assert mine.limits.costs == device.limits.costs


def test_the_device_is_found_again():
    """find returns the device of an identity, and refuses an unknown one."""
    for device in devices():
        assert find(identity(device)) is device
    with pytest.raises(RuntimeError, match="this process has no device X of Y"):
        find(["X", "Y", "0"])


def test_a_device_is_found_again_by_its_identity(device):
    """Records and children know it by what its driver says."""
    assert identity(device)[:2] == [device.name, device.platform]
    who = identify(device)
    assert who.kind == device.kind
    assert who.runtime in device.platform
    assert str(who.architecture)


def test_pocl_comes_after_another_runtime_of_the_same_processor():
    """Intel's is faster on each processor that was measured."""
    of_cpu = [d for d in devices() if d.kind == "CPU" and "llvmpipe" not in d.name]
    others = [d for d in of_cpu if not d.platform.startswith(POCL)]
    if len(others) in (0, len(of_cpu)):
        pytest.skip("a single runtime")
    lanes = {register_width(d) * d.cl_device.max_compute_units for d in of_cpu}
    assert len(lanes) > 1 or of_cpu[: len(others)] == others
