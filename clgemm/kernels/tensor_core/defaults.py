"""The default configs of products on tensor cores. Pure."""

from __future__ import annotations

from clgemm.core.config import Limits, variant_of
from clgemm.core.shapes import Shape
from clgemm.kernels.tensor_core.config import WgmmaConfig, WgmmaVariant

__all__ = ["NARROW_TILES", "WIDE_TILES", "wgmma_configs"]

NARROW_TILES = WgmmaConfig(swizzle=16, tile_n=128, stages=3)
WIDE_TILES = WgmmaConfig(swizzle=16, tile_n=256, stages=2)


def wgmma_configs(shape: Shape, limits: Limits) -> tuple[WgmmaConfig, ...]:
    """Return all, the one first whose tiles are expected to take the shortest time."""

    def us(config: WgmmaConfig) -> float:
        variant = variant_of(WgmmaVariant, config, guard=True)
        return variant.cuts(variant.tiles(shape.matrices, shape.m, shape.n), shape.k, limits).us

    return tuple(sorted((NARROW_TILES, WIDE_TILES), key=us))
