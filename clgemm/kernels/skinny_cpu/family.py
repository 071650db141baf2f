"""The skinny_cpu family: few rows or columns; the large operand is read once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch, positive, vector
from clgemm.core.costs import joined
from clgemm.core.plan import (
    LAST_GROUP,
    Element,
    Plan,
    Step,
    batch_of,
    ceil_div,
    matrices_of,
    operand_at,
    operand_in_place,
    round_up,
    slices,
)
from clgemm.core.problem import FLOAT_BYTES, Problem, Shape, batch_levels
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import (
    FEW_ROWS_SAMPLES,
    FLAGS,
    Choice,
    Fallback,
    Family,
    SearchSpace,
    changed,
    values_of,
)
from clgemm.kernels.common.in_place import (
    MOST_ROWS,
    MOST_ROWS_ON_CPU,
    FewRows,
    few_rows,
    fits_few_rows,
    slice_of_k,
)
from clgemm.kernels.common.panels import Scratch, batch_over, own_levels, packed_strides, strides_of
from clgemm.kernels.pack.plan import PackConfig, copy_config, pack_step
from clgemm.kernels.split_k.plan import ReduceConfig, product_arguments, target

FITTED_WIDTH = 16  # floats of a vector for which the rates of `CpuCosts` hold
OVERLAP = 3.0  # as in `clgemm.core.costs.joined`: reading and the arithmetic
CACHED_BYTES = 2**21  # a smaller operand is read again, for further rows, at no cost
# Work-groups per compute unit: k is cut into slices until there are this many.
GROUPS_PER_UNIT = 8
# The same where B's columns are contiguous. A work-group takes only the columns that it reads at a
# time. If that makes enough work-groups, k is not cut: long contiguous runs, and one launch.
GROUPS_PER_UNIT_ALONG_K = 2


@dataclass(frozen=True)
class SkinnyCpuConfig(KernelConfig):
    """Multiplies by an operand of a few rows; reads the other once, in place, by vectors."""

    rows: int  # rows of C at a time
    vectors: int  # vectors of B's rows, or columns of B, at a time
    width: int  # floats per vector
    strip: int  # columns of C per work-group
    chunk: int  # rows of B at a time
    prefetch: int  # rows of B to prefetch ahead; 0 leaves it to the processor
    fma: bool  # as in TiledConfig

    family: ClassVar[str] = "skinny_cpu"
    source: ClassVar[str] = "skinny_cpu/skinny_cpu.cl"
    entry: ClassVar[str] = "skinny_product"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl",)
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (PackConfig, ReduceConfig)

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time: reading the large operand, or the multiply-adds."""
        x, limits = launch.arguments, launch.limits
        costs, units, matrices = limits.cpu_costs, limits.compute_units, matrices_of(x["counts"])
        n, k, speed = x["n"], x["k"], self.width / FITTED_WIDTH
        rows = round_up(x["m"], self.rows)
        if x["b_column"] != 1:  # scalar products
            computing = k * round_up(n, self.vectors) / (costs.skinny_along_k * speed)
            computing += n * ceil_div(k, x["slice_k"]) / costs.skinny_dots
        else:  # a few columns past whole vectors take as long as a vector, or each as long
            columns = round_up(n, self.width) if n >= self.width else n * self.width
            computing = k * columns / (costs.skinny_multiply_adds * speed)
        rounds = ceil_div(launch.groups, units)
        computing += n * ceil_div(k, x["slice_k"]) / costs.skinny_stored
        busy = rounds * matrices * rows * computing / launch.groups
        again = costs.skinny_again * (rows // self.rows - 1) * (FLOAT_BYTES * n * k > CACHED_BYTES)
        read = matrices * FLOAT_BYTES * n * k * (1 + again) / costs.skinny_bytes
        return joined(OVERLAP, read, busy) + rounds * costs.skinny_group_us

    def problems(self) -> Iterator[str]:
        bad = [*positive(self, "prefetch"), *vector(self, "width")]
        yield from bad
        if not bad and self.strip % (span := self.vectors * self.width):
            yield f"strip={self.strip} is not a multiple of vectors x width = {span}"


def skinny_config(rows: int, width: int, can_prefetch: bool) -> SkinnyCpuConfig:
    """Return the config that multiplies by an operand of few rows."""
    vectors = 4 if width == FITTED_WIDTH else 3  # shorter vectors have 16 registers, not 32
    if rows == 1:
        vectors = 8
    return SkinnyCpuConfig(
        rows=1 if rows == 1 else 4,
        vectors=vectors,
        width=width,
        strip=48 * width if vectors == 3 else 64 * width,
        chunk=32,
        prefetch=8 if can_prefetch else 0,
        fma=False,
    )


def _steps(
    few: FewRows, config: SkinnyCpuConfig, copy: PackConfig, limits: Limits, scratch: Scratch
) -> Iterator[Step]:
    """Yield each launch of ``C = alpha A B + beta C``, and reserve its scratch memory.

    Parameters
    ----------
    copy : PackConfig
        The config that makes the few rows dense where the kernel needs that.
    """
    a, b, c, slot_a, slot_b = few
    m, n, k = c.rows, c.columns, a.columns
    along_k, groups_per_unit = b.column_stride != 1, GROUPS_PER_UNIT
    if along_k:
        config = replace(config, strip=config.vectors * config.width)
        groups_per_unit = GROUPS_PER_UNIT_ALONG_K
    blocks = ceil_div(m, config.rows) * ceil_div(n, config.strip)
    for part in slices(batch_levels(a, b, c), LAST_GROUP // (blocks * k), 3):
        offsets, levels = part
        batch = batch_of(levels, 3)
        wanted = ceil_div(groups_per_unit * limits.compute_units, blocks * batch.matrices)
        slice_k = slice_of_k(k, wanted, config.width)
        cuts = ceil_div(k, slice_k)
        first_a, first_b = Element(slot_a, offsets[0]), Element(slot_b, offsets[1])
        place_a = operand_in_place("a", slot_a, first_a, a)
        if along_k and a.column_stride != 1:
            # Scalar products load vectors along k: the few rows must be dense.
            batch_a = batch_of(own_levels(levels, 0), 1)
            scratch.reserve("packed_a", FLOAT_BYTES * batch_a.matrices * m * k)
            groups = m * ceil_div(k, copy.depth)
            sizes = {"rows": m, "columns": k, "padded_columns": k}
            yield pack_step(copy, sizes, a, batch_a, first_a, ("packed_a", 0), groups)
            batch = batch_over(part, packed_strides(levels, 0, m * k), strides_of(levels, 1))
            place_a = operand_at("a", "packed_a", 0, row=k, column=1)
        place_b = operand_in_place("b", slot_b, first_b, b)
        result = target((m, n, cuts), levels, batch, "beta", c, offsets[2], limits)
        scratch.reserve("partial", result.partial_bytes)
        sizes = {"m": m, "n": n, "k": k, "slice_k": slice_k}
        arguments = product_arguments(sizes, batch, place_a, place_b, result)
        yield Step(config, blocks * cuts * batch.matrices, arguments)
        yield from result.adding


class SkinnyCpu(Family[SkinnyCpuConfig, PackConfig]):
    """Products with few rows or columns; reads the large operand once. For CPUs."""

    config = SkinnyCpuConfig
    packs = (PackConfig,)  # for the operand of few rows, which is copied row by row
    takes_any_strides = False
    for_vectors = True
    shapes = FEW_ROWS_SAMPLES

    def fits(self, problem: Problem) -> bool:
        """Return whether C has few rows or columns and the large operand is contiguous."""
        return fits_few_rows(*problem.layouts, MOST_ROWS_ON_CPU)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return one config for a single row, another for several."""
        few = min(shape.m, shape.n)
        config = skinny_config(few, traits.register_width, traits.is_vector_compiler)
        return (Choice(config, (copy_config(traits.limits),)),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a config with vectors of two floats."""
        config = replace(skinny_config(4, 2, False), vectors=1, strip=64)
        return Choice(config, (copy_config(traits.limits),))

    def panels(self, config: SkinnyCpuConfig) -> tuple[int, ...]:
        """Return 1: rows are copied one by one."""
        return (1,)

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launch that multiplies; before it a copy and after it a sum, where needed."""
        few, config, (copy,) = (
            few_rows(*problem.layouts),
            self.config_of(choice),
            self.packing(choice),
        )
        scratch = Scratch()
        return scratch.plan(_steps(few, config, copy, traits.limits, scratch))

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        config, (copy,) = self.config_of(default), self.packing(default)
        values = {
            "rows": (1, 2, 4, 8),
            "vectors": (1, 2, 4, 8),
            "width": tuple(w for w in (2, 4, 8, 16) if w <= traits.limits.vector_width),
            "spans": (1, 2, 4, 8, 16, 32),
            "chunk": (8, 16, 32, 64, 128),
            "prefetch": (0, 4, 8, 16) if traits.is_vector_compiler else (0,),
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
            made = changed(config, point | {"strip": strip})
            return Choice(made, (replace(copy, depth=point["copy_depth"]),))

        def read(choice: Choice) -> dict[str, int]:
            made, (copy,) = self.config_of(choice), self.packing(choice)
            spans = made.strip // (made.vectors * made.width)
            return values_of(made, values) | {"spans": spans, "copy_depth": copy.depth}

        couples = ("rows", "vectors"), ("vectors", "spans")
        return SearchSpace(values, couples, coarse, make, read)

    def edge_shapes(self, config: SkinnyCpuConfig) -> list[Shape]:
        """Return sizes around a strip and a chunk."""
        strip, chunk = config.strip, config.chunk
        return [
            Shape(1, strip + config.vectors * config.width + 1, 2 * chunk + 1),
            Shape(min(config.rows + 1, MOST_ROWS), strip - 1, chunk - 1 or 1),
            Shape(MOST_ROWS - 1, 37, 1501),
            Shape(config.rows, strip, chunk),
        ]


SKINNY_CPU = SkinnyCpu()
