"""Tests of validation in child processes, and of its verdicts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from strategies import GPU_LIMITS as LIMITS

from clgemm.hardware.traits import traits_of
from clgemm.planning import validation


@pytest.mark.parametrize(
    ("capability", "instructions"),
    [
        ((9, 0), ("wgmma", "mma")),
        ((8, 0), ("mma",)),
        ((8, 6), ()),
        ((7, 0), ()),
        ((10, 0), ("mma",)),
    ],
)
def test_which_instructions_are_tried(capability, instructions):
    """NVIDIA's devices have instructions to try by compute capability, others none."""

    class Some:
        name, platform, kind, limits = "Some", "NVIDIA CUDA, OpenCL 3.0", "GPU", LIMITS
        traits = property(traits_of)

        class cl_device:
            compute_capability_major_nv, compute_capability_minor_nv = capability

    assert validation._candidates(Some()) == instructions
    Some.platform = "Portable Computing Language"
    assert validation._candidates(Some()) == ()


def test_a_verdict_is_of_the_kernels_that_were_tried(monkeypatch):
    """If the kernels of a trial change, the instructions are tried again."""
    device = SimpleNamespace(name="H200", cl_device=SimpleNamespace(driver_version="580"))
    kept, tried = {}, []
    monkeypatch.setattr(validation, "recall", kept.get)
    monkeypatch.setattr(validation, "remember", kept.__setitem__)
    monkeypatch.setattr(validation, "_try_out", lambda _, name: tried.append(name) or True)
    for name in ("wgmma", "mma", "wgmma"):
        assert validation._verdict(device, name)
    assert tried == ["wgmma", "mma"]
    monkeypatch.setattr(validation, "sources_hash", lambda *kinds: f"other {kinds}")
    assert validation._verdict(device, "mma")
    assert tried == ["wgmma", "mma", "mma"]


def test_the_trial_is_made_once(monkeypatch, tmp_path):
    """A trial's verdict is stored on disk, and a crash counts as failure and is logged."""

    class Hopper:
        name, platform, kind, limits = "Hopper", "NVIDIA CUDA, OpenCL 3.0", "GPU", LIMITS
        traits = property(traits_of)

        class cl_device:
            driver_version = "1"
            compute_capability_major_nv, compute_capability_minor_nv = 9, 0

    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    trials = []
    for verdict in (False, True):
        Hopper.cl_device.driver_version = str(verdict)
        monkeypatch.setattr(validation, "_try_out", lambda _, i, v=verdict: trials.append(i) or v)
        for _ in range(3):
            assert validation.instructions_of(Hopper()) == ("wgmma" if verdict else None)
    assert trials == ["wgmma", "mma", "wgmma"]


def test_a_trial_that_crashes_says_no(monkeypatch, caplog):
    """A trial whose child process fails, as for an unknown device, gives False."""

    class Unknown:
        name = "no such device"

    assert not validation._try_out(Unknown, "wgmma")
    assert "no wgmma on no such device" in caplog.text
