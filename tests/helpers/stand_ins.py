"""Processors that stand for GPUs: they run kernels that no processor is given."""

from __future__ import annotations

import pytest

from clgemm.hardware.device import Device
from clgemm.hardware.traits import POCL


def skip_on_pocl(device: Device) -> None:
    """Leave a test of a GPU's kernels to Intel's runtime and llvmpipe."""
    if device.platform.startswith(POCL):
        pytest.skip("PoCL takes seconds to compile a GPU's kernel; it is given none")


def compile_plainly(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Intel's compiler leave out its optimisations until the end of a test.

    They take four fifths of the time of such a test, and what this compiler makes of a GPU's kernel
    is no user's concern. rusticl's compiler, in .ci/run, optimises them.
    """
    if device.platform.startswith("Intel"):
        monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
