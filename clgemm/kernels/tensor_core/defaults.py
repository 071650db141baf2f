"""The default configs of products on tensor cores. Pure."""

from __future__ import annotations

from clgemm.core.shapes import Shape
from clgemm.core.steps import ceil_div
from clgemm.kernels.tensor_core.config import TILE_ROWS, WgmmaConfig

__all__ = ["TILES", "wgmma_config"]

# `tile_n` and `stages` of each.
NARROW_TILES = (128, 3)
WIDE_TILES = (256, 2)
TILES = (NARROW_TILES, WIDE_TILES)
TWO_NARROW = 1.04  # time of two narrow tiles, over that of a wide one


def wgmma_config(shape: Shape, compute_units: int) -> WgmmaConfig:
    """Return the config whose tiles leave the fewest compute units idle in the last round."""
    wide, narrow = (
        ceil_div(
            shape.matrices * ceil_div(shape.m, TILE_ROWS) * ceil_div(shape.n, tile_n),
            compute_units,
        )
        for tile_n, _ in (WIDE_TILES, NARROW_TILES)
    )
    tile_n, stages = WIDE_TILES if 2 * wide <= TWO_NARROW * narrow else NARROW_TILES
    return WgmmaConfig(swizzle=16, tile_n=tile_n, stages=stages)
