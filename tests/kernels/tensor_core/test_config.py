"""Tests of the constraints on the configs of tensor cores, without a device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from strategies import GPU_LIMITS as LIMITS

from clgemm.kernels.tensor_core.config import (
    MmaVariant,
    SplitConfig,
    WgmmaVariant,
)

WIDE = WgmmaVariant(swizzle=16, guard=True, tile_n=256, stages=2)
NARROW = WgmmaVariant(swizzle=3, guard=True, tile_n=128, stages=3)
IN_BYTES = replace(WIDE, guard=False, int8=True)
MMA = MmaVariant(swizzle=2, guard=True)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (replace(WIDE, tile_n=192), "tile_n=192"),
        (replace(WIDE, stages=3), "local memory"),
        (replace(WIDE, stages=0), "stages=0"),
        (replace(WIDE, swizzle=0), "swizzle=0"),
        (replace(WIDE, int8=True), "int8=True needs guard=False"),
        (replace(MMA, guard=False, int8=True), "needs wgmma"),
    ],
)
def test_broken_constraints_are_named(config, named):
    """What no compute capability can run."""
    assert any(named in problem for problem in config.problems())


@pytest.mark.parametrize(
    "config",
    [WIDE, NARROW, IN_BYTES, MMA, SplitConfig(guard=True)],
)
def test_shipped_configs_hold_their_constraints(config):
    """Whatever local memory the device reports."""
    assert not list(config.problems_on(LIMITS))
