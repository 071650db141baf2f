"""A matrix product as numbers: the layouts of its operands, its sizes and its shape class. Pure.

Nothing here touches an operand's memory. Strides count elements, not bytes: kernels take them in
that unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

FLOAT_BYTES = 4

Triangles = Literal["", "upper", "lower", "both"]

SHAPE_CLASSES = (
    "tiny",  # a launch takes longer than the arithmetic
    "small",  # packing takes a large part of the time
    "medium",
    "large",
    "tall",  # a C of many rows and few columns
    "wide",  # few rows and many columns
    "vector",  # one row or one column
    "deep",  # a small C and a large k
    "batched",  # batches of small products
)
TINY, SMALL, MEDIUM = 32**3, 256**3, 1536**3  # multiply-adds, at most
LOPSIDED = 8  # a side this many times the other


class Layout(NamedTuple):
    """The layout of a batch of matrices."""

    shape: tuple[int, ...]  # (*batch, rows, columns)
    strides: tuple[int, ...]  # in elements; they may be negative or zero
    alignment_bytes: int = 4  # a power of two that divides the address of the first element

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch's shape, () for a single matrix."""
        return self.shape[:-2]

    @property
    def rows(self) -> int:
        """Rows of each matrix."""
        return self.shape[-2]

    @property
    def columns(self) -> int:
        """Columns of each matrix."""
        return self.shape[-1]

    @property
    def row_stride(self) -> int:
        """Elements from one row to the next."""
        return self.strides[-2]

    @property
    def column_stride(self) -> int:
        """Elements from one column to the next."""
        return self.strides[-1]

    @property
    def extent(self) -> tuple[int, int]:
        """Lowest and highest element in memory, relative to the first; the batch is not empty."""
        first = last = 0
        for count, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                first += (count - 1) * stride
            else:
                last += (count - 1) * stride
        return first, last

    @property
    def may_overlap_itself(self) -> bool:
        """Whether two elements may share memory; False only if the strides exclude it."""
        reach = 0  # the farthest element along all dimensions with smaller strides
        dimensions = ((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1)
        for stride, count in sorted(dimensions):
            if stride <= reach:
                return True
            reach += stride * (count - 1)
        return False

    def transposed(self) -> Layout:
        """Transpose each matrix of the batch by exchanging strides, without a copy."""
        return self._replace(
            shape=(*self.batch, self.columns, self.rows),
            strides=(*self.strides[:-2], self.column_stride, self.row_stride),
        )

    def broadcast(self, batch: tuple[int, ...]) -> Layout:
        """Repeat the matrices to the batch shape ``batch``, with strides of zero."""
        missing = len(batch) - len(self.batch)
        padded = ((1,) * missing + self.batch, (0,) * missing + self.strides[:-2])
        strides = tuple(
            stride if count == wanted else 0
            for count, stride, wanted in zip(*padded, batch, strict=True)
        )
        return self._replace(
            shape=(*batch, self.rows, self.columns),
            strides=strides + self.strides[-2:],
        )


class Shape(NamedTuple):
    """A batch of products of m x k by k x n matrices."""

    m: int
    n: int
    k: int
    matrices: int = 1

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.m * self.n * self.k * self.matrices

    @property
    def gflop(self) -> float:
        """Billions of operations: two for each multiply-add, as BLAS benchmarks count."""
        return 2e-9 * self.work

    @property
    def label(self) -> str:
        """The shape as the command line takes it."""
        if self.matrices > 1:
            return f"{self.matrices}x{self.m}x{self.n}x{self.k}"
        return str(self.m) if self.m == self.n == self.k else f"{self.m}x{self.n}x{self.k}"

    def shrunk(self) -> Shape:
        """Return the shape with its longest dimension halved."""
        longest = max(range(4), key=lambda i: self[i])
        return Shape(*(max(1, size // 2) if i == longest else size for i, size in enumerate(self)))


class Problem(NamedTuple):
    """One product ``C = alpha A B + beta C``, or one scaling ``C = beta C``.

    The batches of `a` and `b` broadcast to that of `c`.
    """

    a: Layout  # (*batch, m, k)
    b: Layout  # (*batch, k, n)
    c: Layout  # (*batch, m, n)
    precision: str | None  # None for a scaling, which reads neither `a` nor `b`
    # Whether B is A's transpose in the same memory and beta is 0, so that C is to be symmetric.
    is_symmetric: bool = False
    # If B is A's transpose and C need not be symmetric: the triangles of C that are updated. The
    # others are neither read nor written. "both" may be ignored: it stands for all of C.
    triangles: Triangles = ""
    # Whether elements of a square C below the diagonal need not be computed: B is A's transpose.
    is_half: bool = False

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
        flipped: dict[str, Triangles] = {"upper": "lower", "lower": "upper"}
        triangles = flipped.get(self.triangles, self.triangles)
        return self._replace(a=a, b=b, c=c, triangles=triangles, is_half=False)

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
        return self._replace(a=a, b=b, precision=None, is_symmetric=False)


def shape_class(m: int, n: int, k: int, matrices: int = 1) -> str:
    """Return the shape class of a batch of products of m x k by k x n, one of SHAPE_CLASSES."""
    work, short, long = m * n * k, min(m, n), max(m, n)
    if matrices > 1 and work <= SMALL:
        return "batched"
    if work <= TINY:
        return "tiny"
    if short == 1:
        return "vector"
    if k >= LOPSIDED * long:
        return "deep"
    if long >= LOPSIDED * short:
        return "tall" if m > n else "wide"
    return "small" if work <= SMALL else "medium" if work <= MEDIUM else "large"


def fresh(shape: Shape) -> Shape:
    """Return a shape near `shape` that the tuner has not timed, to confirm a config on."""
    m, n, k = (size if size < 8 else size - size // 7 | 1 for size in shape[:3])
    return Shape(m, n, k, shape.matrices)


def broadcast_batch(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that two batch shapes broadcast to, by NumPy's rules.

    Raises
    ------
    ValueError
        If they do not broadcast.
    """
    if not (a or b):
        return ()
    ndim = max(len(a), len(b))
    padded = ((1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b)
    if any(x != y and 1 not in (x, y) for x, y in zip(*padded, strict=True)):
        raise ValueError(f"the batch shapes {a} and {b} do not broadcast together")
    return tuple(y if x == 1 else x for x, y in zip(*padded, strict=True))


@dataclass(frozen=True)
class Level:
    """One loop over a batch: ``count`` steps, of ``strides[i]`` elements in operand i."""

    count: int
    strides: tuple[int, ...]


def batch_levels(*layouts: Layout) -> tuple[Level, ...]:
    """Return the fewest nested loops over batches of the same shape, outermost first.

    Neighbouring dimensions become one loop if every operand can walk both with one stride.
    """
    levels: list[Level] = []
    for axis, count in enumerate(layouts[0].batch):
        if count == 1:
            continue
        level = Level(count, tuple(layout.strides[axis] for layout in layouts))
        if levels and levels[-1].strides == tuple(count * s for s in level.strides):
            level = Level(levels.pop().count * count, level.strides)
        levels.append(level)
    return tuple(levels)


def folded(a: Layout, b: Layout, c: Layout) -> tuple[Layout, Layout, Layout]:
    """Turn a batch of products that share one B into one taller product, if the strides allow it.

    A batch of m x k matrices times one k x n matrix is a single product with more rows. It packs
    and reads B once.
    """

    def joins(x: Layout) -> bool:
        return x.strides[-3] == x.rows * x.row_stride

    def joined(x: Layout, rows: int) -> Layout:
        shape = (*x.shape[:-3], rows, x.columns)
        return x._replace(shape=shape, strides=x.strides[:-3] + x.strides[-2:])

    while c.batch:
        count = c.batch[-1]
        if count > 1 and not (b.strides[-3] == 0 and joins(a) and joins(c)):
            break
        a, b, c = joined(a, count * a.rows), joined(b, b.rows), joined(c, count * c.rows)
    return a, b, c


def merged(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """Return the one stride that walks all these axes, last axis fastest, or None."""
    total, step = 1, None
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count == 1:
            continue
        if step is None:
            step = stride
        elif stride != total * step:
            return None
        total *= count
    return 1 if step is None else step


def memory_order(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return an array's axes from the outermost in memory to the innermost."""
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


@lru_cache(maxsize=1024)
def dense_layout(shape: tuple[int, ...], axes: tuple[int, ...], alignment_bytes: int) -> Layout:
    """Return the layout of a dense array whose axes, from the outermost in memory, are `axes`."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= shape[axis]
    return Layout(shape, tuple(strides), alignment_bytes)
