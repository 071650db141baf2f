"""Tests of the list of devices."""

from __future__ import annotations

from clgemm.hardware.choice import devices


def test_gpus_come_before_cpus():
    """devices() lists GPUs first, then accelerators, then CPUs."""
    kinds = [d.kind for d in devices() if "llvmpipe" not in d.name]
    assert kinds == sorted(kinds, key=["GPU", "accelerator", "CPU"].index)
