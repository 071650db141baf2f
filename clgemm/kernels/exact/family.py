"""The kernels for a dtype other than float32, as the tuner and the records know them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from clgemm.core.config import KernelConfig, variant_of
from clgemm.core.problem import Problem, Shape
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import (
    FEW_ROWS_SAMPLES,
    FLAGS,
    GPU_PANEL_SAMPLES,
    PANEL_SAMPLES,
    Choice,
    Family,
    Samples,
    SearchSpace,
    space_of_fields,
    tile_edges,
)
from clgemm.kernels.exact.in_place import WAVES, tiles_that_fit
from clgemm.kernels.exact.plan import ExactTile, exact_plan, packed_tiles, tile_of
from clgemm.kernels.exact.types import RESULTS_NAMED, Types

FEW = {"tiny": (Shape(32, 32, 32),), "vector": FEW_ROWS_SAMPLES["vector"]}
MOST_ELEMENTS = 256  # of C in registers of a work-item
LONG = Shape(9, 40, 9000)  # its k is cut


class Exact(Family[ExactTile, KernelConfig]):
    """The kernels of products whose result is of one dtype, or of that without a sign.

    The planner does not know them: `clgemm.runtime.exact` makes these products.
    """

    shapes: ClassVar[Samples] = PANEL_SAMPLES | FEW
    gpu_shapes: ClassVar[Samples] = GPU_PANEL_SAMPLES | FEW

    def __init__(self, dtype: str) -> None:
        name = RESULTS_NAMED[dtype]
        self.dtype, self.types = dtype, Types(name, name, name)
        self.config = type(f"ExactTile_{dtype}", (ExactTile,), {"family": f"exact_{dtype}"})

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        layouts = Problem.of(shape, "strict").layouts
        found = exact_plan(*layouts, self.types, traits.limits, on_tensors=False)
        assert found is not None  # no sum of the samples is longer than the panels
        return (self._choice(tile_of(found.plan)),)

    def plainest(self, traits: Traits) -> Choice:
        if traits.has_vectors:
            return self._choice(ExactTile(4, 4, 4))
        *_, smallest = packed_tiles(self.types, traits.limits)
        return self._choice(smallest)

    def plan(self, *_: Any) -> NoReturn:
        raise NotImplementedError("clgemm.runtime.exact plans these products")

    def problems(self, choice: Choice, limits: Limits | None = None) -> Iterator[str]:
        tile = self.config_of(choice)
        broken = list(tile.problems())
        yield from broken
        if broken or limits is None:
            return
        if tile.rows * tile.columns > MOST_ELEMENTS * tile.width * tile.items:
            yield f"a work-item has more than {MOST_ELEMENTS} vectors of C"
        is_square = tile.rows == tile.columns and tile.items_m == tile.items_n
        if tile.items > 1 if limits.has_vectors else not (is_square or tile.in_place):
            yield "work-groups do not compute such tiles"
        else:
            yield from tile.launched(self.types, limits).problems_on(limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        if traits.has_vectors:
            return space_of_fields(
                default.config,
                {
                    "rows": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16),
                    "columns": (4, 8, 16, 24, 32, 48, 64, 96),
                    "width": (2, 4, 8, 16),
                    "unroll": (1, 2, 4),
                },
                (("rows", "columns"), ("columns", "width")),
                {
                    ("rows", "columns"): ((12, 32), (6, 64), (4, 48), (1, 96)),
                    ("width",): ((8,), (16,)),
                },
            )
        items, sides = (1, 2, 4, 8, 16, 32, 64, 128), ("rows", "columns", "items_m", "items_n")
        packed = [
            (x.rows, x.columns, x.items_m, x.items_n, 0)
            for x in packed_tiles(self.types, traits.limits)
        ]
        in_place = ((*x[:4], 1) for x in tiles_that_fit(self.types, traits.limits, False)[1])
        values = dict.fromkeys(sides, items)
        space = space_of_fields(
            default.config,
            values | {"in_place": FLAGS, "unroll": items[:5], "waves": WAVES},
            (("rows", "items_m"), ("columns", "items_n"), ("rows", "columns")),
            {(*sides, "in_place"): (*packed, *in_place), ("unroll",): ((1,), (16,))},
        )

        def make(point: dict[str, int]) -> Choice | None:
            square = {"columns": point["rows"], "items_n": point["items_m"], "waves": 0}
            return space.make(point if point["in_place"] else point | square)

        return replace(space, make=make)

    def edge_shapes(self, config: ExactTile) -> list[Shape]:
        return [x for x in (*tile_edges(config.rows, config.columns, 16), LONG) if min(x)]

    def _choice(self, tile: ExactTile) -> Choice:
        return Choice(variant_of(self.config, tile))
