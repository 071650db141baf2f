"""Configs made by hand, by kind of device: the safe defaults, and where tuning begins."""

from __future__ import annotations

from dataclasses import replace

from clgemm.core.config import Limits
from clgemm.hardware.device import INTEL, Device, register_width
from clgemm.hardware.identity import MANY_CORES, is_vector_compiler
from clgemm.kernels.blocked.config import RegisterConfig
from clgemm.kernels.direct.config import DirectConfig
from clgemm.kernels.pack.config import PackConfig, VectorPackConfig
from clgemm.kernels.skinny.config import MOST_OF_A, SkinnyConfig, SkinnyLanesConfig
from clgemm.kernels.tiled.config import LocalConfig
from clgemm.kernels.tiled.estimate import local_spread
from clgemm.records.record import Choice

__all__ = [
    "MOST_LANES_ROWS",
    "copy_config",
    "default_choice",
    "direct_config",
    "families",
    "hand_made",
    "lane_configs",
    "nvidia_configs",
    "pack_config",
    "plain_choice",
    "register_config",
    "single_loads_choice",
    "skinny_config",
    "skinny_lanes_config",
    "vector_pack_config",
]


MOST_LANES_ROWS = 2  # of skinny products on lanes: with more, tiles in local memory are faster


def families(limits: Limits) -> tuple[str, str, str]:
    """Return the kernel families of a device: for large products, by few rows, for small ones.

    CPUs have vectors; other devices spread work-items over lanes.
    """
    if limits.vector_width > 1:
        return ("register", "skinny", "direct")
    return ("local", "skinny_lanes", "direct")


def default_choice(device: Device, family: str, m: int, n: int, k: int, matrices: int) -> Choice:
    """Return a family's config, and its packing, where there is no record."""
    limits = device.limits
    if family == "direct":
        return Choice(direct_config(limits), None)
    if family == "skinny":
        width = register_width(device)
        config = skinny_config(min(m, n), width, is_vector_compiler(device))
        return Choice(config, (copy_config(limits),))
    if family == "skinny_lanes":
        lanes = skinny_lanes_config(min(m, n), limits)
        if "NVIDIA" in device.platform and lanes.rows <= MOST_LANES_ROWS:
            # Its caches serve few rows as fast as local memory, and without barriers.
            lanes = replace(lanes, chunk=0, ahead=8 // lanes.rows)
        return Choice(lanes, None)
    return _packed(panel_config(device, m, n, k, matrices), limits)


def hand_made(
    device: Device, family: str, m: int, n: int, k: int, matrices: int
) -> tuple[Choice, ...]:
    """Return every choice of a family that was made by hand for devices like this one."""
    limits = device.limits
    default = default_choice(device, family, m, n, k, matrices)
    if family != "local":
        return (default,)
    others = (_packed(config, limits) for config in _fitting(device))
    return tuple(dict.fromkeys((default, *others)))


def plain_choice(device: Device, family: str) -> Choice:
    """Return a choice that every compiler and device can take, however slow."""
    limits = device.limits
    if family == "direct":
        return Choice(DirectConfig(items_m=1, items_n=1, work_m=1, width=1, fma=False), None)
    if family == "skinny":
        skinny = replace(skinny_config(4, 2, False), vectors=1, strip=64)
        return Choice(skinny, (copy_config(limits),))
    if family == "skinny_lanes":
        return Choice(replace(skinny_lanes_config(4, limits), width=1), None)
    return _packed(
        register_config(2, False, False) if family == "register" else lane_configs()[-1], limits
    )


def single_loads_choice(device: Device) -> Choice | None:
    """Return what reads operands float by float fastest, if that is known of such a device.

    Many small work-groups hide those loads best. On an H200, 1535 x 1535 x 1535 where it lies: 243
    us; others, faster where they load vectors, 253 to 317.
    """
    if "NVIDIA" not in device.platform:
        return None
    return _packed(replace(nvidia_configs()[1], buffers=1), device.limits)


def _packed(config: LocalConfig | RegisterConfig, limits: Limits) -> Choice:
    if isinstance(config, RegisterConfig):
        return Choice(config, (vector_pack_config(config.tile_m, config.prefetch > 0),))
    a, b = (pack_config(limits, tile) for tile in (config.tile_m, config.tile_n))
    return Choice(config, (a, b))


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


def vector_pack_config(panel: int, prefetch: bool) -> VectorPackConfig:
    """Return how panels of A are packed for the register family."""
    rows = 384  # for a work-group, where it transposes
    return VectorPackConfig.of(panel, rows, prefetch)


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
        fma = device.platform.startswith(INTEL)
        config = register_config(register_width(device), is_vector_compiler(device), fma)
        # Where many cores wait for packing, it costs more than the sets of a cache that rows share.
        return replace(config, aliasing=0) if limits.compute_units >= MANY_CORES else config
    fitting = _fitting(device)
    if not fitting:
        raise RuntimeError(f"no config of the local family fits {device!r}: {limits}")
    return min(fitting, key=lambda c: local_spread(c, m, n, k, matrices, limits).time)


def _fitting(device: Device) -> list[LocalConfig]:
    configs = nvidia_configs() if "NVIDIA" in device.platform else lane_configs()
    if device.kind == "CPU":  # which plays lanes: the largest takes it five times as long at edges
        configs = configs[1:]
    return [config for config in configs if not any(config.problems_on(device.limits))]


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
        replace(small, work_n=8, buffers=1, parts=2),
        replace(small, tile_m=128, work_n=8, parts=2),
        replace(small, tile_m=32, tile_k=32, unroll=32, buffers=1, parts=4),
        replace(small, tile_m=32, tile_n=32, work_m=4),
        replace(small, tile_m=16, work_m=4, tile_k=32, unroll=32),
        replace(small, tile_m=128, tile_n=16, work_m=4, patch_n=4, tile_k=32, unroll=32),
    )


def register_config(width: int, can_prefetch: bool, fma: bool) -> RegisterConfig:
    """Return the config whose accumulators fill the vector registers of a CPU core.

    A register holds one vector of `width` floats; what the accumulators leave free takes a row
    of B and an element of A. Sixteen floats are AVX-512 (32 registers), eight AVX (16), four
    NEON (32) and SSE (16). Three vectors a row load least: 11 loads for 24 multiply-adds.

    Without `fma`, Intel's compiler makes of A in place a kernel that is a fifth slower, and with it
    it spills unless a register is to spare, or with AVX if A is fetched ahead; PoCL 3.0 aborts on
    `fma` of vectors wider than what it compiles for.
    """
    work_m, vectors = {16: (8, 3), 8: (6, 2) if fma else (4, 3)}.get(width, (4, 2))
    return RegisterConfig(
        work_m=work_m,
        vectors=vectors,
        width=width,
        block_m=4096 // work_m,
        block_n=144 // (vectors * width),
        block_k=1024 if width == 16 else 512,
        unroll=8,
        prefetch=8 if can_prefetch else 0,
        prefetch_a=64 if can_prefetch and width == 16 else 0,
        in_place=True,
        aliasing=1024,  # floats: rows so far apart share a set of a first-level cache
        fma=fma,
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

    As many work-items as there may be, up to what leaves each its registers, and 32 KiB at most.
    """
    rows = next(r for r in (1, 2, 4, 8) if r >= rows or r == 8)
    group = 1024 if rows <= MOST_LANES_ROWS else 256
    while group > limits.work_group_size or 16 * group > limits.local_memory_bytes // 2:
        group //= 2
    chunk = min(max(1024, 4 * group), MOST_OF_A * group) // rows
    return SkinnyLanesConfig(
        rows=rows, width=4, group=group, abreast=min(8, group), chunk=chunk, fma=False, ahead=4
    )
