"""The search space of the families of tensor cores."""

from __future__ import annotations

from planned import LIMITS, traits_with

from clgemm.kernels.tensor_core.config import MmaConfig, WgmmaConfig
from clgemm.kernels.tensor_core.family import MMA, NARROW, WGMMA
from clgemm.kernels.tensor_core.search_space import search_space

TRAITS = traits_with(LIMITS, is_nvidia=True, capability=(9, 0))


def test_tiles_are_searched_where_the_config_has_them():
    """mma has tiles of one size; only their order is searched."""
    wgmma = search_space(WgmmaConfig(swizzle=16, tile_n=256, stages=2))
    mma = search_space(MmaConfig(swizzle=8))
    assert set(wgmma.values) == {"tile_n", "stages", "swizzle"}
    assert set(mma.values) == {"swizzle"}
    assert not mma.couples


def test_how_operands_are_split_is_not_searched():
    """It follows from the precision of a call. The family of few rows is not tuned at all."""
    for family in (WGMMA, MMA):
        space = family.search_space(family.plainest(TRAITS), TRAITS)
        assert {"tf32", "guard", "int8"}.isdisjoint(space.values)
    assert not NARROW.search_space(NARROW.plainest(TRAITS), TRAITS).values
