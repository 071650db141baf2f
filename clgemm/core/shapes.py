"""Shape classes, which are tuned separately, and the sample shapes that each is tuned on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["LOPSIDED", "SHAPE_CLASSES", "Shape", "fresh", "samples", "shape_class"]

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


# The shapes that are timed: smaller and larger ones of a class, since a record serves all of it.
PANEL_SAMPLES = {
    "small": (Shape(96, 96, 96), Shape(224, 224, 224)),
    "medium": (Shape(512, 512, 512), Shape(1000, 1000, 1000)),
    "large": (Shape(2048, 2048, 2048),),
    "tall": (Shape(4096, 64, 1024), Shape(3000, 100, 3000), Shape(8192, 256, 256)),
    "wide": (Shape(64, 4096, 1024), Shape(100, 3000, 3000), Shape(256, 8192, 256)),
    "deep": (Shape(64, 64, 50_000), Shape(100, 100, 20_000), Shape(256, 256, 8192)),
    "batched": (Shape(64, 64, 64, 300), Shape(128, 128, 128, 100), Shape(224, 224, 224, 40)),
}
GPU_PANEL_SAMPLES = PANEL_SAMPLES | {
    "small": (Shape(128, 128, 128), Shape(224, 224, 224)),
    "large": (Shape(2048, 2048, 2048), Shape(4096, 4096, 4096)),
    "tall": (Shape(16384, 64, 1024), Shape(8192, 512, 1024)),
    "wide": (Shape(64, 16384, 1024), Shape(512, 8192, 1024)),
    "batched": (Shape(128, 128, 128, 200), Shape(224, 224, 224, 100)),
}
SKINNY_SAMPLES = {
    "vector": (Shape(1, 4096, 4096), Shape(4096, 1, 4096)),
    "tall": (Shape(4096, 4, 4096), Shape(8192, 8, 1024)),
    "wide": (Shape(4, 4096, 4096), Shape(8, 8192, 1024)),
}
LANES_SKINNY_SAMPLES = SKINNY_SAMPLES | {
    "tall": (Shape(4096, 2, 4096), Shape(16384, 2, 1024)),
    "wide": (Shape(2, 4096, 4096), Shape(2, 16384, 1024)),
}
DIRECT_SAMPLES = {
    "tiny": (Shape(12, 12, 12), Shape(32, 32, 32)),
    "batched": (Shape(12, 12, 12, 2000), Shape(32, 32, 32, 1000)),
}
GPU_DIRECT_SAMPLES = DIRECT_SAMPLES | {
    "small": (Shape(64, 64, 64), Shape(96, 96, 96)),
    "batched": (Shape(12, 12, 12, 2000), Shape(16, 16, 16, 1000)),
}

TENSOR_SAMPLES = {
    "medium": (Shape(1000, 1000, 1000), Shape(1408, 1408, 1408)),
    "large": GPU_PANEL_SAMPLES["large"],
    "deep": (Shape(1024, 1024, 10240), Shape(1536, 1536, 16384)),
    "tall": (Shape(8192, 512, 1024), Shape(16384, 1024, 1024)),
    "wide": (Shape(512, 8192, 1024), Shape(1024, 16384, 1024)),
}


def samples(family: str, name: str, kind: str) -> tuple[Shape, ...]:
    """Return the shapes that configs of a family are timed on, for a shape class.

    Parameters
    ----------
    name : str
        The shape class.
    kind : {"CPU", "GPU", "accelerator"}
        The kind of device.

    Returns
    -------
    tuple of Shape
        Empty if the family makes no products of the class.
    """
    own: Mapping[str, Mapping[str, tuple[Shape, ...]]] = {
        "skinny": SKINNY_SAMPLES,
        "skinny_lanes": LANES_SKINNY_SAMPLES,
        "tensor": TENSOR_SAMPLES,
        "tensor_mma": TENSOR_SAMPLES,
        "direct": DIRECT_SAMPLES if kind == "CPU" else GPU_DIRECT_SAMPLES,
    }
    panels = PANEL_SAMPLES if kind == "CPU" else GPU_PANEL_SAMPLES
    return own.get(family, panels).get(name, ())


def fresh(shape: Shape) -> Shape:
    """Return a shape near `shape` that the tuner has not timed, to confirm a config on."""
    m, n, k = (size if size < 8 else size - size // 7 | 1 for size in shape[:3])
    return Shape(m, n, k, shape.matrices)
