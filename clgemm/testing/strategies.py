"""Hypothesis strategies for matrices, batches, memory layouts and whole products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from clgemm.testing.problems import DATA, ArrayLayout, GemmProblem, Operand, made, plant_special

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "the strategies of clgemm.testing need Hypothesis: pip install 'clgemm[testing]'"
    ) from error

# Lengths around the edges of common tiles and vectors.
EDGES = sorted(
    {max(0, t + d) for t in (0, 4, 8, 16, 24, 32, 64, 128) for d in (-1, 0, 1)} | {65, 130}
)
MAX_SIDE, MAX_WORK, MAX_ELEMENTS = 130, 2**22, 2**16
GUARD_OF_C = 12345.0
ALPHAS = st.sampled_from([1.0, 0.0, -1.0, 2.0, -3.0])
BETAS = st.sampled_from([0.0, 1.0, -1.0, 2.0, -3.0])


def sides(max_side: int = MAX_SIDE, min_side: int = 0) -> st.SearchStrategy[int]:
    """Return a strategy for a side of a matrix: small ones, and those around tiles' edges.

    Parameters
    ----------
    max_side, min_side : int, optional
        The bounds, both included.

    Returns
    -------
    strategy of int
    """
    edges = [edge for edge in EDGES if min_side <= edge <= max_side] or [min_side]
    small = st.integers(min_side, max(min_side, min(max_side, 8)))
    return st.one_of(small, st.sampled_from(edges), st.integers(min_side, min(max_side, 40)))


@st.composite
def layouts(
    draw: st.DrawFn,
    ndim: int = 2,
    *,
    negative: bool = True,
    zero: bool = False,
    max_step: int = 3,
    max_guards: int = 3,
) -> ArrayLayout:
    """Return a strategy for how an array lies in memory.

    It shrinks to an array of its own, contiguous by rows.

    Parameters
    ----------
    ndim : int, optional
        Dimensions of the array.
    negative, zero : bool, optional
        Whether an axis may be reversed, or one slice repeated along it. Nothing can be written to
        an array of repeated slices.
    max_step : int, optional
        The largest distance between neighbours along an axis; 1 for BLAS storage.
    max_guards : int, optional
        The most guard elements before and after each axis.

    Returns
    -------
    strategy of ArrayLayout
    """
    steps = [1, 1, 1, *range(2, max_step + 1)]
    steps += [-step for step in (1, 2) if step <= max_step] * negative + [0] * zero
    axes = tuple(draw(st.permutations(range(ndim))))
    rows = [draw(st.sampled_from(steps)) for _ in range(ndim)]
    before = [draw(st.integers(0, max_guards)) for _ in range(ndim)]
    after = [draw(st.integers(0, max_guards)) for _ in range(ndim)]
    return ArrayLayout(axes, tuple(rows), tuple(before), tuple(after))


def _drawn(draw: st.DrawFn, value: int | st.SearchStrategy[int]) -> int:
    return value if isinstance(value, int) else draw(value)


@st.composite
def stacks(
    draw: st.DrawFn,
    rows: int | st.SearchStrategy[int] | None = None,
    columns: int | st.SearchStrategy[int] | None = None,
    *,
    batch: Sequence[int] | None = None,
    min_dims: int = 0,
    max_dims: int = 3,
    max_side: int = MAX_SIDE,
    max_elements: int = MAX_ELEMENTS,
    data: Sequence[str] = tuple(DATA),
    layout: st.SearchStrategy[ArrayLayout] | None = None,
    special: bool = False,
) -> npt.NDArray[np.float32]:
    """Return a strategy for batches of matrices, as `numpy.matmul` takes them.

    They shrink to one small matrix of ones, contiguous by rows.

    Parameters
    ----------
    rows, columns : int or strategy of int, optional
        The sides of the matrices; any from 0 to `max_side` if left out.
    batch : sequence of int, optional
        The shape of the batch; any of `min_dims` to `max_dims` axes of at most 4 if left out.
    min_dims, max_dims : int, optional
    max_side : int, optional
        The largest side that is drawn.
    max_elements : int, optional
        The most elements of the whole batch.
    data : sequence of str, optional
        The families of elements, out of `clgemm.testing.DATA`.
    layout : strategy of ArrayLayout, optional
        As `layouts` of that many dimensions; all of them if left out.
    special : bool, optional
        Whether NaN and infinities may be among the elements.

    Returns
    -------
    strategy of float32 ndarray, shape (..., rows, columns)
    """
    m = _drawn(draw, sides(max_side) if rows is None else rows)
    n = _drawn(draw, sides(max_side) if columns is None else columns)
    if batch is None:
        room = max_elements // max(1, m * n)
        dims = draw(st.integers(min_dims, max_dims))
        found: list[int] = []
        for _ in range(dims):
            most = min(4, room // max(1, math.prod(found)))
            found.append(draw(st.integers(0, max(most, 1))))
        batch = found
    shape = (*batch, m, n)
    values = _values(draw, shape, data, special)[0]
    return draw(layouts(len(shape)) if layout is None else layout).place(values).view


def _values(
    draw: st.DrawFn, shape: tuple[int, ...], data: Sequence[str], special: bool
) -> tuple[npt.NDArray[np.float32], str]:
    """Return elements and the name of their family."""
    name = draw(st.sampled_from(list(data)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = made(name, rng, shape)
    if special:
        values = plant_special(values, rng, draw(st.integers(0, 2)))
    return values, name


def matrices(
    rows: int | st.SearchStrategy[int] | None = None,
    columns: int | st.SearchStrategy[int] | None = None,
    *,
    max_side: int = MAX_SIDE,
    data: Sequence[str] = tuple(DATA),
    layout: st.SearchStrategy[ArrayLayout] | None = None,
    special: bool = False,
) -> st.SearchStrategy[npt.NDArray[np.float32]]:
    """Return a strategy for float32 matrices of any layout and of hostile data.

    They shrink to a small matrix of ones, contiguous by rows. Memory around a view holds NaN.

    Parameters
    ----------
    rows, columns, max_side, data, layout, special
        As for `stacks`.

    Returns
    -------
    strategy of float32 ndarray, shape (rows, columns)

    Examples
    --------
    >>> @given(matrices(columns=3, max_side=20))
    ... def test_rotation(x): ...
    """
    return stacks(
        rows, columns, batch=(), max_side=max_side, data=data, layout=layout, special=special
    )


@st.composite
def gemm_problems(
    draw: st.DrawFn,
    *,
    storage: str = "any",
    max_side: int = MAX_SIDE,
    max_work: int = MAX_WORK,
    data: Sequence[str] = tuple(DATA),
    alpha: st.SearchStrategy[float] = ALPHAS,
    beta: st.SearchStrategy[float] = BETAS,
    zero_strides: bool = False,
    overlap: bool = False,
    special: bool = False,
) -> GemmProblem:
    """Return a strategy for calls of sgemm, ``alpha op(A) op(B) + beta C``.

    They shrink to small plain matrices of ones with alpha = 1 and beta = 0. Memory around A and B
    holds NaN, and so does C where beta is 0: what reads either is found.

    Parameters
    ----------
    storage : {"any", "F", "C"}, optional
        "any" for NumPy views of any strides, for functions like SciPy's ``sgemm``. "F" and "C" for
        BLAS storage by columns or by rows, with leading dimensions and offsets; there C is always
        given.
    max_side : int, optional
        The largest of m, n and k.
    max_work : int, optional
        The most multiply-adds, m n k.
    data : sequence of str, optional
        The families of elements, out of `clgemm.testing.DATA`. ``clgemm.testing.EXACT`` for those
        whose products sum exactly in float32.
    alpha, beta : strategy of float, optional
    zero_strides : bool, optional
        Whether A and B may be views that repeat one slice. Only if `storage` is "any".
    overlap : bool, optional
        Whether A, B and C may share memory. Only if `storage` is "any".
    special : bool, optional
        Whether NaN and infinities may be among the elements of A, B and C.

    Returns
    -------
    strategy of GemmProblem

    Raises
    ------
    ValueError
        If `storage` is none of the three.

    Examples
    --------
    >>> @given(gemm_problems(storage="F"))
    ... def test_my_sgemm(problem):
    ...     p = problem.blas
    ...     my_sgemm(p.trans_a, p.trans_b, p.m, p.n, p.k, p.alpha, p.a, p.lda, ...)
    ...     problem.check(problem.c.view)
    """
    if storage not in ("any", "F", "C"):
        raise ValueError(f"storage={storage!r} is none of 'any', 'F' and 'C'")
    order = "" if storage == "any" else storage
    m, n = draw(sides(max_side)), draw(sides(max_side))
    k = draw(sides(min(max_side, max_work // max(1, m * n))))
    by, on = draw(alpha), draw(beta)
    flags = [0, 1] if order else [0, 1, 2]
    trans_a, trans_b = draw(st.sampled_from(flags)), draw(st.sampled_from(flags))
    overwrite = 1 if order else draw(st.sampled_from([0, 1]))
    shape_a, shape_b = ((k, m) if trans_a else (m, k)), ((n, k) if trans_b else (k, n))
    shared = bool(overlap and not order and draw(st.booleans()))
    if shared:
        (a, b, c), name = _windows(draw, (shape_a, shape_b, (m, n)), data, special)
        names = name, name
    else:

        def lying(zero: bool = False) -> ArrayLayout:
            if not order:
                return draw(layouts(zero=zero))
            plain = draw(layouts(max_step=1, negative=False))
            return replace(plain, axes=(1, 0) if order == "F" else (0, 1))

        values_a, name_a = _values(draw, shape_a, data, special)
        values_b, name_b = _values(draw, shape_b, data, special)
        names = name_a, name_b
        a, b = (lying(zero_strides).place(values) for values in (values_a, values_b))
        c = None
        if order or draw(st.booleans()):
            values_c = np.full((m, n), np.nan, np.float32)
            if on:
                values_c = _values(draw, (m, n), data, special)[0]
            c = lying().place(values_c, GUARD_OF_C)
    return GemmProblem(by, on, a, b, c, trans_a, trans_b, overwrite, order, names, shared)


def _windows(
    draw: st.DrawFn, shapes: Sequence[tuple[int, int]], data: Sequence[str], special: bool
) -> tuple[list[Operand], str]:
    """Return windows of one array for A, B and C, and the family of its elements."""
    sides_of_base = [max(shape[axis] for shape in shapes) + 3 for axis in (0, 1)]
    base, name = _values(draw, (sides_of_base[0], sides_of_base[1]), data, special)
    views = []
    for rows, columns in shapes:
        i = draw(st.integers(0, sides_of_base[0] - rows))
        j = draw(st.integers(0, sides_of_base[1] - columns))
        views.append(base[i : i + rows, j : j + columns])
    return [Operand.of(base, view) for view in views], name
