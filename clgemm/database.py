"""Which config serves a device and a shape, where compiled programs are kept, and the crossover.

The configs here are the safe defaults by kind of device.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import platformdirs

from clgemm.config import DirectConfig, Limits, LocalConfig, PackConfig
from clgemm.device import Device

__all__ = [
    "Choice",
    "cache_folder",
    "choose",
    "copy_config",
    "crossover",
    "direct_config",
    "program_cache_folder",
]

CACHE_VARIABLE = "CLGEMM_CACHE_DIR"
THRESHOLD_VARIABLE = "CLGEMM_THRESHOLD"


class Choice(NamedTuple):
    """The config that makes a product, and how its operands are packed for it."""

    config: LocalConfig | DirectConfig
    pack: tuple[PackConfig, PackConfig] | None


def cache_folder() -> Path:
    """Return the folder of everything that is kept between runs; it need not exist yet."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder) if folder else platformdirs.user_cache_path("clgemm")


def program_cache_folder() -> Path:
    """Return the folder of compiled programs (some drivers keep their own instead)."""
    return cache_folder() / "programs"


def crossover(device: Device) -> int:
    """Return the multiply-adds (m n k, all matrices) from which host operands go to the device.

    Raises
    ------
    ValueError
        If the environment variable CLGEMM_THRESHOLD is not a whole number.
    """
    setting = os.environ.get(THRESHOLD_VARIABLE, "")
    if setting:
        if not setting.strip().isdecimal():
            raise ValueError(f"{THRESHOLD_VARIABLE}={setting!r} is not a whole number")
        return int(setting)
    return CROSSOVER[device.kind]


# Measured: see "Where the crossover lies" in CHANGELOG.md.
CROSSOVER = {"CPU": 256**3, "GPU": 1024**3, "accelerator": 1024**3}

# With fewer multiply-adds a matrix, or a side this short, packing costs more than it saves.
SMALL = {"CPU": 32**3, "GPU": 96**3, "accelerator": 96**3}
SHORT_SIDE = 8


@functools.lru_cache(maxsize=1024)
def choose(device: Device, m: int, n: int, k: int, matrices: int) -> Choice:
    """Return the config for a stack of `matrices` products of m x k by k x n."""
    limits = device.limits
    if m * n * k <= SMALL[device.kind] or min(m, n) < SHORT_SIDE:
        return Choice(direct_config(limits), None)
    config = local_config(device, m, n, matrices)
    return Choice(config, (pack_config(limits, config.tile_m), pack_config(limits, config.tile_n)))


def direct_config(limits: Limits) -> DirectConfig:
    """Return the config of small products."""
    if limits.vector_width > 1:
        return DirectConfig(
            items_m=1, items_n=1, work_m=4, width=min(limits.vector_width, 8), fma=False
        )
    return DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False)


def pack_config(limits: Limits, panel: int) -> PackConfig:
    """Return how panels of a tile's size are packed."""
    if limits.vector_width > 1:
        return PackConfig(panel=panel, depth=64, group=1)
    return PackConfig(panel=panel, depth=16, group=min(256, limits.work_group_size))


def copy_config(limits: Limits) -> PackConfig:
    """Return how a matrix is copied row by row."""
    return replace(pack_config(limits, 1), depth=256)


def local_config(device: Device, m: int, n: int, matrices: int) -> LocalConfig:
    """Return the largest safe tile that still gives each compute unit a work-group."""
    limits = device.limits
    candidates = _vector_configs(device) if limits.vector_width > 1 else _lane_configs()
    fitting = [c for c in candidates if not any(c.problems_on(limits))]
    if not fitting:
        raise RuntimeError(f"no config of the local family fits {device!r}: {limits}")

    def tiles(config: LocalConfig) -> int:
        return matrices * -(-m // config.tile_m) * -(-n // config.tile_n)

    busy = (c for c in fitting if tiles(c) >= limits.compute_units)
    return next(busy, fitting[-1])


def _lane_configs() -> tuple[LocalConfig, ...]:
    """Tiles for devices that spread work-items over their lanes, largest first.

    The largest takes 32 KiB of local memory (NVIDIA has 48); the next 16 KiB, half of what the
    smallest devices have, so that two work-groups fit on a compute unit.
    """
    largest = LocalConfig(
        tile_m=128,
        tile_n=128,
        tile_k=16,
        work_m=8,
        work_n=8,
        width_a=4,
        width_b=4,
        unroll=16,
        buffers=2,
        swizzle=8,
        fma=False,
        in_place=True,
    )
    return (
        largest,
        replace(largest, tile_m=64, tile_n=64, work_m=4),
        replace(largest, tile_m=32, tile_n=32, work_m=4, work_n=4),
        replace(largest, tile_m=16, tile_n=16, work_m=4, work_n=4, tile_k=8, unroll=8, buffers=1),
    )


def _vector_configs(device: Device) -> tuple[LocalConfig, ...]:
    """One work-item per work-group, whose accumulators fill the vector registers of a CPU core.

    A register holds one vector; what the accumulators leave free takes a row of B and an element
    of A. Sixteen-wide vectors are AVX-512 (32 registers), eight-wide AVX (16), four-wide NEON (32)
    and SSE (16).
    """
    width = min(device.limits.vector_width, 8 if _halves_vectors(device) else 16)
    work_m, vectors = {16: (8, 2), 8: (4, 3), 4: (4, 2)}.get(width, (4, 2))
    return (
        LocalConfig(
            tile_m=work_m,
            tile_n=vectors * width,
            tile_k=64,
            work_m=work_m,
            work_n=vectors * width,
            width_a=4,
            width_b=width,
            unroll=1,
            buffers=1,
            swizzle=8,
            fma=False,
            in_place=False,
        ),
    )


def _halves_vectors(device: Device) -> bool:
    """Whether the runtime names AVX-512's vector width but compiles for AVX2.

    PoCL 3.0 as PyPI has it does (LLVM 14); it also aborts the process on fma() of sixteen floats.
    """
    platform = device.platform
    return "PoCL" in platform and any(f"PoCL {v}" in platform for v in ("1.", "2.", "3.0"))
