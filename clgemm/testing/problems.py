"""One call of a matrix product with all that it must keep to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clgemm.testing.assertions import assert_product
from clgemm.testing.bounds import error_bound
from clgemm.testing.operands import Operand

__all__ = ["BlasCall", "GemmProblem"]

Array = npt.NDArray[Any]


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
