"""The products of a benchmark: named, drawn at random, their operands, references and checks.

Random products are the same on every machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any, NamedTuple

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


SHARES = {"N": 0.5, "T": 0.35, "S": 0.1, "D": 0.05}  # of the layouts of each operand
STORED = {"N": 1, "T": 1, "S": 2, "D": 4}  # elements stored for each element of an operand
STORAGE_BYTES = 2**30  # the most for A, B and C
DRAWS = 2000  # tries to find a product of a kind
REPEATS = 300  # draws in all that find no product, or one that the survey has already

Sides = tuple[int, int, int]


@dataclass(frozen=True)
class Bounds:
    """The products that a survey may draw.

    Attributes
    ----------
    sides : (int, int)
        The least and the greatest m, n and k.
    work : (int, int)
        The least and the greatest number of multiply-adds.
    """

    sides: tuple[int, int] = (1, 16384)
    work: tuple[int, int] = (10**5, 4 * 10**11)

    def __post_init__(self) -> None:
        for name in ("sides", "work"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name}={low}:{high} is not a range of whole numbers above 0")

    def holds(self, case: Case) -> bool:
        """Tell whether a product is within the bounds, and its operands fit into memory."""
        sides = case.m, case.n, case.k
        low, high = self.sides
        stored = (
            STORED[case.layout_a] * case.m * case.k * case.batch
            + STORED[case.layout_b] * case.k * case.n * (1 if case.shared_b else case.batch)
            + case.m * case.n * case.batch
        )
        return (
            all(low <= side <= high for side in sides)
            and self.work[0] <= case.work <= self.work[1]
            and FLOAT_BYTES * stored <= STORAGE_BYTES
        )


def range_text(values: Sequence[int], between: str) -> str:
    """Return a range in words, such as ``1e5 to 4e11``."""
    low, high = (str(value) if value < 10**5 else f"{value:.3g}" for value in values)
    return f"{low}{between}{high}".replace("e+0", "e").replace("e+", "e")


class Draw:
    """Random sizes within bounds. All are log-uniform.

    Only `Random.random` is used, which gives the same numbers on every machine and in every
    version of Python.
    """

    def __init__(self, seed: int | str, bounds: Bounds) -> None:
        self.random = Random(seed).random
        self.low, self.high = bounds.sides

    def size(self, low: int, high: int) -> int:
        """Return a whole number between two others, inclusive."""
        value = math.exp(math.log(low) + self.random() * math.log((high + 1) / low))
        return min(int(value), high)

    def side(self, least: int = 1, most: int = 10**9) -> int:
        """Return a side within the bounds and within a range; 0 if there is none."""
        low, high = max(least, self.low), min(most, self.high)
        return self.size(low, high) if low <= high else 0

    def item(self, weights: dict[str, float]) -> str:
        """Return a key by the weights."""
        rest = self.random() * sum(weights.values())
        for key, weight in weights.items():
            rest -= weight
            if rest < 0:
                return key
        return key


def _multiples(of: int) -> Callable[[Draw], Sides]:
    def sides(draw: Draw) -> Sides:
        m, n, k = (of * round(draw.side() / of) for _ in range(3))
        return m, n, k

    return sides


def _one_off(draw: Draw) -> Sides:
    near = (side + (1 if draw.random() < 0.5 else -1) for side in _multiples(64)(draw))
    m, n, k = (side if side > 1 else 0 for side in near)  # 1 is no multiple's neighbour
    return m, n, k


def _few(draw: Draw) -> Sides:
    few, many, k = draw.side(1, 64), draw.side(128), draw.side(128)
    return (few, many, k) if draw.random() < 0.5 else (many, few, k)


class Kind(NamedTuple):
    """A kind of product: how often it is drawn, and its sides."""

    weight: float
    sides: Callable[[Draw], Sides]
    most_matrices: int = 1


KINDS = {
    "any sizes": Kind(4, lambda draw: (draw.side(), draw.side(), draw.side())),
    "square": Kind(2, lambda draw: (draw.side(),) * 3),
    "multiples of 8": Kind(1.5, _multiples(8)),
    "multiples of 64": Kind(1.5, _multiples(64)),
    "one off multiples of 64": Kind(2, _one_off),
    "short k": Kind(2, lambda draw: (draw.side(64), draw.side(64), draw.side(1, 32))),
    "long k": Kind(2, lambda draw: (draw.side(1, 128), draw.side(1, 128), draw.side(1000))),
    "few rows or columns": Kind(2, _few),
    "batch": Kind(
        1.5,
        lambda draw: (draw.side(1, 512), draw.side(1, 512), draw.side(1, 512)),
        most_matrices=1000,
    ),
}


def random_cases(count: int, seed: int, bounds: Bounds, data: str = "normal") -> list[Case]:
    """Return random products, those of less work first.

    The same arguments give the same products on every machine. The first products of a longer
    survey of the same seed are those of a shorter one, in another order.

    Raises
    ------
    ValueError
        If there are too few products within the bounds.
    """
    kinds = {name: KINDS[name].weight for name in possible_kinds(bounds)}
    if not kinds:
        raise ValueError(f"no product found within {bounds}")
    draw, found = Draw(seed, bounds), dict[Case, None]()
    tries = 0
    while len(found) < count:
        case = _drawn(draw, bounds, draw.item(kinds))
        if case is None or case in found:
            tries += 1
            if tries > REPEATS:
                raise ValueError(f"only {len(found)} products of {count} found within {bounds}")
        else:
            found[case] = None
    return sorted((replace(case, data=data) for case in found), key=lambda case: case.work)


def possible_kinds(bounds: Bounds) -> list[str]:
    """Return the kinds of which products within the bounds can be found."""
    draw = Draw(0, bounds)
    return [kind for kind in KINDS if _drawn(draw, bounds, kind) is not None]


def _drawn(draw: Draw, bounds: Bounds, name: str) -> Case | None:
    """Return a product of a kind, None if none is within the bounds."""
    kind = KINDS[name]
    for _ in range(DRAWS):
        m, n, k = kind.sides(draw)
        batch = draw.size(2, kind.most_matrices) if kind.most_matrices > 1 else 1
        layouts = draw.item(SHARES), draw.item(SHARES)
        shared = batch > 1 and draw.random() < 0.25
        if min(m, n, k) > 0 and bounds.holds(
            case := Case(name, m, n, k, *layouts, batch=batch, shared_b=shared)
        ):
            return case
    return None


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
