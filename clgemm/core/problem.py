"""A matrix product as numbers, from which planning decides."""

from __future__ import annotations

import math
from typing import NamedTuple

from clgemm.core.layout import Layout, folded
from clgemm.core.shapes import Shape

__all__ = ["Problem"]


class Problem(NamedTuple):
    """One product ``C = alpha A B + beta C``, or one scaling ``C = beta C``.

    Attributes
    ----------
    a, b, c : Layout
        Shapes (*batch, m, k), (*batch, k, n) and (*batch, m, n). The batches of `a` and `b`
        broadcast to that of `c`.
    precision : str or None
        As `clgemm.precision`. None for a scaling, which reads neither `a` nor `b`.
    is_symmetric : bool
        Whether B is A's transpose in the same memory and beta is 0, so that C is to be symmetric.
    """

    a: Layout
    b: Layout
    c: Layout
    precision: str | None
    is_symmetric: bool = False

    @classmethod
    def of(cls, shape: Shape, precision: str) -> Problem:
        """Return a product of dense row-major matrices."""
        m, n, k, matrices = shape
        batch = (matrices,) * (matrices > 1)

        def dense(rows: int, columns: int) -> Layout:
            strides = (rows * columns,) * len(batch)
            return Layout((*batch, rows, columns), (*strides, columns, 1))

        return cls(dense(m, k), dense(k, n), dense(m, n), precision)

    @property
    def m(self) -> int:
        """Rows of C."""
        return self.c.rows

    @property
    def n(self) -> int:
        """Columns of C."""
        return self.c.columns

    @property
    def k(self) -> int:
        """Columns of A."""
        return self.a.columns

    @property
    def matrices(self) -> int:
        """Products in the batch."""
        return math.prod(self.c.batch)

    @property
    def shape(self) -> Shape:
        """The sizes, without strides."""
        return Shape(self.m, self.n, self.k, self.matrices)

    @property
    def layouts(self) -> tuple[Layout, Layout, Layout]:
        """The layouts of A, B and C."""
        return self.a, self.b, self.c

    def transposed(self) -> Problem:
        """Return the same product as ``C' = B' A'``."""
        b, a, c = (x.transposed() for x in self.layouts)
        return self._replace(a=a, b=b, c=c)

    def broadcast(self) -> Problem:
        """Return the same product, with `a` and `b` broadcast to the batch of `c`."""
        batch = self.c.batch
        return self._replace(a=self.a.broadcast(batch), b=self.b.broadcast(batch))

    def folded(self) -> Problem:
        """Return the same product, with matrices that share one B joined into a taller one."""
        a, b, c = folded(*self.layouts)
        return self._replace(a=a, b=b, c=c)

    def scaling(self) -> Problem:
        """Return ``C = beta C`` as a product with k = 0, which reads neither A nor B."""
        c, batch = self.c, self.c.batch
        a, b = c._replace(shape=(*batch, c.rows, 0)), c._replace(shape=(*batch, 0, c.columns))
        return Problem(a, b, c, None)
