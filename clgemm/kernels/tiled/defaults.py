"""The default configs of the tiled family, for each kind of device. Pure."""

from __future__ import annotations

import functools
from dataclasses import replace

from clgemm.core.traits import Traits
from clgemm.kernels.tiled.config import TiledConfig

__all__ = ["lane_configs", "nvidia_configs", "that_fit"]


@functools.lru_cache(maxsize=16)
def that_fit(traits: Traits) -> tuple[TiledConfig, ...]:
    """Return the default configs that a device with these traits can run."""
    configs = lane_configs()
    if traits.is_nvidia:
        configs = nvidia_configs(traits.limits.asynchronous_copies)
    if traits.kind == "CPU":  # it emulates lanes, and takes very long for partly used large tiles
        configs = configs[1:]
    return tuple(config for config in configs if not any(config.problems_on(traits.limits)))


def lane_configs() -> tuple[TiledConfig, ...]:
    """Return tiles for devices that spread work-items over their lanes.

    The largest takes 32 KiB of local memory. The next takes 16 KiB, half of what the smallest
    devices have, so that two work-groups fit on a compute unit.
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


def nvidia_configs(asynchronous_copies: bool = True) -> tuple[TiledConfig, ...]:
    """Return tiles for NVIDIA's GPUs, with 255 registers per work-item. Chosen on an H200.

    Parameters
    ----------
    asynchronous_copies : bool, optional
        As in `clgemm.core.config.Limits`: without, those that copy so are left out, and registers
        are not limited.
    """
    small = replace(lane_configs()[1], work_m=8, work_n=4, grid_n=8)
    single = replace(small, buffers=1, grid_n=2, registers=128)
    shallow = replace(small, tile_k=8, unroll=8, grid_n=2)
    large = replace(shallow, tile_m=128, tile_n=128, work_m=16, work_n=8)
    copied = replace(shallow, work_n=8, grid_n=4, asynchronous=True, buffers=3)
    short = replace(small, tile_m=16, work_m=4, tile_k=32, unroll=32)
    measured = (  # the percent of the model's time, and the rest
        (82, replace(large, buffers=1)),
        (82, replace(large, asynchronous=True, buffers=3)),
        (91, small),
        (86, single),
        (91, replace(single, grid_n=8)),
        (83, replace(single, tile_m=32, parts=2)),
        (91, replace(shallow, buffers=1, registers=96)),
        (89, replace(small, tile_m=128, work_n=8, parts=2)),
        (99, replace(small, tile_m=32, tile_n=32, work_m=4, registers=96)),
        (113, short),
        (106, replace(small, tile_m=128, tile_n=16, work_m=4, grid_n=4, tile_k=32, unroll=32)),
        (85, replace(shallow, grid_n=8, asynchronous=True, buffers=4)),
        (84, replace(copied, tile_m=128, grid_n=8, registers=168)),
        (95, replace(copied, tile_m=128, tile_n=96)),
        (85, replace(copied, tile_k=16, unroll=16)),
        (93, replace(small, tile_m=32, asynchronous=True, buffers=3)),
        (97, replace(short, asynchronous=True, buffers=3)),
    )
    configs = tuple(replace(config, percent=percent) for percent, config in measured)
    if asynchronous_copies:
        return configs
    plain = (replace(config, registers=0) for config in configs if not config.asynchronous)
    return tuple(dict.fromkeys(plain))
