"""Tests of the limits, traits and identity of a device."""

from __future__ import annotations

import pytest

from clgemm.core.traits import MANY_CORES, Identity, Limits, Traits, short_platform


@pytest.mark.parametrize("width", [1, 2, 16])
@pytest.mark.parametrize("units", [1, MANY_CORES - 1, MANY_CORES])
def test_flags_follow_from_limits(width, units):
    """Vectors have more than one float; eight cores are many."""
    traits = Traits(Limits(2**15, 256, 2**30, units, width), "CPU")
    assert traits.has_vectors == (width > 1)
    assert traits.has_many_cores == (units >= 8)


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
