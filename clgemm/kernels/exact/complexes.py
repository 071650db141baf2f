"""Complex products as real ones, by the plans of float32: the config and the launches. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from clgemm.core.config import KernelConfig
from clgemm.core.plan import Argument, Element, Plan, Slot, Step, ceil_div, operand_at
from clgemm.core.problem import Layout
from clgemm.core.traits import Limits
from clgemm.kernels.common.panels import SIDES
from clgemm.kernels.mirror.plan import mirror_plan

REAL: tuple[Slot, Slot] = ("real_a", "real_b")
COMPLEX_BYTES = 8


@dataclass(frozen=True)
class ComplexRealConfig(KernelConfig):
    """Writes a complex matrix as a real one."""

    is_b: bool
    is_rows: bool  # whether rows follow one another in memory, or columns
    group: int = 256  # work-items

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/complex_real.cl"
    entry: ClassVar[str] = "complex_real"


class RealProduct(NamedTuple):
    """A product of complex matrices, whose C has its rows one after the other, as a real one."""

    a: Layout
    b: Layout
    c: Layout

    @property
    def layouts(self) -> tuple[Layout, Layout, Layout]:
        """The layouts of the real matrices."""
        m, n, k = self.c.rows, self.c.columns, self.a.columns
        shapes = (m, 2 * k), (2 * k, 2 * n)
        real_a, real_b = (
            Layout(shape, (shape[1], 1) if _is_rows(x) else (1, shape[0]), 128)
            for shape, x in zip(shapes, (self.a, self.b), strict=True)
        )
        strides = 2 * self.c.row_stride, 1
        return real_a, real_b, Layout((m, 2 * n), strides, self.c.alignment_bytes)

    @property
    def sizes_bytes(self) -> tuple[int, int]:
        """The bytes of the real matrices A and B."""
        a, b = (COMPLEX_BYTES * x.rows * x.columns for x in (self.a, self.b))
        return a, 2 * b

    def plan(self, real: Plan, swapped: bool, limits: Limits, is_mirrored: bool) -> Plan:
        """Return the launches, from those of the real product.

        Parameters
        ----------
        swapped : bool
            Whether the real product's plan takes A for B and B for A.
        is_mirrored : bool
            Whether the upper triangle of C is copied to the lower one at last.
        """
        steps = [self._written(i) for i in range(2)]
        names = dict(zip("ab", reversed(REAL) if swapped else REAL, strict=True))
        for step in real.steps:
            arguments = {name: _in_complex(x, names) for name, x in step.arguments.items()}
            steps.append(replace(step, arguments=arguments))
        if is_mirrored:
            steps += mirror_plan(self.c, limits, COMPLEX_BYTES).steps
        scratch = (*real.scratch, *zip(REAL, self.sizes_bytes, strict=True))
        return replace(real, steps=tuple(steps), scratch=scratch)

    def _written(self, operand: int) -> Step:
        """Return the launch that writes A or B: operand 0 or 1."""
        x = (self.a, self.b)[operand]
        config = ComplexRealConfig(bool(operand), _is_rows(x))
        lines = x if config.is_rows else x.transposed()
        start = Element(SIDES[operand], 0)
        arguments: dict[str, Argument] = {
            "major": lines.rows,
            "minor": lines.columns,
            **operand_at(
                "from", start.slot, start, major=lines.row_stride, minor=lines.column_stride
            ),
            "to": REAL[operand],
        }
        return Step(config, lines.rows * ceil_div(lines.columns, config.group), arguments)


def _is_rows(x: Layout) -> bool:
    return abs(x.column_stride) <= abs(x.row_stride)


def _in_complex(argument: Argument, names: dict[str, Slot]) -> Argument:
    """Return an argument of the real product's launch, whose C counts complex elements."""
    if isinstance(argument, Element):
        if argument.slot in names:
            return argument.offset
        assert argument.offset % 2 == 0, "a tile begins with a real part"
        return Element(argument.slot, argument.offset // 2, 2)
    return names.get(argument, argument) if isinstance(argument, str) else argument
