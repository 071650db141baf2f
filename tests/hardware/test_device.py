"""Tests of the list of devices."""

from __future__ import annotations

from dataclasses import replace

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.core.costs import H200
from clgemm.hardware.choice import devices
from clgemm.records import costs


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
        costs.keep(mine.name, mine.runtime, slow, 30)
        forget_plans()
        assert mine.limits.costs == mine.traits.limits.costs == slow
        assert replace(mine.limits, costs=H200) == replace(device.limits, costs=H200)
    forget_plans()
    assert mine.limits.costs == device.limits.costs
