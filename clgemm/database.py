"""Which config serves a device and a shape, where compiled programs are kept, and the crossover.

The configs here are the safe defaults by kind of device.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs

from clgemm.config import (
    DirectConfig,
    Limits,
    LocalConfig,
    PackConfig,
    RegisterConfig,
    SkinnyConfig,
    SkinnyLanesConfig,
    VectorPackConfig,
)
from clgemm.device import Device, get_device
from clgemm.spread import spread
from clgemm.streaming import TransferConfig

__all__ = [
    "Choice",
    "cache_folder",
    "choose",
    "copy_config",
    "direct_config",
    "host_is_faster",
    "program_cache_folder",
    "recall",
    "remember",
    "smallest_crossover",
    "transfer_config",
]

log = logging.getLogger(__name__)

CACHE_VARIABLE = "CLGEMM_CACHE_DIR"
THRESHOLD_VARIABLE = "CLGEMM_THRESHOLD"


class Choice(NamedTuple):
    """The config that makes a product, and how its operands are packed for it."""

    config: LocalConfig | RegisterConfig | SkinnyConfig | SkinnyLanesConfig | DirectConfig
    pack: tuple[PackConfig, PackConfig] | tuple[VectorPackConfig, VectorPackConfig] | None


def cache_folder() -> Path:
    """Return the folder of everything that is kept between runs; it need not exist yet."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder) if folder else platformdirs.user_cache_path("clgemm")


def program_cache_folder() -> Path:
    """Return the folder of compiled programs (some drivers keep their own instead)."""
    return cache_folder() / "programs"


def recall(key: str) -> Any:
    """Return what was found out on this machine before; None if nothing was.

    Whoever asks checks that it is what may be expected: a user's file may hold anything.
    """
    try:
        return json.loads(_verdicts_path().read_text(encoding="utf-8")).get(key)
    except (OSError, ValueError, AttributeError):
        return None


def remember(key: str, verdict: Any) -> None:
    """Keep what was found out, anything that JSON can hold, if there is a folder to keep it in."""
    path = _verdicts_path()
    try:
        try:
            known = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            known = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(known | {key: verdict}, file, indent=1)
        Path(file.name).replace(path)  # whole or not at all, whoever else is writing
    except OSError as error:
        log.warning("%s is not kept: %s", key, error)


def _verdicts_path() -> Path:
    return cache_folder() / "verdicts.json"


def threshold() -> int | None:
    """Return the crossover that the environment sets, in multiply-adds; None if it sets none.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD is not a whole number.
    """
    setting = os.environ.get(THRESHOLD_VARIABLE, "").strip()
    if setting and not setting.isdecimal():
        raise ValueError(f"{THRESHOLD_VARIABLE}={setting!r} is not a whole number")
    return int(setting) if setting else None


# Multiply-adds (m n k, all matrices) from which a device of this kind beats the host's BLAS, the
# way there and back included, and the rows and columns that it takes. Measured: README.md, "Speed".
CROSSOVER = {"GPU": 1150**3, "accelerator": 1150**3, "CPU": 768**3}
# Where operands and results are copied there and back, multiply-adds for each of their elements: a
# third of the size of a square matrix. The host takes the matrices of a stack one by one.
LEAST_REUSE, LEAST_REUSE_OF_STACKS = 300, 40
MANY_CORES, MANY_CORES_CROSSOVER = 8, 4096**3  # which launches and packing keep waiting for longer
LEAST_SIDE = {"GPU": 8, "accelerator": 8, "CPU": 384}
SMALLEST_CROSSOVER = min(CROSSOVER.values())


def smallest_crossover() -> int:
    """Return the multiply-adds below which the host multiplies, whatever the device.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD is not a whole number.
    """
    least = threshold()
    return SMALLEST_CROSSOVER if least is None else least


def host_is_faster(m: int, n: int, k: int, matrices: int) -> bool:
    """Tell whether the host's BLAS should multiply host operands.

    Raises
    ------
    RuntimeError
        If the product is large and there is no OpenCL device.
    ValueError
        If CLGEMM_THRESHOLD or CLGEMM_DEVICE is set to what it cannot be.
    """
    work = m * n * k * matrices
    if (least := threshold()) is not None:
        return work < least
    if work < SMALLEST_CROSSOVER or min(m, n, k) < SHORT_SIDE:
        return True
    device = get_device()
    if device.kind == "CPU":
        many = device.limits.compute_units >= MANY_CORES
        if not _outruns_blas(device) or (many and work < MANY_CORES_CROSSOVER):
            return True
    if transfer_config(device) is not None:
        least_reuse = LEAST_REUSE if matrices == 1 else LEAST_REUSE_OF_STACKS
        if m * n * k < least_reuse * (m * k + k * n + m * n):
            return True
    return work < CROSSOVER[device.kind] or min(m, n) < LEAST_SIDE[device.kind]


def _outruns_blas(device: Device) -> bool:
    """Tell whether a CPU device has been seen to beat the host's BLAS: with AVX-512 in full use."""
    return _register_width(device) == 16 and _is_vector_compiler(device)


# With fewer multiply-adds a matrix, or a side this short, packing costs more than it saves.
SMALL = {"CPU": 32**3, "GPU": 96**3, "accelerator": 96**3}
SHORT_SIDE = 8
SMALLEST_SKINNY = 4096
MOST_LANES_ROWS = 2  # with more, tiles in local memory are faster


@functools.lru_cache(maxsize=1024)
def choose(
    device: Device, m: int, n: int, k: int, matrices: int, fits_skinny: bool = False
) -> Choice:
    """Return the config for a stack of `matrices` products of m x k by k x n.

    Parameters
    ----------
    fits_skinny : bool
        Whether the operands' shapes and strides are what the skinny family takes.
    """
    limits = device.limits
    vectors = limits.vector_width > 1
    if fits_skinny and n * m * k > SMALLEST_SKINNY and (vectors or min(m, n) <= MOST_LANES_ROWS):
        config: SkinnyConfig | SkinnyLanesConfig
        if vectors:
            width = _register_width(device)
            config = skinny_config(min(m, n), width, _is_vector_compiler(device))
        else:
            config = skinny_lanes_config(min(m, n), limits)
        return Choice(config, (copy_config(limits),) * 2)
    if m * n * k <= SMALL[device.kind] or (vectors and min(m, n) < SHORT_SIDE):
        return Choice(direct_config(limits), None)
    panels = panel_config(device, m, n, k, matrices)
    tile_m, tile_n = panels.tile_m, panels.tile_n
    if isinstance(panels, RegisterConfig):
        prefetch = panels.prefetch
        return Choice(
            panels, (vector_pack_config(tile_m, prefetch), vector_pack_config(tile_n, prefetch))
        )
    return Choice(panels, (pack_config(limits, tile_m), pack_config(limits, tile_n)))


def transfer_config(device: Device) -> TransferConfig | None:
    """Return how host arrays reach a device; None if it uses them where they lie."""
    if device.transfer is not None:
        return device.transfer
    if device.shares_host_memory:
        return None
    return TransferConfig(
        memory_bytes=device.cl_device.global_mem_size // 2,
        threads=max(1, min((os.cpu_count() or 1) // 2, 8)),
    )


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


def vector_pack_config(panel: int, prefetch: int) -> VectorPackConfig:
    """Return how panels for the register family are packed."""
    piece = math.gcd(panel, 16)
    width = piece if piece < panel else 16
    # Rows that are neighbours in memory are read fastest in runs of a few hundred.
    return VectorPackConfig(
        panel=panel, piece=piece, width=width, panels=max(1, 384 // panel), prefetch=prefetch
    )


def copy_config(limits: Limits) -> PackConfig:
    """Return how a matrix is copied row by row."""
    group = 1 if limits.vector_width > 1 else min(256, limits.work_group_size)
    return PackConfig(panel=1, depth=256, group=group)


def panel_config(
    device: Device, m: int, n: int, k: int, matrices: int
) -> LocalConfig | RegisterConfig:
    """Return the config that multiplies panels: by vectors, or by tiles in local memory.

    Of the tiles that fit the device, those expected to be done first.
    """
    limits = device.limits
    if limits.vector_width > 1:
        pocl = device.platform.startswith("Portable Computing Language")
        config = register_config(_register_width(device), _is_vector_compiler(device), pocl)
        # Where many cores wait for packing, it costs more than the sets of a cache that rows share.
        return replace(config, aliasing=0) if limits.compute_units >= MANY_CORES else config
    configs = nvidia_configs() if "NVIDIA" in device.platform else lane_configs()
    fitting = [c for c in configs if not any(c.problems_on(limits))]
    if not fitting:
        raise RuntimeError(f"no config of the local family fits {device!r}: {limits}")
    return min(fitting, key=lambda c: spread(c, m, n, k, matrices, limits).time)


def lane_configs() -> tuple[LocalConfig, ...]:
    """Tiles for devices that spread work-items over their lanes.

    The largest takes 32 KiB of local memory; the next 16 KiB, half of what the smallest devices
    have, so that two work-groups fit on a compute unit.
    """
    largest = LocalConfig(
        tile_m=128,
        tile_n=128,
        tile_k=16,
        work_m=8,
        work_n=8,
        width_a=4,
        width_b=4,
        patch_n=16,
        unroll=16,
        buffers=2,
        swizzle=8,
        fma=False,
        in_place=True,
    )
    smallest = replace(largest, tile_m=32, tile_n=32, work_m=4, work_n=4, patch_n=8)
    return (
        largest,
        replace(largest, tile_m=64, tile_n=64, work_m=4, patch_n=8),
        smallest,
        replace(smallest, tile_m=16, tile_n=16, patch_n=4, tile_k=8, unroll=8, buffers=1),
    )


def nvidia_configs() -> tuple[LocalConfig, ...]:
    """Tiles for NVIDIA's GPUs, which have 255 registers for a work-item: measured on an H200."""
    small = replace(lane_configs()[1], work_m=8, work_n=4, patch_n=8)
    return (
        replace(small, tile_m=128, tile_n=128, work_m=16, work_n=8, patch_n=4, tile_k=8, unroll=8),
        small,
        replace(small, tile_m=32, tile_n=32, work_m=4),
        replace(small, tile_m=16, work_m=4, tile_k=32, unroll=32),
        replace(small, tile_m=128, tile_n=16, work_m=4, patch_n=4, tile_k=32, unroll=32),
    )


def register_config(width: int, can_prefetch: bool, pocl: bool) -> RegisterConfig:
    """Return the config whose accumulators fill the vector registers of a CPU core.

    A register holds one vector of `width` floats; what the accumulators leave free takes a row
    of B and an element of A. Sixteen floats are AVX-512 (32 registers), eight AVX (16), four
    NEON (32) and SSE (16). Three vectors a row load least: 11 loads for 24 multiply-adds.

    PoCL gives each thread its share of the work-groups in a few large lots; Intel's runtime deals
    them out as threads come free, takes long to compile the drawing, and makes of A in place a
    kernel that is a seventh slower.
    """
    work_m, vectors = {16: (8, 3), 8: (4, 3)}.get(width, (4, 2))
    return RegisterConfig(
        work_m=work_m,
        vectors=vectors,
        width=width,
        block_m=512 // work_m,
        block_n=384 // (vectors * width),
        block_k=768,
        unroll=4,
        prefetch=16 if can_prefetch else 0,
        in_place=pocl,
        aliasing=1024,  # floats: rows so far apart share a set of a first-level cache
        draw=pocl,
        fma=False,
    )


def skinny_config(rows: int, width: int, can_prefetch: bool) -> SkinnyConfig:
    """Return the config that multiplies by an operand of few rows."""
    return SkinnyConfig(
        rows=1 if rows == 1 else 4,
        vectors=8 if rows == 1 else 4,
        width=width,
        strip=64 * width,
        chunk=32,
        prefetch=8 if can_prefetch else 0,
        fma=False,
    )


def skinny_lanes_config(rows: int, limits: Limits) -> SkinnyLanesConfig:
    """Return the same for devices that spread work-items over their lanes.

    As many work-items as there may be, up to what leaves each its registers, and 28 KiB at most.
    """
    rows = next(r for r in (1, 2, 4, 8) if r >= rows or r == 8)
    group = 1024 if rows <= MOST_LANES_ROWS else 256
    while group > limits.work_group_size or 16 * group > limits.local_memory_bytes // 2:
        group //= 2
    return SkinnyLanesConfig(
        rows=rows, width=4, group=group, abreast=min(8, group), chunk=1024 // rows, fma=False
    )


def _register_width(device: Device) -> int:
    """Return the floats in a vector register, as the runtime's compiler uses it."""
    width = min(device.limits.vector_width, 16)
    # LLVM 14, in PoCL 3.0 as PyPI has it, takes AMD's processors with AVX-512 for older ones; PoCL
    # names the processor's own width all the same.
    old = any(f"PoCL {version}" in device.platform for version in ("1.", "2.", "3.0"))
    return min(width, 8) if old and "AMD" in device.cl_device.vendor else width


def _is_vector_compiler(device: Device) -> bool:
    """Tell whether the runtime is a Clang for the CPU itself, which has __builtin_prefetch."""
    return device.platform.startswith(("Portable Computing Language", "Intel(R) OpenCL"))
