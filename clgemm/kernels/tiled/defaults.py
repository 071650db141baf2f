"""The configs of the tiled family where there is no record, for each kind of device. Pure."""

from __future__ import annotations

from dataclasses import replace

from clgemm.core.traits import Traits
from clgemm.kernels.tiled.config import TiledConfig

__all__ = ["lane_configs", "nvidia_configs", "single_loads_config", "that_fit"]


def that_fit(traits: Traits) -> list[TiledConfig]:
    """Return the configs for devices like this one that it can run."""
    configs = nvidia_configs() if traits.is_nvidia else lane_configs()
    if traits.kind == "CPU":  # which plays lanes: the largest takes it five times as long at edges
        configs = configs[1:]
    return [config for config in configs if not any(config.problems_on(traits.limits))]


def single_loads_config(traits: Traits) -> TiledConfig | None:
    """Return what reads operands float by float fastest, if that is known of such a device.

    Many small work-groups hide those loads best. On an H200, 1535 x 1535 x 1535 where it lies: 243
    us; others, faster where they load vectors, 253 to 317.
    """
    return replace(nvidia_configs()[1], buffers=1) if traits.is_nvidia else None


def lane_configs() -> tuple[TiledConfig, ...]:
    """Tiles for devices that spread work-items over their lanes.

    The largest takes 32 KiB of local memory; the next 16 KiB, half of what the smallest devices
    have, so that two work-groups fit on a compute unit.
    """
    largest = TiledConfig(
        tile_m=128,
        tile_n=128,
        tile_k=16,
        work_m=8,
        work_n=8,
        width_a=4,
        width_b=4,
        grid_n=16,
        unroll=16,
        buffers=2,
        swizzle=8,
        fma=False,
        in_place=True,
    )
    smallest = replace(largest, tile_m=32, tile_n=32, work_m=4, work_n=4, grid_n=8)
    return (
        largest,
        replace(largest, tile_m=64, tile_n=64, work_m=4, grid_n=8),
        smallest,
        replace(smallest, tile_m=16, tile_n=16, grid_n=4, tile_k=8, unroll=8, buffers=1),
    )


def nvidia_configs() -> tuple[TiledConfig, ...]:
    """Tiles for NVIDIA's GPUs, which have 255 registers for a work-item: measured on an H200."""
    small = replace(lane_configs()[1], work_m=8, work_n=4, grid_n=8)
    return (
        replace(small, tile_m=128, tile_n=128, work_m=16, work_n=8, grid_n=4, tile_k=8, unroll=8),
        small,
        replace(small, work_n=8, buffers=1, parts=2),
        replace(small, tile_m=128, work_n=8, parts=2),
        replace(small, tile_m=32, tile_k=32, unroll=32, buffers=1, parts=4),
        replace(small, tile_m=32, tile_n=32, work_m=4),
        replace(small, tile_m=16, work_m=4, tile_k=32, unroll=32),
        replace(small, tile_m=128, tile_n=16, work_m=4, grid_n=4, tile_k=32, unroll=32),
    )
