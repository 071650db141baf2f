"""From shapes, a config and a device's limits to the kernel launches that make a product.

Pure and cached: a plan holds numbers and the names of buffers, never a buffer, so that the second
call of a kind finds its plan made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from clgemm.config import DirectConfig, Limits, LocalConfig, RegisterConfig
from clgemm.layout import Layout, batch_levels
from clgemm.local_panels import LocalPanels
from clgemm.pack_config import PackConfig
from clgemm.panels import AnyPackConfig, pack_step
from clgemm.register_panels import RegisterPanels
from clgemm.skinny import make_skinny_plan
from clgemm.skinny_config import SkinnyConfig, SkinnyLanesConfig
from clgemm.steps import LAST_GROUP, Element, Plan, Slot, Step, ceil_div, slices, stack_of

__all__ = ["make_copy_plan", "make_plan", "make_scaling_plan"]


@lru_cache(maxsize=1024)
def make_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: LocalConfig | RegisterConfig | SkinnyConfig | SkinnyLanesConfig | DirectConfig,
    pack: tuple[AnyPackConfig, ...] | None,
    limits: Limits,
    reserve: bool = False,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for stacks of one shape, none empty.

    Parameters
    ----------
    a, b, c : Layout
        (*batch, m, k), (*batch, k, n) and (*batch, m, n); repeated matrices have strides of zero.
    pack : tuple of PackConfig or VectorPackConfig, optional
        How `a` and `b` are packed for a local config, `a` for a register one, and how the operand
        of few rows is copied for a skinny one. The others need none.
    reserve : bool, optional
        Whether most calls need none of it, so that launches count for more than what they do.
    """
    if isinstance(config, DirectConfig):
        return Plan(tuple(_direct_steps(a, b, c, a.columns, config)))
    if isinstance(config, SkinnyLanesConfig):
        return make_skinny_plan(a, b, c, config, None, limits)
    assert pack is not None
    if isinstance(config, SkinnyConfig):
        assert isinstance(pack[0], PackConfig)
        return make_skinny_plan(a, b, c, config, pack[0], limits)
    if isinstance(config, RegisterConfig):
        return RegisterPanels(a, b, c, config, pack, limits).plan()
    return LocalPanels(a, b, c, config, pack, limits, reserve).plan()


@lru_cache(maxsize=1024)
def make_scaling_plan(c: Layout, config: DirectConfig) -> Plan:
    """Return the launches of ``C = beta C``: a product over no depth at all reads no operand."""
    return Plan(tuple(_direct_steps(c, c, c, 0, config)))


@lru_cache(maxsize=1024)
def make_copy_plan(source: Layout, config: PackConfig) -> Plan:
    """Return the launches that copy a to c, a dense row-major stack: panels of a single row."""
    assert config.panel == 1
    rows, columns = source.rows, source.columns
    groups = rows * ceil_div(columns, config.depth)
    steps: list[Step] = []
    copied = 0
    for offsets, levels in slices(batch_levels(source), LAST_GROUP // groups, 1):
        stack = stack_of(levels, 1)
        first, to = Element("a", offsets[0]), Element("c", copied)
        sizes = rows, columns, columns
        steps.append(pack_step(config, sizes, source, stack, first, ("c", to), groups))
        copied += stack.matrices * rows * columns
    return Plan(tuple(steps))


def _direct_steps(a: Layout, b: Layout, c: Layout, k: int, config: DirectConfig) -> Iterator[Step]:
    m, n = c.rows, c.columns
    tile_m, tile_n = config.items_m * config.work_m, config.items_n * config.width
    groups = ceil_div(m, tile_m) * ceil_div(n, tile_n)
    slot_a: Slot = "a" if k else "c"  # an argument must be some buffer, even if it is not read
    slot_b: Slot = "b" if k else "c"
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // groups, 3):
        stack = stack_of(levels, 3)
        yield Step(
            config,
            "iiiIffblllLblllLblllL",
            groups * stack.matrices,
            (
                m,
                n,
                k,
                stack.counts,
                "alpha",
                "beta",
                *(slot_a, Element(slot_a, offsets[0])),
                *(a.row_stride, a.column_stride, stack.strides[0]),
                *(slot_b, Element(slot_b, offsets[1])),
                *(b.row_stride, b.column_stride, stack.strides[1]),
                *("c", Element("c", offsets[2])),
                *(c.row_stride, c.column_stride, stack.strides[2]),
            ),
        )
