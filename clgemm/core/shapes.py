"""The shape classes, each of which is tuned separately. Pure."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LOPSIDED", "SHAPE_CLASSES", "Shape", "fresh", "shape_class"]

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
