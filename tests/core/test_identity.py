"""Tests of the facts that records are matched by."""

from __future__ import annotations

import pytest

from clgemm.core.identity import Identity, short_platform


@pytest.mark.parametrize(
    ("platform", "runtime"),
    [
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.1", "Portable Computing Language"),
        ("NVIDIA CUDA, OpenCL 3.0 CUDA 13.0", "NVIDIA CUDA"),
        ("Clover", "Clover"),
    ],
)
def test_a_runtime_is_a_platform_without_its_version(platform, runtime):
    """Two versions of one runtime are the same runtime."""
    assert Identity("", "CPU", "", platform, "", "").runtime == runtime


def test_the_options_of_pocls_build_are_left_out():
    """Two spaces precede them; names and versions stay."""
    long = "Portable Computing Language, OpenCL 3.0 PoCL 3.1  Linux, RELOC, SPIR, LLVM 14.0"
    assert short_platform(long) == "Portable Computing Language, OpenCL 3.0 PoCL 3.1"
    assert short_platform("rusticl, OpenCL 3.0") == "rusticl, OpenCL 3.0"
