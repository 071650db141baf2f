"""Tests of the constraints on kernel configs, without a device."""

from __future__ import annotations

from dataclasses import fields, replace
from importlib import resources

import pytest

from clgemm.core.config import variant_of
from clgemm.core.traits import Limits
from clgemm.kernels.blocked.family import BlockedVariant, register_config
from clgemm.kernels.direct.family import DirectConfig
from clgemm.kernels.finite.plan import FiniteConfig
from clgemm.kernels.pack.plan import PackConfig, VectorPackConfig, VectorPackVariant
from clgemm.kernels.skinny_cpu.family import SkinnyCpuConfig, skinny_config
from clgemm.kernels.skinny_gpu.family import SkinnyGpuVariant, skinny_lanes_config
from clgemm.kernels.split_k.plan import ReduceConfig
from clgemm.kernels.tensor_core.narrow import NARROW_COLUMNS, NarrowConfig, NarrowVariant
from clgemm.kernels.tensor_core.plan import MmaVariant, SplitConfig, WgmmaVariant
from clgemm.kernels.tiled.family import gpu_configs, lane_configs, nvidia_configs
from clgemm.kernels.tiled.plan import TiledVariant

LIMITS = Limits(
    local_memory_bytes=32 * 1024,
    work_group_size=256,
    allocation_bytes=2**30,
    compute_units=8,
    vector_width=1,
)
LARGE = lane_configs()[0]
LANES = skinny_lanes_config(1, LIMITS)
VECTOR_PACK = VectorPackConfig.of(48, False)
REGISTER = [register_config(width, True, False) for width in (2, 4, 8, 16)]
WIDE = WgmmaVariant(swizzle=16, guard=True, tile_n=256, stages=2)
MMA = MmaVariant(swizzle=2, guard=True)
FEW = NarrowConfig(columns=64, ahead=2)
SHIPPED = [
    *(WIDE, replace(WIDE, tile_n=128, stages=3), replace(WIDE, guard=False, int8=True)),
    *(MMA, SplitConfig(guard=True)),
    *(NarrowConfig(columns, ahead=2) for columns in NARROW_COLUMNS),
    *lane_configs(),
    *gpu_configs(),
    *nvidia_configs(),
    *(skinny_lanes_config(rows, LIMITS) for rows in (1, 2, 3, 8)),
    *REGISTER,
    *(skinny_config(rows, width, True) for rows in (1, 4) for width in (2, 4, 8, 16)),
    *(VectorPackConfig.of(tile, True) for c in REGISTER for tile in (c.tile_m, c.tile_n)),
]
FAMILIES = [TiledVariant, BlockedVariant, DirectConfig, PackConfig, VectorPackVariant]
FAMILIES += [SkinnyCpuConfig, SkinnyGpuVariant, ReduceConfig, FiniteConfig]


@pytest.mark.parametrize("config", SHIPPED, ids=str)
def test_shipped_configs_keep_their_own_constraints(config):
    """Each shipped default config meets its own constraints on any device."""
    assert list(config.problems()) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (replace(LARGE, tile_m=100), "tile_m=100 is not a multiple of work_m=8"),
        (replace(LARGE, tile_n=100), "tile_n=100 is not a multiple of work_n=8"),
        (replace(LARGE, work_m=6), "work_m=6 is not a multiple of width_a=4"),
        (replace(LARGE, work_n=2, width_b=4), "work_n=2 is not a multiple of width_b=4"),
        (replace(LARGE, unroll=5), "tile_k=16 is not a multiple of unroll=5"),
        (replace(LARGE, width_a=3), r"width_a=3 is not one of \(1, 2, 4, 8, 16\)"),
        (replace(LARGE, buffers=3), "buffers=3 is neither 1 nor 2"),
        (replace(LARGE, swizzle=0), "swizzle=0 is less than 1"),
        (replace(LARGE, tile_m=256), "512 work-items .* exceed the device's 256"),
        (replace(LARGE, tile_k=32), "65536 bytes of local memory exceed the device's 32768"),
        (replace(LARGE, grid_n=5), "grid_n=5 does not divide 16 work-items along N"),
        (variant_of(TiledVariant, LARGE, load_a=8), "width_a=4 is not a multiple of load_a=8"),
        (
            variant_of(
                TiledVariant, replace(LARGE, tile_k=2, unroll=2), load_b=4, transpose_b=True
            ),
            "tile_k=2 is not a multiple of load_b=4",
        ),
        (variant_of(TiledVariant, LARGE, transpose_a=True), "33280 bytes of local memory exceed"),
        (ReduceConfig(group=4, parts=3, width=1), "group=4 is not a multiple of parts=3"),
        (
            replace(skinny_lanes_config(1, LIMITS), abreast=3),
            "group=256 is not a multiple of abreast=3",
        ),
        (
            replace(skinny_lanes_config(1, LIMITS), chunk=8192),
            "chunk=8192 columns of rows=1 are more than 16 floats for each of group=256",
        ),
        (
            variant_of(SkinnyGpuVariant, replace(LANES, width=2), cached_loads=1),
            "cached_loads=1 needs loads of 4",
        ),
        (
            variant_of(SkinnyGpuVariant, LANES, cached_loads=4),
            "cached_loads=4 is not below ahead=4",
        ),
        (replace(LARGE, parts=3), "tile_k=16 is not a multiple of parts=3"),
        (
            replace(LARGE, parts=2, tile_k=4, unroll=4, buffers=1),
            "work_m=8 is not a multiple of the 0",
        ),
        (DirectConfig(0, 1, 1, 1, False), "items_m=0 is less than 1"),
        (DirectConfig(1, 1, 1, 5, False), "width=5 is not one of"),
        (PackConfig(panel=128, depth=0, group=1), "depth=0 is less than 1"),
        (PackConfig(panel=128, depth=128, group=1), "66048 bytes of local memory"),
        (replace(REGISTER[3], vectors=4), "vectors=4 is more than 3"),
        (replace(REGISTER[3], prefetch=-1), "prefetch=-1 is less than 0"),
        (replace(VECTOR_PACK, vector_rows=32), "vector_rows=32 is not one of"),
        (replace(VECTOR_PACK, panel=40), "panel=40 is not a multiple of vector_rows=16"),
        (
            replace(VECTOR_PACK, vector_columns=8),
            "vector_columns=8 is not a multiple of vector_rows=16",
        ),
        (
            replace(VECTOR_PACK, vector_rows=8),
            "vector_columns=16 differs from vector_rows=8",
        ),
        (ReduceConfig(group=1, parts=1, width=3), "width=3 is not one of"),
        (replace(WIDE, tile_n=192), "tile_n=192"),
        (replace(WIDE, stages=3), "bytes of local memory exceed"),
        (replace(WIDE, stages=0), "stages=0"),
        (replace(WIDE, swizzle=0), "swizzle=0"),
        (replace(WIDE, int8=True), "int8=True needs guard=False"),
        (replace(MMA, guard=False, int8=True), "int8=True needs wgmma"),
        (replace(FEW, columns=48), "columns=48"),
        (replace(FEW, ahead=0), "ahead=0"),
        (variant_of(NarrowVariant, FEW, load_a=4, along_k=False), "load_a=4"),
        (replace(skinny_config(4, 8, True), strip=100), "strip=100 is not a multiple of .* = 24"),
    ],
)
def test_broken_constraints_are_named_with_their_values(config, words):
    """The error for a broken constraint names the values that break it."""
    with pytest.raises(ValueError, match=words):
        config.require(LIMITS)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_macro_is_documented_in_the_kernel(family):
    """A kernel's source has an ``#error`` that explains each macro, one for each tunable field."""
    kernels = resources.files("clgemm").joinpath("kernels")
    files = dict.fromkeys((*family.includes, family.source))
    source = "".join(kernels.joinpath(file).read_text() for file in files)
    names = {field.name.upper() for field in fields(family)} - family.planned
    if "pack/vector_panels.cl" in family.includes:
        names |= {"PANEL", "VECTOR_ROWS", "VECTOR_COLUMNS", "WRITES"}
    if family is BlockedVariant:
        names |= {"VECTOR_ROWS_A", "VECTOR_COLUMNS_A", "VECTOR_ROWS_B", "VECTOR_COLUMNS_B"}
    for name in names:
        assert f'#ifndef {name}\n#error "{name}: ' in source
    assert source.count("#ifndef") == len(names)
