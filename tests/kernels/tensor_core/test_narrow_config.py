"""Tests of the constraints on the narrow family's config, without a device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from strategies import GPU_LIMITS as LIMITS

from clgemm.core.config import variant_of
from clgemm.kernels.tensor_core.narrow_config import NarrowConfig, NarrowVariant

FEW = NarrowConfig(columns=64, ahead=2)
FEWER = NarrowConfig(columns=16, ahead=1)
MORE = NarrowConfig(columns=128, ahead=2)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (replace(FEW, columns=48), "columns=48"),
        (replace(FEW, ahead=0), "ahead=0"),
        (variant_of(NarrowVariant, FEW, load_a=4, along_k=False), "load_a=4"),
    ],
)
def test_broken_constraints_are_named(config, named):
    """What no compute capability can run."""
    assert any(named in problem for problem in config.problems())


@pytest.mark.parametrize("config", [FEW, FEWER, replace(MORE, columns=96), MORE])
def test_shipped_configs_hold_their_constraints(config):
    """Whatever local memory the device reports."""
    assert not list(config.problems_on(LIMITS))
