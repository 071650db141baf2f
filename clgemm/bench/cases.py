"""The products of a benchmark: their sizes, the layouts of the operands, and batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["DATA", "LAYOUTS", "Case", "default_cases", "parse_shapes", "quick_cases"]

FLOAT_BYTES = 4
LAYOUTS = {
    "N": "row-major",
    "T": "the transpose of a row-major matrix",
    "S": "every other row of a wider matrix: elements of a row are adjacent",
    "D": "every other row and column of a larger matrix: no elements are adjacent",
}
DATA = {
    "uniform": "uniform between -1 and 1",
    "normal": "normal",
    "wide": "normal times log-normal of sigma 4: half precision cannot hold the magnitudes",
}
QUICK_SQUARES = (64, 256, 1024)
SQUARES = tuple(2**power for power in range(6, 14))  # 64 to 8192


@dataclass(frozen=True)
class Case:
    """One product C = A B, or a batch of them.

    Attributes
    ----------
    group : str
        The group of the case in the report, such as ``"square"`` or ``"transposed"``.
    m, n, k : int
        A is m x k, B is k x n and C is m x n.
    layout_a, layout_b : str
        The memory layouts of the operands; keys of `LAYOUTS`.
    batch : int
        Matrices in the batch.
    shared_b : bool
        Whether the whole batch shares one B.
    data : str
        The distribution of the elements; a key of `DATA`.
    """

    group: str
    m: int
    n: int
    k: int
    layout_a: str = "N"
    layout_b: str = "N"
    batch: int = 1
    shared_b: bool = False
    data: str = "uniform"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is less than 1")
        for name in ("layout_a", "layout_b"):
            if getattr(self, name) not in LAYOUTS:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {sorted(LAYOUTS)}")
        if self.data not in DATA:
            raise ValueError(f"data={self.data!r} is not one of {sorted(DATA)}")

    @property
    def work(self) -> int:
        """Multiply-adds: m n k for each product."""
        return self.m * self.n * self.k * self.batch

    @property
    def flops(self) -> int:
        """Multiplications and additions: two for each multiply-add."""
        return 2 * self.work

    @property
    def size_bytes(self) -> int:
        """The bytes of A, B and C: the least memory traffic of the product."""
        a, b, c = self.m * self.k, self.k * self.n, self.m * self.n
        return FLOAT_BYTES * (self.batch * (a + c) + (1 if self.shared_b else self.batch) * b)

    @property
    def intensity(self) -> float:
        """Operations per byte, the horizontal axis of the roofline."""
        return self.flops / self.size_bytes

    @property
    def label(self) -> str:
        """The shape as m x n x k, with the batch and the layouts unless they are the default."""
        square = self.m == self.n == self.k
        text = str(self.m) if square else f"{self.m}x{self.n}x{self.k}"
        if self.batch > 1:
            text = f"{self.batch} of {text}" + (", one B" if self.shared_b else "")
        layouts = self.layout_a + self.layout_b
        return text if layouts == "NN" else f"{text} {layouts}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Case:
        """Return the case from the items of its `as_dict`; ignore all others."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})


def parse_shapes(text: str) -> list[Case]:
    """Return the cases of an argument such as ``1024,1000x777x3000,100x64x64x64``.

    Parameters
    ----------
    text : str
        Shapes separated by commas: N is square, MxNxK a product of m x k by k x n, and BxMxNxK a
        batch of B products.

    Raises
    ------
    ValueError
        If an item is none of these; the message names it.
    """
    return [_parsed(item.strip()) for item in text.split(",")]


def _parsed(item: str) -> Case:
    if not re.fullmatch(r"\d+(x\d+){0,3}", item) or item.count("x") == 1:
        raise ValueError(f"{item!r} is not a shape: N, MxNxK or BxMxNxK, such as 1000x777x3000")
    sizes = [int(size) for size in item.split("x")]
    try:
        if len(sizes) == 1:
            return Case("square", sizes[0], sizes[0], sizes[0])
        m, n, k = sizes[-3:]
        if len(sizes) == 3:
            return Case("rectangular", m, n, k)
        return Case("batch", m, n, k, batch=sizes[0])
    except ValueError as error:
        raise ValueError(f"{item!r} is not a shape: {error}") from None


def default_cases() -> list[Case]:
    """Return the cases of a full run."""
    return [
        *_squares(SQUARES),
        *_rectangular((1000, 777, 3000), (3000, 1000, 777), (1023, 1025, 1027)),
        *_layouts(1024, "NT", "TN", "TT"),
        Case("transposed", 1000, 777, 3000, "T", "T"),
        *_layouts(1024, "SN", "NS", "SS", "DD"),
        *_skinny(4096),
        Case("deep", 64, 64, 100_000),
        Case("deep", 256, 256, 20_000),
        Case("batch", 128, 128, 128, batch=100),
        Case("batch", 128, 128, 128, batch=100, shared_b=True),
        Case("batch", 32, 32, 32, batch=1000),
    ]


def quick_cases() -> list[Case]:
    """Return the cases of a quick run, which takes about half a minute."""
    return [
        *_squares(QUICK_SQUARES),
        *_rectangular((1000, 777, 3000)),
        *_layouts(512, "TT", "SS"),
        Case("skinny", 1, 2048, 2048),
        Case("deep", 64, 64, 20_000),
        Case("batch", 128, 128, 128, batch=20),
    ]


def _squares(sizes: Iterable[int]) -> Iterator[Case]:
    for n in sizes:
        yield Case("square", n, n, n)


def _rectangular(*shapes: tuple[int, int, int]) -> Iterator[Case]:
    for shape in shapes:
        yield Case("rectangular", *shape)


def _layouts(n: int, *pairs: str) -> Iterator[Case]:
    for pair in pairs:
        yield Case("transposed" if "T" in pair else "sliced", n, n, n, *pair)


def _skinny(n: int, width: int = 64) -> Iterator[Case]:
    for m, columns in ((1, n), (n, 1), (width, n), (n, width)):
        yield Case("skinny", m, columns, n)
    yield Case("skinny", n, n, width)
