"""The classes that shapes fall into, each tuned for itself. Pure."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LOPSIDED", "SHAPE_CLASSES", "Shape", "fresh", "shape_class"]

SHAPE_CLASSES = (
    "tiny",  # a launch takes longer than the arithmetic
    "small",  # packing counts
    "medium",
    "large",
    "tall",  # a C of many rows and few columns
    "wide",  # few rows and many columns
    "vector",  # one row or one column
    "deep",  # little C, much k
    "batched",  # stacks of small ones
)
TINY, SMALL, MEDIUM = 32**3, 256**3, 1536**3  # multiply-adds, at most
LOPSIDED = 8  # a side so many times the other


class Shape(NamedTuple):
    """A stack of products of m x k by k x n."""

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
        """Billions of operations, counted as BLAS does."""
        return 2e-9 * self.work

    @property
    def label(self) -> str:
        """As the command line takes it."""
        if self.matrices > 1:
            return f"{self.matrices}x{self.m}x{self.n}x{self.k}"
        return str(self.m) if self.m == self.n == self.k else f"{self.m}x{self.n}x{self.k}"

    def shrunk(self) -> Shape:
        """Return the shape with its longest dimension halved."""
        longest = max(range(4), key=lambda i: self[i])
        return Shape(*(max(1, size // 2) if i == longest else size for i, size in enumerate(self)))


def shape_class(m: int, n: int, k: int, matrices: int = 1) -> str:
    """Return the class of a stack of products of m x k by k x n, one of SHAPE_CLASSES."""
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
    """Return a shape of the class, or of its neighbours, that nothing has been tried on yet."""
    m, n, k = (size if size < 8 else size - size // 7 | 1 for size in shape[:3])
    return Shape(m, n, k, shape.matrices)
