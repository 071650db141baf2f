"""The products of a benchmark: their sizes and layouts, operands, references and checks."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from clgemm.testing.assertions import PIECE, ROUNDINGS, SMALLEST_NORMAL, gamma

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
        *(Case("square", 2**power, 2**power, 2**power) for power in range(6, 14)),
        Case("rectangular", 1000, 777, 3000),
        Case("rectangular", 3000, 1000, 777),
        Case("rectangular", 1023, 1025, 1027),
        *(Case("transposed", 1024, 1024, 1024, *layouts) for layouts in ("NT", "TN", "TT")),
        Case("transposed", 1000, 777, 3000, "T", "T"),
        *(Case("sliced", 1024, 1024, 1024, *layouts) for layouts in ("SN", "NS", "SS", "DD")),
        Case("skinny", 1, 4096, 4096),
        Case("skinny", 4096, 1, 4096),
        Case("skinny", 64, 4096, 4096),
        Case("skinny", 4096, 64, 4096),
        Case("skinny", 4096, 4096, 64),
        Case("deep", 64, 64, 100_000),
        Case("deep", 256, 256, 20_000),
        Case("batch", 128, 128, 128, batch=100),
        Case("batch", 128, 128, 128, batch=100, shared_b=True),
        Case("batch", 32, 32, 32, batch=1000),
    ]


def quick_cases() -> list[Case]:
    """Return the cases of a quick run, which takes about half a minute."""
    return [
        *(Case("square", n, n, n) for n in (64, 256, 1024)),
        Case("rectangular", 1000, 777, 3000),
        Case("transposed", 512, 512, 512, "T", "T"),
        Case("sliced", 512, 512, 512, "S", "S"),
        Case("skinny", 1, 2048, 2048),
        Case("deep", 64, 64, 20_000),
        Case("batch", 128, 128, 128, batch=20),
    ]


SIGMA = 4.0  # of the logarithms of wide data
COLUMNS_IN_FRONT = 5  # columns of the stored matrix before the first one of a sliced operand
BLOCK = 1 << 22  # elements that are compared at a time, so that float64 copies stay small

Array = npt.NDArray[Any]


def operands(case: Case) -> tuple[Array, Array]:
    """Return A and B of a case: float32 of the case's distribution, the same in each process.

    Returns
    -------
    a : shape (m, k) or (batch, m, k)
    b : shape (k, n), or (batch, k, n) unless the batch shares it
    """
    rng = np.random.default_rng(0)
    a, b = stored(case, rng)
    return viewed(a, case.layout_a), viewed(b, case.layout_b)


def stored(case: Case, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the C-contiguous arrays that A and B are views of."""
    stack = (case.batch,) if case.batch > 1 else ()
    a = _random(rng, case.data, (*stack, *stored_shape(case.m, case.k, case.layout_a)))
    if case.shared_b:
        stack = ()
    return a, _random(rng, case.data, (*stack, *stored_shape(case.k, case.n, case.layout_b)))


def stored_shape(rows: int, columns: int, layout: str) -> tuple[int, int]:
    """Return rows and columns of the stored matrix that an operand is a view of."""
    return {
        "N": (rows, columns),
        "T": (columns, rows),
        "S": (2 * rows, columns + COLUMNS_IN_FRONT),
        "D": (2 * rows, 2 * columns),
    }[layout]


def _random(rng: np.random.Generator, data: str, shape: tuple[int, ...]) -> Array:
    if data == "uniform":
        values = rng.random(shape, np.float32)
        values *= 2
        values -= 1
        return values
    values = rng.standard_normal(shape, np.float32)
    if data == "wide":
        values *= np.exp(np.float32(SIGMA) * rng.standard_normal(shape, np.float32))
    return values


def viewed(array: Any, layout: str) -> Any:
    """Return the operand as a view of its stored array, NumPy's or pyopencl's."""
    if layout == "N":
        return array
    if layout == "T":
        # pyopencl's arrays have no method swapaxes.
        return array.transpose((*range(array.ndim - 2), array.ndim - 1, array.ndim - 2))
    window = {
        "S": (slice(None, None, 2), slice(COLUMNS_IN_FRONT, None)),
        "D": (slice(None, None, 2), slice(None, None, 2)),
    }[layout]
    return array[(slice(None),) * (array.ndim - 2) + window]


def reference(case: Case) -> npt.NDArray[np.float64]:
    """Return A B in float64, shape (m, n) or (batch, m, n)."""
    a, b = operands(case)
    c: npt.NDArray[np.float64] = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return c


def judge(case: Case, c: Array, expected: Array, precision: str = "strict") -> tuple[float, float]:
    """Return the relative error of a result, and the error of its worst element.

    This uses no BLAS, whose threads would spin afterwards.

    Parameters
    ----------
    c : float32 array, shape of `expected`
        The result.
    expected : float64 array
        The array of `reference`.
    precision : {"strict", "float32", "fast"}, optional
        The mode that computed the result, whose promise is checked (docs/precision.md).

    Returns
    -------
    error : float
        ||C - C_ref|| / ||C_ref|| in Frobenius norms.
    worst : float
        The largest |C - C_ref| / (gamma(k + 2) ||a_i|| ||b_j||), where gamma(k) = k u / (1 - k u).
        The norms of A's row and B's column bound |A||B| from above. An element above 1 has more
        than rounding errors [1]_. NaN if an element is NaN. Other modes have a longer sum than
        k + 2. The mode ``"fast"`` has the largest element of each piece of 64 in place of all.

    Raises
    ------
    ValueError
        If the shapes differ.

    References
    ----------
    .. [1] N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1.
    """
    if c.shape != expected.shape:
        raise ValueError(
            f"the result's shape is {c.shape}, but the reference's is {expected.shape}"
        )
    a, b = operands(case)
    norms = _norms_of_pieces if precision == "fast" else _norms
    rows, columns = gamma(case.k + ROUNDINGS[precision]) * norms(a), norms(b.swapaxes(-1, -2))
    shape = (-1, case.m, case.n)
    rows = rows.reshape(-1, case.m)
    columns = np.broadcast_to(columns.reshape(-1, case.n), (len(rows), case.n))
    worst, error, norm = 0.0, 0.0, 0.0
    height = max(1, BLOCK // case.n)
    for each, wanted, row, column in zip(
        c.reshape(shape), expected.reshape(shape), rows, columns, strict=True
    ):
        for begin in range(0, case.m, height):
            block = slice(begin, begin + height)
            target = np.asarray(wanted[block])
            difference = np.abs(each[block] - target)
            error += float(np.square(difference).sum())
            norm += float(np.square(target).sum())
            # np.maximum returns NaN if either is NaN; Python's max may not.
            difference /= row[block, None] * column + case.k * SMALLEST_NORMAL
            worst = float(np.maximum(worst, difference.max()))
    return float(np.sqrt(error / norm)), worst


def _norms(x: Array) -> Array:
    """Return the Euclidean norm of each row."""
    squares: Array = np.einsum("...ij,...ij->...i", x, x, dtype=np.float64)
    return np.sqrt(squares)


def _norms_of_pieces(x: Array) -> Array:
    """Return the norm of each row after each piece of 64 elements is filled with its largest."""
    largest = np.maximum.reduceat(np.abs(x), range(0, x.shape[-1], PIECE), axis=-1)
    norms: Array = np.sqrt(PIECE) * _norms(largest)
    return norms
