"""What each kernel family's configs can be. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from clgemm.core.config import Limits
from clgemm.kernels.blocked.config import RegisterConfig
from clgemm.kernels.direct.config import DirectConfig
from clgemm.kernels.pack.config import PackConfig, VectorPackConfig
from clgemm.kernels.skinny.config import SkinnyConfig, SkinnyLanesConfig
from clgemm.kernels.tensor_core.config import TensorConfig
from clgemm.kernels.tiled.config import LocalConfig
from clgemm.records.record import AnyChoice, Choice, TensorChoice
from clgemm.tuning.space import Sketch, Space

__all__ = ["space_of"]

FLAGS = (0, 1)
MOST_SUMS = 144  # in a work-item's registers: with more, compilers take minutes, and kernels spill


def space_of(family: str, limits: Limits, default: AnyChoice, vector_compiler: bool) -> Space:
    """Return the space of a family on a device.

    Parameters
    ----------
    default : Choice
        Has the values of what is not searched.
    vector_compiler : bool
        Whether the runtime is a Clang for the CPU itself: others fetch nothing ahead, and deal out
        work-groups as they like.
    """
    own = {
        "local": _local,
        "register": _register,
        "skinny": _skinny,
        "skinny_lanes": _skinny_lanes,
        "direct": _direct,
        "tensor": _tensor,
        "tensor_mma": _tensor,
    }
    return Space(*own[family](limits, default, vector_compiler), limits)


Parts = tuple[
    dict[str, tuple[int, ...]],
    tuple[tuple[str, str], ...],
    Sketch,
    Callable[[dict[str, int]], AnyChoice | None],
    Callable[[AnyChoice], dict[str, int]],
]


def _typed(config: Any, values: dict[str, int]) -> Any:
    """Return a config with other values, flags as flags."""
    known = {field.name: field.type for field in fields(config)}
    changed = {
        name: bool(value) if known[name] == "bool" else value
        for name, value in values.items()
        if name in known
    }
    return replace(config, **changed)


def _own(config: Any, values: dict[str, tuple[int, ...]]) -> dict[str, int]:
    return {name: int(getattr(config, name)) for name in values if hasattr(config, name)}


def _local(limits: Limits, default: AnyChoice, vector_compiler: bool) -> Parts:  # noqa: ARG001
    config = default.config
    # Tiles are given by their work-items and the work of each: so one of these can change alone.
    items, work, widths = (2, 4, 8, 16, 32), (2, 4, 6, 8, 12, 16), (1, 2, 4, 8)
    values = {
        "items_m": items,
        "items_n": items,
        "work_m": work,
        "work_n": work,
        "tile_k": (4, 8, 16, 32),
        "width_a": widths,
        "width_b": widths,
        "patch_n": (1, 2, 4, 8, 16),
        "rolled": (1, 2, 4, 8),  # turns of the loop over a tile's depth
        "buffers": (1, 2),
        "swizzle": (1, 2, 4, 8, 16),
        "parts": (1, 2, 4),
        "fma": FLAGS,
        "in_place": FLAGS,
        "pack_depth": (8, 16, 32, 64),
        "pack_group": (1, 32, 64, 128, 256, 512),
    }
    couples = (
        *(("items_m", "items_n"), ("items_m", "work_m"), ("items_n", "work_n")),
        *(("work_m", "work_n"), ("work_m", "tile_k"), ("work_n", "tile_k")),
        *(("width_a", "width_b"), ("tile_k", "rolled"), ("tile_k", "buffers")),
        *(("parts", "items_m"), ("parts", "items_n"), ("parts", "tile_k")),
    )
    squarish = tuple(
        (items_m, items_n, work_m, work_n)
        for work_m, work_n in ((4, 4), (8, 8), (16, 8), (8, 4), (4, 8), (8, 16))
        for items_m, items_n in ((8, 8), (16, 16), (8, 16), (16, 8))
        if 1 / 2 <= items_m * work_m / (items_n * work_n) <= 2
    )
    coarse = {("tile_k",): ((8,), (16,)), ("items_m", "items_n", "work_m", "work_n"): squarish}

    def make(point: dict[str, int]) -> Choice | None:
        if point["work_m"] * point["work_n"] > MOST_SUMS:
            return None
        tile_m, tile_n = (point[f"items_{x}"] * point[f"work_{x}"] for x in "mn")
        # Columns per work-item.
        share = point["tile_k"] / (point["items_m"] * point["items_n"] * point["parts"])
        made: LocalConfig = _typed(
            config,
            point
            | {
                "tile_m": tile_m,
                "tile_n": tile_n,
                "width_a": _fitting(point["width_a"], point["work_m"], tile_m * share),
                "width_b": _fitting(point["width_b"], point["work_n"], tile_n * share),
                "patch_n": math.gcd(point["patch_n"], point["items_n"]),
                "unroll": max(1, point["tile_k"] // point["rolled"]),
            },
        )
        depth, group = point["pack_depth"], point["pack_group"]
        pack = tuple(PackConfig(panel, depth, group) for panel in (made.tile_m, made.tile_n))
        return Choice(made, (pack[0], pack[1]))

    def read(choice: AnyChoice) -> dict[str, int]:
        made, pack = choice.config, choice.pack
        assert isinstance(made, LocalConfig)
        assert pack is not None
        assert isinstance(pack[0], PackConfig)
        return _own(made, values) | {
            "rolled": made.tile_k // made.unroll,
            "pack_depth": pack[0].depth,
            "pack_group": pack[0].group,
        }

    return values, couples, coarse, make, read


def _fitting(width: int, work: int, share: float) -> int:
    """Return the most floats per load, up to a width, that divide a work-item's work and share."""
    while width > 1 and (work % width or share % width):
        width //= 2
    return width


def _register(limits: Limits, default: AnyChoice, vector_compiler: bool) -> Parts:
    config = default.config
    ahead = (0, 8, 16, 32) if vector_compiler else (0,)
    values = {
        "work_m": (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14),
        "vectors": (1, 2, 3),
        "width": tuple(w for w in (4, 8, 16) if w <= limits.vector_width) or (2,),
        "block_rows": (256, 512, 1024, 4096),
        "block_columns": (48, 96, 144, 192, 256, 384),
        "block_k": (256, 384, 512, 768, 1024, 1536),
        "unroll": (1, 2, 4, 8),
        "prefetch": ahead,
        "prefetch_a": (0, 32, 64, 128) if vector_compiler else (0,),
        "in_place": FLAGS,
        "fma": FLAGS,
        "pack_rows": (64, 128, 256, 384, 768),
        "pack_prefetch": FLAGS if vector_compiler else (0,),
    }
    couples = ("work_m", "vectors"), ("vectors", "width"), ("block_rows", "block_columns")
    coarse = {
        ("width",): tuple((width,) for width in values["width"]),
        # Compilers that join what is multiplied and added by themselves may make less of the tile.
        ("fma",): tuple((flag,) for flag in FLAGS),
        ("work_m", "vectors"): ((8, 3), (4, 3), (6, 2), (12, 2), (12, 1), (4, 2)),
    }

    def make(point: dict[str, int]) -> Choice:
        # Blocks are given in rows and columns, which mean the same whatever the panels' size.
        tile_m, tile_n = point["work_m"], point["vectors"] * point["width"]
        blocks = {
            "block_m": max(1, point["block_rows"] // tile_m),
            "block_n": max(1, point["block_columns"] // tile_n),
        }
        made: RegisterConfig = _typed(config, point | blocks)
        pack = VectorPackConfig.of(tile_m, point["pack_rows"], bool(point["pack_prefetch"]))
        return Choice(made, (pack,))

    def read(choice: AnyChoice) -> dict[str, int]:
        made, pack = choice.config, choice.pack
        assert isinstance(made, RegisterConfig)
        assert pack is not None
        assert isinstance(pack[0], VectorPackConfig)
        return _own(made, values) | {
            "block_rows": made.block_m * made.tile_m,
            "block_columns": made.block_n * made.tile_n,
            "pack_rows": pack[0].panels * pack[0].panel,
            "pack_prefetch": int(pack[0].prefetch),
        }

    return values, couples, coarse, make, read


def _skinny(limits: Limits, default: AnyChoice, vector_compiler: bool) -> Parts:
    config = default.config
    values = {
        "rows": (1, 2, 4, 8),
        "vectors": (1, 2, 4, 8),
        "width": tuple(w for w in (2, 4, 8, 16) if w <= limits.vector_width),
        "spans": (1, 2, 4, 8, 16, 32),
        "chunk": (8, 16, 32, 64, 128),
        "prefetch": (0, 4, 8, 16) if vector_compiler else (0,),
        "fma": FLAGS,
        "copy_depth": (64, 256, 1024),
    }
    coarse = {
        ("spans",): ((8,),),
        ("rows", "vectors"): ((1, 8), (4, 4), (8, 2), (4, 1)),
        ("width",): tuple((width,) for width in values["width"][-2:]),
    }

    def make(point: dict[str, int]) -> Choice:
        strip = point["spans"] * point["vectors"] * point["width"]
        made: SkinnyConfig = _typed(config, point | {"strip": strip})
        assert default.pack is not None
        assert isinstance(default.pack[0], PackConfig)
        copy = replace(default.pack[0], depth=point["copy_depth"])
        return Choice(made, (copy,))

    def read(choice: AnyChoice) -> dict[str, int]:
        made = choice.config
        assert isinstance(made, SkinnyConfig)
        assert choice.pack is not None
        copy = choice.pack[0]
        assert isinstance(copy, PackConfig)
        spans = made.strip // (made.vectors * made.width)
        return _own(made, values) | {"spans": spans, "copy_depth": copy.depth}

    return values, (("rows", "vectors"), ("vectors", "spans")), coarse, make, read


def _skinny_lanes(limits: Limits, default: AnyChoice, vector_compiler: bool) -> Parts:  # noqa: ARG001
    values: dict[str, tuple[int, ...]] = {
        "rows": (1, 2, 4, 8),
        "width": (1, 2, 4, 8),
        "group": (32, 64, 128, 256, 512, 1024),
        "abreast": (2, 4, 8, 16, 32, 64),
        "chunk": (64, 128, 256, 512, 1024, 2048, 4096),
        "fma": FLAGS,
        "ahead": (1, 2, 4, 6, 8),
    }
    coarse = {
        ("rows", "chunk"): ((1, 1024), (1, 4096), (2, 512), (2, 2048), (4, 256), (8, 128)),
        ("width",): ((4,), (2,)),
        ("group", "abreast"): ((1024, 8), (256, 8), (256, 32), (1024, 32)),
    }

    def make(point: dict[str, int]) -> Choice:
        made: SkinnyLanesConfig = _typed(default.config, point)
        return Choice(made, None)

    couples = ("rows", "chunk"), ("group", "abreast"), ("group", "ahead")
    return values, couples, coarse, make, lambda choice: _own(choice.config, values)


def _direct(limits: Limits, default: AnyChoice, vector_compiler: bool) -> Parts:  # noqa: ARG001
    config = default.config
    vectors = limits.vector_width > 1
    items = (1, 2, 4, 8) if vectors else (1, 2, 4, 8, 16, 32)
    values: dict[str, tuple[int, ...]] = {
        "items_m": items,
        "items_n": items,
        "work_m": (1, 2, 3, 4, 6, 8),
        "width": (1, 2, 4, 8, 16),
        "fma": FLAGS,
    }
    couples = ("items_m", "items_n"), ("work_m", "width"), ("items_m", "work_m")
    coarse: Sketch = {
        ("items_m", "items_n"): ((1, 1), (4, 4)) if vectors else ((8, 8), (16, 16), (4, 16)),
        ("work_m", "width"): ((4, 8), (4, 4), (2, 16), (8, 4))
        if vectors
        else ((2, 2), (1, 1), (4, 4)),
    }

    def make(point: dict[str, int]) -> Choice:
        made: DirectConfig = _typed(config, point)
        return Choice(made, None)

    return values, couples, coarse, make, lambda choice: _own(choice.config, values)


def _tensor(limits: Limits, default: AnyChoice, vector_compiler: bool) -> Parts:  # noqa: ARG001
    every: dict[str, tuple[int, ...]] = {
        "tile_n": (128, 256),
        "stages": (1, 2, 3, 4),
        "swizzle": (1, 2, 4, 8, 16, 32),
    }
    # What is split, and whether wide ranges are guarded, is each call's own business.
    values = {name: value for name, value in every.items() if hasattr(default.config, name)}
    tiles: Sketch = {("tile_n", "stages"): ((256, 2), (128, 3), (128, 2), (128, 4))}
    coarse = (tiles if "tile_n" in values else {}) | {("swizzle",): ((4,), (16,))}

    def make(point: dict[str, int]) -> TensorChoice:
        made: TensorConfig = _typed(default.config, point)
        return TensorChoice(made)

    couples = (("tile_n", "stages"),) if "tile_n" in values else ()
    return values, couples, coarse, make, lambda choice: _own(choice.config, values)
