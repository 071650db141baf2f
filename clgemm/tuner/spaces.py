"""What a kernel family's configs can be: parameters, their values, neighbours. Pure.

A point is a value for each parameter; not every point makes a config that keeps its constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from clgemm.config import (
    DirectConfig,
    Limits,
    LocalConfig,
    PackConfig,
    RegisterConfig,
    SkinnyConfig,
    SkinnyLanesConfig,
    VectorPackConfig,
    piece_of,
)
from clgemm.records import Choice, problems_of

__all__ = ["Point", "Space", "space_of"]

Point = tuple[int, ...]
DRAWS = 2000  # of random values, before a space is taken to hold nothing
FLAGS = (0, 1)
# Parameters of which one is seldom better changed alone.
COUPLES = (
    ("tile_m", "tile_n"),
    ("tile_m", "work_m"),
    ("tile_n", "work_n"),
    ("work_m", "work_n"),
    ("width_a", "width_b"),
    ("work_m", "vectors"),
    ("block_rows", "block_columns"),
    ("rows", "vectors"),
)


@dataclass(frozen=True)
class Space:
    """The choices of one kernel family that a device can run.

    Attributes
    ----------
    values : dict of str to tuple of int
        What each parameter can be, in order.
    make : callable
        From values by name to a choice, constraints or not.
    read : callable
        From a choice to values by name.
    """

    values: dict[str, tuple[int, ...]]
    make: Callable[[dict[str, int]], Choice]
    read: Callable[[Choice], dict[str, int]]
    limits: Limits

    def choice(self, point: Point) -> Choice | None:
        """Return the choice of a point, None if it breaks a constraint."""
        choice = self.make(dict(zip(self.values, point, strict=True)))
        return None if problems_of(choice, self.limits) else choice

    def point(self, choice: Choice) -> Point:
        """Return the point of a choice; its values need not be among those of the space."""
        read = self.read(choice)
        return tuple(read[name] for name in self.values)

    def random(self, rng: Random) -> Point | None:
        """Return a point that makes a choice, None if none is found."""
        for _ in range(DRAWS):
            point = tuple(rng.choice(values) for values in self.values.values())
            if self.choice(point):
                return point
        return None

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Yield the points that differ by one step in one parameter, or in two that go together."""
        names = list(self.values)
        for name in names:
            yield from self._steps(point, names.index(name))
        for one, other in COUPLES:
            if one in self.values and other in self.values:
                for changed in self._steps(point, names.index(one)):
                    yield from self._steps(changed, names.index(other))

    def _steps(self, point: Point, index: int) -> Iterator[Point]:
        values, here = list(self.values.values())[index], point[index]
        below = [value for value in values if value < here][-1:]
        above = [value for value in values if value > here][:1]
        for value in below + above:
            yield (*point[:index], value, *point[index + 1 :])

    def jump(self, point: Point, steps: int, rng: Random) -> Point:
        """Return a point that differs in so many random parameters at most."""
        changed = list(point)
        for index in rng.sample(range(len(changed)), min(steps, len(changed))):
            changed[index] = rng.choice(list(self.values.values())[index])
        return tuple(changed)


def space_of(family: str, limits: Limits, default: Choice, vector_compiler: bool) -> Space:
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
    }
    values, make, read = own[family](limits, default, vector_compiler)
    return Space(values, make, read, limits)


Parts = tuple[
    dict[str, tuple[int, ...]],
    Callable[[dict[str, int]], Choice],
    Callable[[Choice], dict[str, int]],
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


def _local(limits: Limits, default: Choice, vector_compiler: bool) -> Parts:  # noqa: ARG001
    config = default.config
    known = {field.name for field in fields(config)}
    tiles, widths = (16, 32, 64, 128, 256), (1, 2, 4, 8)
    values = {
        "tile_m": tiles,
        "tile_n": tiles,
        "tile_k": (4, 8, 16, 32),
        "work_m": (2, 4, 6, 8, 12, 16),
        "work_n": (2, 4, 6, 8, 12, 16),
        "width_a": widths,
        "width_b": widths,
        "patch_n": (1, 2, 4, 8, 16),
        "unroll": (1, 2, 4, 8, 16, 32),
        "buffers": (1, 2),
        "swizzle": (1, 2, 4, 8, 16),
        "fma": FLAGS,
        "in_place": FLAGS,
    }
    values = {name: value for name, value in values.items() if name in known}
    values |= {"pack_depth": (8, 16, 32, 64), "pack_group": (1, 32, 64, 128, 256, 512)}

    def make(point: dict[str, int]) -> Choice:
        made: LocalConfig = _typed(config, point)
        depth, group = point["pack_depth"], point["pack_group"]
        pack = tuple(PackConfig(panel, depth, group) for panel in (made.tile_m, made.tile_n))
        return Choice(made, (pack[0], pack[1]))

    def read(choice: Choice) -> dict[str, int]:
        assert choice.pack is not None
        pack = choice.pack[0]
        assert isinstance(pack, PackConfig)
        packing = {"pack_depth": pack.depth, "pack_group": pack.group}
        return _own(choice.config, values) | packing

    return values, make, read


def _register(limits: Limits, default: Choice, vector_compiler: bool) -> Parts:
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
        "in_place": FLAGS,
        "fma": FLAGS,
        "pack_rows": (64, 128, 256, 384, 768),
        "pack_prefetch": ahead[::2],
    }

    def make(point: dict[str, int]) -> Choice:
        # Blocks are given in rows and columns, which mean the same whatever the panels' size.
        tile_m, tile_n = point["work_m"], point["vectors"] * point["width"]
        blocks = {
            "block_m": max(1, point["block_rows"] // tile_m),
            "block_n": max(1, point["block_columns"] // tile_n),
        }
        made: RegisterConfig = _typed(config, point | blocks)
        piece, turn = piece_of(tile_m)
        panels = max(1, point["pack_rows"] // tile_m)
        return Choice(
            made, (VectorPackConfig(tile_m, piece, turn, panels, point["pack_prefetch"]),)
        )

    def read(choice: Choice) -> dict[str, int]:
        made, pack = choice.config, choice.pack
        assert isinstance(made, RegisterConfig)
        assert pack is not None
        assert isinstance(pack[0], VectorPackConfig)
        return _own(made, values) | {
            "block_rows": made.block_m * made.tile_m,
            "block_columns": made.block_n * made.tile_n,
            "pack_rows": pack[0].panels * pack[0].panel,
            "pack_prefetch": pack[0].prefetch,
        }

    return values, make, read


def _skinny(limits: Limits, default: Choice, vector_compiler: bool) -> Parts:
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

    def make(point: dict[str, int]) -> Choice:
        strip = point["spans"] * point["vectors"] * point["width"]
        made: SkinnyConfig = _typed(config, point | {"strip": strip})
        assert default.pack is not None
        assert isinstance(default.pack[0], PackConfig)
        copy = replace(default.pack[0], depth=point["copy_depth"])
        return Choice(made, (copy, copy))

    def read(choice: Choice) -> dict[str, int]:
        made = choice.config
        assert isinstance(made, SkinnyConfig)
        assert choice.pack is not None
        copy = choice.pack[0]
        assert isinstance(copy, PackConfig)
        spans = made.strip // (made.vectors * made.width)
        return _own(made, values) | {"spans": spans, "copy_depth": copy.depth}

    return values, make, read


def _skinny_lanes(limits: Limits, default: Choice, vector_compiler: bool) -> Parts:  # noqa: ARG001
    values: dict[str, tuple[int, ...]] = {
        "rows": (1, 2, 4, 8),
        "width": (1, 2, 4, 8),
        "group": (32, 64, 128, 256, 512, 1024),
        "abreast": (2, 4, 8, 16, 32, 64),
        "chunk": (64, 128, 256, 512, 1024),
        "fma": FLAGS,
    }

    def make(point: dict[str, int]) -> Choice:
        made: SkinnyLanesConfig = _typed(default.config, point)
        return Choice(made, default.pack)

    return values, make, lambda choice: _own(choice.config, values)


def _direct(limits: Limits, default: Choice, vector_compiler: bool) -> Parts:  # noqa: ARG001
    config = default.config
    items = (1, 2, 4, 8) if limits.vector_width > 1 else (1, 2, 4, 8, 16, 32)
    values: dict[str, tuple[int, ...]] = {
        "items_m": items,
        "items_n": items,
        "work_m": (1, 2, 3, 4, 6, 8),
        "width": (1, 2, 4, 8, 16),
        "fma": FLAGS,
    }

    def make(point: dict[str, int]) -> Choice:
        made: DirectConfig = _typed(config, point)
        return Choice(made, None)

    return values, make, lambda choice: _own(choice.config, values)
