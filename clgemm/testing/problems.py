"""Matrix elements, memory layouts, and calls of a matrix product with all that they must keep to.

Arrays lie inside larger ones, whose other elements are guards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clgemm.testing.assertions import assert_product, error_bound

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
FLOAT_BYTES = 4
SPECIAL = (np.nan, np.inf, -np.inf)


def _full_mantissa(rng: np.random.Generator, shape: Shape) -> Array:
    """Return numbers that need all 24 bits: parts of half precision lose the last ones."""
    odd = 2 * rng.integers(0, 2**22, shape) + 1
    signed: Array = np.copysign(1 + odd * 2.0**-23, rng.standard_normal(shape))
    return signed


def _cancelling(rng: np.random.Generator, shape: Shape) -> Array:
    """Return large numbers of both signs on small ones: in sums, the large ones cancel."""
    places = np.add.outer(np.arange(shape[-2]), np.arange(shape[-1]))
    return np.where(places % 2, -(2.0**12), 2.0**12) + rng.uniform(-1, 1, shape)


def _outlier(rng: np.random.Generator, shape: Shape) -> Array:
    """Return normal numbers and one that is a million times larger."""
    values = rng.standard_normal(shape)
    if values.size:
        values.flat[rng.integers(values.size)] *= 2.0**20
    return values


def _scaled(rng: np.random.Generator, shape: Shape, scales: Shape) -> Array:
    """Return normal numbers times powers of two."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 31, scales)


def _near(rng: np.random.Generator, shape: Shape, size: float) -> Array:
    """Return numbers of both signs, of one to two times a size."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(1, 2, shape) * size


# The limits of half precision, and what is beyond them.
HALF_LIMITS = (65504.0, 65519.0, 65520.0, 131008.0, 2.0**-14, 2.0**-15, 2.0**-24, 2.0**-26)

# The simplest first: failing examples shrink towards the front.
DATA: Mapping[str, Callable[[np.random.Generator, Shape], Array]] = {
    # What is left out or counted twice changes a sum.
    "ones": lambda _, shape: np.ones(shape),
    # Whole numbers up to 8: their products sum exactly in float32, in any order.
    "integers": lambda rng, shape: rng.integers(-8, 9, shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    # Numbers over forty powers of two either way.
    "wide": lambda rng, shape: rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-40, 41, shape),
    "full mantissa": _full_mantissa,
    "cancelling": _cancelling,
    "outlier": _outlier,
    "scaled rows": lambda rng, shape: _scaled(rng, shape, (*shape[:-1], 1)),
    "scaled columns": lambda rng, shape: _scaled(rng, shape, (*shape[:-2], 1, shape[-1])),
    "half limits": lambda rng, shape: rng.choice(HALF_LIMITS, shape) * rng.choice([-1, 1], shape),
    "signed zeros": lambda rng, shape: rng.choice([0.0, 0.0, 0.0, -0.0, -0.0, 1.0], shape),
    # Their products are just above the smallest normal numbers, or near the largest float32.
    "tiny": lambda rng, shape: _near(rng, shape, 2.0**-50),
    "huge": lambda rng, shape: _near(rng, shape, 2.0**56),
}
# Products of these sum exactly in float32, in any order, for k up to 2**17.
EXACT = ("ones", "integers", "signed zeros")


def made(name: str, rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.float32]:
    """Return a matrix, or a batch of them, of a family of `DATA`.

    Raises
    ------
    ValueError
        If there is no such family.
    """
    if name not in DATA:
        raise ValueError(f"data={name!r} is not one of {', '.join(DATA)}")
    return DATA[name](rng, shape).astype(np.float32)


def plant_special(
    values: npt.NDArray[np.float32], rng: np.random.Generator, count: int
) -> npt.NDArray[np.float32]:
    """Return the values with NaN or an infinity in the place of up to `count` of them."""
    planted = values.copy()
    for _ in range(count if values.size else 0):
        planted.flat[rng.integers(values.size)] = SPECIAL[rng.integers(len(SPECIAL))]
    return planted


@dataclass
class Operand:
    """A view into a larger array whose other elements are guards.

    Attributes
    ----------
    base : float32 ndarray
        The larger array, contiguous by rows.
    view : float32 ndarray
        The matrix or batch: a view of `base`.
    before : float32 ndarray
        A copy of `base` as it was at first.
    values : float32 ndarray
        A copy of `view` as it was at first.
    """

    base: Array
    view: Array
    before: Array
    values: Array

    @classmethod
    def of(cls, base: Array, view: Array) -> Operand:
        """Return the operand of a base and a view of it, as they are now."""
        return cls(base, view, base.copy(), np.array(view))

    @property
    def storage(self) -> Array:
        """The memory from the first element of the view on, as BLAS takes it: shape (elements,)."""
        return self.base.reshape(-1)[self.offset_bytes // FLOAT_BYTES :]

    @property
    def offset_bytes(self) -> int:
        """Where the first element of the view lies in the base."""
        return _offset_bytes(self.base, self.view)

    def leading(self, order: str) -> int:
        """Return the leading dimension of a 2-D view in elements, at least 1.

        Parameters
        ----------
        order : {"F", "C"}
            Whether it is the distance from a column to the next, or from a row to the next.
        """
        outer = 1 if order == "F" else 0
        distance = self.view.strides[outer] // FLOAT_BYTES if self.view.size else 1
        return int(max(1, distance, self.view.shape[1 - outer]))

    def untouched(self) -> bool:
        """Tell whether the base is bit for bit what it was."""
        return np.array_equal(self.base.view(np.int32), self.before.view(np.int32))

    def untouched_outside(self, view: Array) -> bool:
        """Tell whether nothing changed but the elements of one view of the base."""
        return outside_unchanged(self.base, self.before, view)

    def __repr__(self) -> str:
        """Return shape, strides in elements, offset, and the values if they are few."""
        strides = tuple(stride // FLOAT_BYTES for stride in self.view.strides)
        text = "x".join(map(str, self.view.shape))
        place = f"{text}, strides {strides}, first element {self.offset_bytes // FLOAT_BYTES}"
        few = np.array2string(self.values, threshold=16, edgeitems=2, separator=", ")
        return f"<{place}: {' '.join(few.split())}>"


def _offset_bytes(base: Array, view: Array) -> int:
    at, begin = (x.__array_interface__["data"][0] for x in (view, base))
    return int(at - begin)


def outside_unchanged(base: Array, before: Array, view: Array) -> bool:
    """Tell whether a base is bit for bit what it was, but for the elements of one view."""
    changed = base.view(np.int32) != before.view(np.int32)
    inside = np.zeros(base.size, bool)
    offsets = np.full(view.shape, _offset_bytes(base, view) // FLOAT_BYTES, np.int64)
    for axis, stride in enumerate(view.strides):
        steps = np.arange(view.shape[axis]) * (stride // FLOAT_BYTES)
        offsets += steps.reshape([-1 if i == axis else 1 for i in range(view.ndim)])
    inside[offsets.ravel()] = True
    return not (changed.ravel() & ~inside).any()


@dataclass(frozen=True)
class ArrayLayout:
    """How an array lies inside a larger one.

    Attributes
    ----------
    axes : tuple of int
        The axes from the outermost in memory to the innermost: (0, 1) for rows, (1, 0) for columns.
    steps : tuple of int
        For each axis: 1 for neighbouring elements, 2 for every other one, a negative number for
        reversed order, 0 for one slice that is repeated.
    before, after : tuple of int
        For each axis: guard elements before the first element and after the last one. They make
        offsets and leading dimensions.
    """

    axes: tuple[int, ...]
    steps: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def place(self, values: npt.ArrayLike, guard: float = np.nan) -> Operand:
        """Return the values in this layout.

        Parameters
        ----------
        values : array_like
            Of as many dimensions as the layout. Where a step is 0, the first slice is repeated.
        guard : float, optional
            The value of all other elements of the larger array.
        """
        content = np.asarray(values, np.float32)
        shape = content.shape
        counts = [min(n, 1) if s == 0 else n for n, s in zip(shape, self.steps, strict=True)]
        spans = [
            max(0, (n - 1) * max(1, abs(s)) + 1) for n, s in zip(counts, self.steps, strict=True)
        ]
        lengths = [b + span + a for b, span, a in zip(self.before, spans, self.after, strict=True)]
        base = np.full([lengths[axis] for axis in self.axes], guard, np.float32)
        ordered = base.transpose(np.argsort(self.axes))
        window = tuple(
            slice(b, b + span, max(1, abs(s)))
            for b, span, s in zip(self.before, spans, self.steps, strict=True)
        )
        view = ordered[window][tuple(slice(None, None, -1 if s < 0 else 1) for s in self.steps)]
        view[...] = content[tuple(slice(0, count) for count in counts)]
        if 0 in self.steps:
            view = np.broadcast_to(view, shape)
        return Operand.of(base, view)


class BlasCall(NamedTuple):
    """The arguments of a BLAS sgemm: ``C = alpha op(A) op(B) + beta C`` in flat storage.

    Attributes
    ----------
    order : {"F", "C"}
        Whether the leading dimension leads from a column to the next, or from a row to the next.
    trans_a, trans_b : int
        0 or 1.
    m, n, k : int
    alpha, beta : float
    a, b, c : float32 ndarray, 1-D
        Storage from the first element on; ``c`` is updated.
    lda, ldb, ldc : int
        Leading dimensions in elements.
    """

    order: str
    trans_a: int
    trans_b: int
    m: int
    n: int
    k: int
    alpha: float
    a: Array
    lda: int
    b: Array
    ldb: int
    beta: float
    c: Array
    ldc: int


@dataclass(repr=False)
class GemmProblem:
    """One call of sgemm: ``alpha op(A) op(B) + beta C``, and what its result must be.

    Attributes
    ----------
    alpha, beta : float
    a, b : Operand
    c : Operand or None
        C, filled with NaN where `beta` is 0.
    trans_a, trans_b : int
        0, 1 or 2, as SciPy's.
    overwrite_c : int
        Whether the result is to be written into C.
    order : {"", "F", "C"}
        "F" or "C" if A, B and C are BLAS storage, "" if they are any views.
    data : tuple of str
        The families of the elements of A and B.
    overlap : bool
        Whether A, B and C are windows of one array, and may share elements.
    """

    alpha: float
    beta: float
    a: Operand
    b: Operand
    c: Operand | None
    trans_a: int
    trans_b: int
    overwrite_c: int
    order: str = ""
    data: tuple[str, str] = ("", "")
    overlap: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, n and k."""
        op_a, op_b, _ = self._operands()
        return op_a.shape[0], op_b.shape[1], op_a.shape[1]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What `clgemm.sgemm` and `scipy.linalg.blas.sgemm` take, by position."""
        c = None if self.c is None else self.c.view
        rest = (self.trans_a, self.trans_b, self.overwrite_c)
        return (self.alpha, self.a.view, self.b.view, self.beta, c, *rest)

    @property
    def blas(self) -> BlasCall:
        """What a BLAS routine takes.

        Raises
        ------
        ValueError
            If the problem was not drawn with ``storage="F"`` or ``"C"``.
        """
        if not self.order or self.c is None:
            raise ValueError("this problem is no BLAS storage: gemm_problems(storage='F' or 'C')")
        m, n, k = self.sizes
        lead = {x: operand.leading(self.order) for x, operand in self._named()}
        return BlasCall(
            *(self.order, self.trans_a, self.trans_b, m, n, k, self.alpha),
            *(self.a.storage, lead["a"], self.b.storage, lead["b"]),
            *(self.beta, self.c.storage, lead["c"]),
        )

    def _named(self) -> list[tuple[str, Operand]]:
        named = [("a", self.a), ("b", self.b)]
        return named if self.c is None else [*named, ("c", self.c)]

    def _operands(self) -> tuple[Array, Array, Array | None]:
        """Return op(A), op(B) and C as they were at first; C is None if it is not to be read."""
        a, b = self.a.values, self.b.values
        c = self.c.values if self.c is not None and self.beta else None
        return (a.T if self.trans_a else a), (b.T if self.trans_b else b), c

    def expected(self) -> npt.NDArray[np.float64]:
        """Return the result in float64, shape (m, n)."""
        a, b, c = (None if x is None else x.astype(np.float64) for x in self._operands())
        assert a is not None
        assert b is not None
        with np.errstate(invalid="ignore"):
            result = self.alpha * (a @ b) if self.alpha else np.zeros((len(a), b.shape[1]))
            return result if c is None else result + self.beta * c

    def bound(self, precision: str = "strict") -> npt.NDArray[np.float64]:
        """Return the error that each element may have, as `error_bound`, shape (m, n)."""
        a, b, c = self._operands()
        return error_bound(a, b, self.alpha, self.beta, c, precision=precision)

    def check(self, result: Any, precision: str | None = None) -> None:
        """Assert that a result is right, and that nothing else was written.

        Parameters
        ----------
        result : array or pyopencl.array.Array, shape (m, n)
            What the function returned, or ``problem.c.view`` if it writes into C.
        precision : {"strict", "float32", "fast"}, optional
            Whose bound counts, as in `error_bound`.

        Raises
        ------
        AssertionError
            If an element is wrong, A or B was modified, or memory around C was written.
        """
        a, b, c = self._operands()
        assert_product(result, a, b, self.alpha, self.beta, c, precision=precision)
        written = self.c is not None and (self.overwrite_c or self.order)
        for name, operand in self._named():
            if written and self.c is not None and (name == "c" or self.overlap):
                kept, what = operand.untouched_outside(self.c.view), "memory around C was written"
            else:
                kept, what = operand.untouched(), f"{name.upper()} was modified"
            if not kept:
                raise AssertionError(f"{what}: {self!r}")

    def __repr__(self) -> str:
        """Return the sizes, the scalars and what is not plain, one operand a line."""
        m, n, k = self.sizes
        parts = [f"m={m}, n={n}, k={k}, alpha={self.alpha:g}, beta={self.beta:g}"]
        if self.order:
            leads = ", ".join(f"ld{x}={op.leading(self.order)}" for x, op in self._named())
            parts.append(f"order={self.order!r}, {leads}")
        names = ["trans_a", "trans_b", "overlap", *(["overwrite_c"] if not self.order else [])]
        parts += [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name)]
        if any(self.data):
            parts.append(f"data={' by '.join(self.data)}")
        rows = [f"  {name} = {operand!r}" for name, operand in self._named()]
        return "GemmProblem(" + ", ".join(parts) + "\n" + "\n".join(rows) + ")"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Let Hypothesis and IPython print this instead of all fields."""
        printer.text(repr(self))
