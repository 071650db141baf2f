"""NumPy's rules of `matmul`, `dot`, `inner` and `tensordot`: which product a call asks for.

The public functions and accelerated NumPy read calls here. A call becomes one product of batches of
matrices. NumPy itself answers calls that are wrong, and those that no device computes.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from clgemm.core.host import may_have_gpu
from clgemm.core.problem import broadcast_batch, merged
from clgemm.core.settings import chosen_precision
from clgemm.runtime import kept_memory
from clgemm.runtime.operands import (
    AnyArray,
    float32_operand,
    is_device,
    layout_of,
    overlap,
    rearranged,
    transposed,
    updatable,
    usable_in_place,
    view,
)

FLOAT32 = np.dtype(np.float32)
FLOAT64, COMPLEX64, COMPLEX128 = map(np.dtype, "dFD")
# What NumPy multiplies by plain loops, and devices exactly: integers, booleans and float16.
EXACT = frozenset(map(np.dtype, "?bBhHiIlLqQe"))
EXACT_KIND = "exact"  # the first word of the kind of products of other dtypes than float32
# What else is an operand of a product in another dtype than float32.
OPERANDS = {
    FLOAT64: (FLOAT32, FLOAT64),
    COMPLEX64: (FLOAT32, COMPLEX64),
    COMPLEX128: (FLOAT32, FLOAT64, COMPLEX64, COMPLEX128),
}
# The elements of A times those of B below which NumPy computes all of these: 64 x 64 by 64 x 64;
# and the same by dtype. NumPy's BLAS has the last ones, so they take a GPU, and 1024 x 1024.
LEAST_SIZE = 2**24
LEAST_SIZES = dict.fromkeys(EXACT, LEAST_SIZE)
if may_have_gpu():
    LEAST_SIZES |= {FLOAT64: 2**40, COMPLEX64: 2**38, COMPLEX128: 2**38}
NEVER = 2**128
LEAST_WORK = 2**17  # multiply-adds, the same once these are known
# Another subclass may define products of its own.
ARRAYS = np.ndarray, np.memmap
MOST_AXES = 32  # of two operands of `dot`: NumPy refuses results with many
KEYWORDS = {"axes", "casting", "dtype", "order", "out", "subok"}  # of matmul

Axes = tuple[int, int]
Sizes = tuple[int, int, int, int]  # m, n, k and the number of matrices


class _Numpys:
    """NumPy's own functions, whether or not NumPy is accelerated."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Take NumPy's functions as a program finds them."""
        self.matmul: Callable[..., Any] = np.matmul
        self.dot: Callable[..., Any] = np.dot
        self.inner: Callable[..., Any] = np.inner


numpys = _Numpys()


class Batches(NamedTuple):
    """The operands of a product as batches of matrices, and where the results go.

    Attributes
    ----------
    rows, columns : array, shapes (..., m, k) and (..., k, n)
        The operands. Their batches broadcast.
    shape : tuple of int
        Of the result.
    axes : tuple of int or None
        The axes of the result in the order of the batch, rows and columns; None where a vector has
        none.
    """

    rows: AnyArray
    columns: AnyArray
    shape: tuple[int, ...]
    axes: tuple[int | None, ...]


class Request(NamedTuple):
    """A valid product of host arrays that a device may compute.

    Attributes
    ----------
    name : str
        NumPy's function, and the dtypes if they are not float32.
    a, b, out : ndarray
        The arguments; `out` may be None.
    dtype : dtype
        In which NumPy multiplies.
    sizes : tuple of int
        m, n, k and the number of matrices.
    kind : str
        How NumPy computes it: see `matmul_kind` and `dot_kind`; or `EXACT_KIND` and the dtype.
    shape, axes : tuple
        Of the result, as in `Batches`.
    operands : callable
        Returns the rows and columns of `Batches`; for float32 as arrays that kernels can index. It
        may copy, once.
    order, strides : str, tuple of int or None
        The memory order of a new array for the result, or strides that have the order of its axes.
    reshaped : tuple of int or None
        The shape to give the result in the end, if not `shape`.
    is_mapped : bool
        Whether the result is a `numpy.memmap`, as dot gives it for two of them.
    """

    name: str
    a: Any
    b: Any
    out: Any
    dtype: np.dtype[Any]
    sizes: Sizes
    kind: str
    shape: tuple[int, ...]
    axes: tuple[int | None, ...]
    operands: Callable[[], tuple[Any, Any]]
    order: Literal["C", "F"] = "C"
    strides: tuple[int, ...] | None = None
    reshaped: tuple[int, ...] | None = None
    is_mapped: bool = False

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those of A, B and the result by NumPy's kind and size, if they are not float32."""
        if self.dtype == FLOAT32:
            return ()
        return tuple(x.str[1:] for x in (self.a.dtype, self.b.dtype, self.dtype))

    @property
    def size_bytes(self) -> int:
        """Size of the operands and the result."""
        return int(self.a.nbytes + self.b.nbytes + math.prod(self.shape) * self.dtype.itemsize)

    @property
    def is_direct(self) -> bool:
        """Whether the device may write to `out`, and NumPy again if the device fails."""
        out = self.out
        if out is None or out.dtype != self.dtype:
            return False
        fits = updatable(out) if self.dtype == FLOAT32 else out.flags.forc and out.flags.aligned
        return bool(fits) and not overlap(out, self.a) and not overlap(out, self.b)

    def compute(self) -> Any:
        """Compute the product on the chosen device, and return what NumPy returns."""
        return self.delivered(self.computed())

    def computed(self) -> Any:
        """Compute the product into `out`, if that is possible, or into a new array; return that.

        Raises
        ------
        RejectedError
            If the device does not compute such products.
        """
        rows, columns = self.operands()
        result = self.out if self.is_direct else self._allocated()
        if self.dtype == FLOAT32:
            _multiply(rows, columns, self.matrices(result))
        else:
            from clgemm.transfer.multiply import multiply_exactly

            multiply_exactly(rows, columns, self.matrices(result))
        return result

    def delivered(self, result: Any) -> Any:
        """Return a computed result as NumPy does, in `out` if there is one."""
        if self.out is not None:
            if result is not self.out:
                np.copyto(self.out, result, casting="unsafe")  # its casting was checked
            return self.out
        if self.reshaped is not None:
            return result.reshape(self.reshaped)
        if not result.ndim:
            return result[()]  # others are not indexed: a view would not own its memory
        return result.view(np.memmap) if self.is_mapped else result

    def matrices(self, result: Any) -> Any:
        """Return a view of the result, or of an array of its shape, as a batch of matrices."""
        return rearranged(result, self.axes)

    def _allocated(self) -> Any:
        """Return a new array for the result, with NumPy's memory layout."""
        if self.strides is not None:
            one = np.empty(1, self.dtype)
            like = np.lib.stride_tricks.as_strided(one, self.shape, self.strides)
            return np.empty_like(like)  # takes the order of the strides and reads no element
        return kept_memory.empty_result(self.shape, self.order, self.dtype)


def is_float32(x: Any) -> bool:
    """Return whether an array is of float32; an array that was pickled has a dtype of its own."""
    return x.dtype is FLOAT32 or x.dtype == FLOAT32


def of_matmul(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Request | None:
    """Return the product that ``numpy.matmul(*arguments, **keywords)`` asks for.

    None if NumPy must answer: it raises an error, or no device computes such products.
    """
    if not 2 <= len(arguments) <= 3 or (len(arguments) == 3 and "out" in keywords):
        return None
    a, b = arguments[:2]
    out: Any = arguments[2] if len(arguments) == 3 else keywords.get("out")
    if len(arguments) == 3 and type(out) is tuple:  # NumPy takes one as a keyword only
        return None
    if keywords.keys() <= {"out"} and _are_plain(a, b, out):
        (m, k), n = a.shape, b.shape[1]
        kind = matmul_kind(a, b, 1)
        sizes = m, n, k, 1
        return Request("matmul", a, b, out, FLOAT32, sizes, kind, (m, n), (0, 1), lambda: (a, b))
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if keywords.keys() - KEYWORDS or type(a) not in ARRAYS or type(b) not in ARRAYS:
        return None
    casting = keywords.get("casting", "same_kind")
    dtype = _loop(a, b, keywords.get("dtype"), casting)
    if dtype is None or not _fits(out, dtype, casting):
        return None
    a, b = np.asarray(a), np.asarray(b)
    axes: Axes | None = None
    if keywords.get("axes") is not None:
        chosen = _axes(keywords["axes"], a, b)
        if chosen is None:
            return None
        a, b = (np.moveaxis(x, pair, (-2, -1)) for x, pair in zip((a, b), chosen, strict=False))
        axes = chosen[2]
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        return None
    try:
        rows, columns, shape, places = matmul_batches(a, b)
    except ValueError:
        return None
    batch = [shape[i] for i in places[:-2] if i is not None]
    if axes is not None:
        places = (*(i for i in range(len(shape)) if i not in axes), *axes)
        lengths = dict(zip(places, shape, strict=True))
        shape = tuple(lengths[i] for i in range(len(shape)))
    if out is not None and out.shape != shape:
        return None
    layout = _layout(a, b, rows, columns, len(batch), axes, keywords.get("order", "K"))
    if layout is None:
        return None
    sizes = rows.shape[-2], columns.shape[-1], rows.shape[-1], math.prod(batch)
    kind, operands = matmul_kind(rows, columns, sizes[3]), (rows, columns)
    return _completed(
        Request("matmul", a, b, out, dtype, sizes, kind, shape, places, lambda: operands, *layout)
    )


def of_dot(name: str, a: Any, b: Any, out: Any = None) -> Request | None:
    """Return the product of `numpy.dot`: over the last axis of a and the last but one of b.

    None if NumPy must answer, as for `of_matmul`.

    Parameters
    ----------
    name : str
        The function: arrays of the same shapes make other products by another.
    """
    if type(a) not in ARRAYS or type(b) not in ARRAYS or (dtype := _loop(a, b)) is None:
        return None
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        return None
    if a.ndim + b.ndim > MOST_AXES or _is_scaling(a, b):
        return None
    is_mapped = type(a) is type(b) is np.memmap
    a, b = np.asarray(a), np.asarray(b)
    rows, columns, shape, axes = dot_batches(a, b)
    if out is not None and not (
        _fits(out, dtype, "no")
        and out.shape == shape
        and out.ndim  # NumPy returns a scalar without dimensions, from version 2.5 on
        and out.flags.carray
    ):
        return None
    # All rows of a meet all columns of b, those of a batch as well.
    sizes = math.prod(a.shape[:-1]), math.prod(_without(b.shape, -2)), a.shape[-1], 1
    kind, operands = dot_kind(a, b), (rows, columns)
    made = Request(name, a, b, out, dtype, sizes, kind, shape, axes, lambda: operands)
    return _completed(made._replace(is_mapped=True) if is_mapped else made)


def of_inner(a: Any, b: Any) -> Request | None:
    """Return the product of `numpy.inner`: over the last axes. None as for `of_matmul`."""
    if type(b) in ARRAYS and b.ndim > 1:
        b = transposed(b)
    return of_dot("inner", a, b)


def of_tensordot(a: Any, b: Any, axes: Any) -> Request | None:
    """Return the product of `numpy.tensordot`. None as for `of_matmul`."""
    if type(a) not in ARRAYS or type(b) not in ARRAYS or (dtype := _loop(a, b)) is None:
        return None
    a, b = np.asarray(a), np.asarray(b)
    if _is_scaling(a, b) or (summed := summed_axes(a, b, axes)) is None:
        return None
    parts = tensordot_parts(a, b, summed)
    sizes = (*parts.sizes, 1)
    name, shape = f"tensordot {summed}", sizes[:2]
    made = Request(name, a, b, None, dtype, sizes, "blas", shape, (0, 1), parts.matrices)
    return _completed(made._replace(reshaped=parts.shape))


def _completed(request: Request) -> Request | None:
    """Return a request with the operands, name and kind of its dtype; None if it is too small."""
    if request.dtype == FLOAT32:
        return request._replace(operands=_as_float32(request.operands))
    if math.prod(request.sizes) < max(LEAST_WORK, 1):
        return None
    name, kind = f"{request.name} {''.join(request.dtypes)}", f"{EXACT_KIND} {request.dtype}"
    return request._replace(name=name, kind=kind)


def _as_float32(operands: Callable[[], tuple[Any, Any]]) -> Callable[[], tuple[Any, Any]]:
    """Return a function that returns operands as arrays that kernels can index as float32."""

    @functools.cache
    def converted() -> tuple[Any, Any]:
        rows, columns = operands()
        return float32_operand(rows, "a"), float32_operand(columns, "b")

    return converted


def _are_plain(a: Any, b: Any, out: Any) -> bool:
    """Return whether all are float32 matrices of fitting shapes, as most are; `out` may be None."""
    if not (type(a) is type(b) is np.ndarray and usable_in_place(a) and usable_in_place(b)):
        return False
    if not (a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]):
        return False
    return out is None or bool(
        type(out) is np.ndarray
        and out.dtype is FLOAT32
        and out.shape == (a.shape[0], b.shape[1])
        and out.flags.writeable
    )


def _loop(a: Any, b: Any, dtype: Any = None, casting: Any = "same_kind") -> np.dtype[Any] | None:
    """Return the dtype in which NumPy multiplies two arrays; None if no device does."""
    is_plain = a.dtype is b.dtype is FLOAT32
    if is_plain and dtype is None and casting == "same_kind":
        return FLOAT32
    try:
        found: np.dtype[Any] = np.dtype(
            np.promote_types(a.dtype, b.dtype) if dtype is None else dtype
        )
        if not all(np.can_cast(x.dtype, found, casting) for x in (a, b)):
            return None
    except (TypeError, ValueError):
        return None
    if found == FLOAT32:
        return FLOAT32
    if a.size * b.size < max(LEAST_SIZES.get(found, NEVER), 1):
        return None
    return found if devices_multiply(a.dtype, b.dtype, found) else None


def devices_multiply(a: np.dtype[Any], b: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether devices multiply two dtypes in a third one that is not float32."""
    if dtype not in OPERANDS:
        return EXACT.issuperset((a, b, dtype))
    return all(x in OPERANDS[dtype] or x in EXACT for x in (a, b))


def _fits(out: Any, dtype: np.dtype[Any], casting: Any) -> bool:
    """Return whether NumPy writes results of a dtype to `out`, which may be None."""
    if out is None:
        return True
    return (
        type(out) in ARRAYS
        and bool(out.flags.writeable)
        and bool(np.can_cast(dtype, out.dtype, casting))
    )


def _axes(axes: Any, a: Any, b: Any) -> tuple[Axes, Axes, Axes] | None:
    """Return the axes of rows and columns in a, b and the result; None if NumPy must check them."""
    if not isinstance(axes, list) or len(axes) != 3 or a.ndim < 2 or b.ndim < 2:
        return None
    result_ndim = max(a.ndim, b.ndim)
    for pair, ndim in zip(axes, (a.ndim, b.ndim, result_ndim), strict=True):
        if not isinstance(pair, tuple) or len(pair) != 2:
            return None
        if not all(type(axis) is int and -ndim <= axis < ndim for axis in pair):
            return None
        if pair[0] % ndim == pair[1] % ndim:
            return None
    first, second, third = axes
    return first, second, (third[0] % result_ndim, third[1] % result_ndim)


def _layout(
    a: Any, b: Any, rows: Any, columns: Any, batch: int, axes: Axes | None, order: Any
) -> tuple[Literal["C", "F"], tuple[int, ...] | None] | None:
    """Return the order of matmul's result, and its strides if the order does not tell its layout.

    None if NumPy must check the order.

    Parameters
    ----------
    batch : int
        The number of axes of the batch.
    axes : tuple of int, optional
        Where the result has its rows and columns, if not at the end.
    """
    if not isinstance(order, str) or order not in "KACF" or len(order) != 1:
        return None
    if order == "A":
        order = "F" if a.flags.fnc and b.flags.fnc else "C"
    known: Literal["C", "F"] = "F" if order == "F" else "C"
    if axes is not None:
        # NumPy's result is in memory a batch of matrices, wherever its rows and columns are.
        rest, places = iter(range(batch)), {axes[0]: batch, axes[1]: batch + 1}
        ranks = [places[i] if i in places else next(rest) for i in range(batch + 2)]
        return known, tuple(rank + 1 if order == "F" else batch + 2 - rank for rank in ranks)
    if order == "K" and batch > 1 and not (a.flags.carray and b.flags.carray):
        # NumPy's layout of the batch depends on the operands: try it on matrices of one element.
        outer = numpys.matmul(rows[..., :1, :0], columns[..., :0, :1]).strides[:batch]
        return known, (*outer, *(0,) * ((a.ndim > 1) + (b.ndim > 1)))
    return known, None


def _is_scaling(x: AnyArray, y: AnyArray) -> bool:
    """Return whether NumPy's dot scales by a single number, which may make negative zeros."""
    return bool(x.size == 1 or y.size == 1)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return a shape without one axis. The only axis of a vector is also its last but one."""
    axis = max(len(shape) + axis, 0)
    return shape[:axis] + shape[axis + 1 :]


def _as_batches(x: AnyArray, y: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return both operands as batches of matrices: a vector x is a row, a vector y a column."""
    return (
        x if x.ndim > 1 else rearranged(x, (None, 0)),
        y if y.ndim > 1 else rearranged(y, (0, None)),
    )


def matmul_batches(x: AnyArray, y: AnyArray) -> Batches:
    """Return the operands of `numpy.matmul`, neither a scalar, as batches of matrices.

    Raises
    ------
    ValueError
        If the batches do not broadcast.
    """
    rows, columns = _as_batches(x, y)
    batch = broadcast_batch(rows.shape[:-2], columns.shape[:-2])
    shape = batch + rows.shape[-2:-1] * (x.ndim > 1) + columns.shape[-1:] * (y.ndim > 1)
    row_axis = len(batch) if x.ndim > 1 else None
    column_axis = len(shape) - 1 if y.ndim > 1 else None
    return Batches(rows, columns, shape, (*range(len(batch)), row_axis, column_axis))


def dot_batches(x: AnyArray, y: AnyArray) -> Batches:
    """Return the operands of `numpy.dot`, neither a scalar, as batches of matrices.

    x is a batch I of m x k matrices, y a batch J of k x n. The axes of the result are I, m, J, n:
    it is a batch I x J of m x n matrices.
    """
    shape = x.shape[:-1] + _without(y.shape, -2)
    batch_x, batch_y = max(x.ndim - 2, 0), max(y.ndim - 2, 0)
    rows, columns = _as_batches(x, y)
    rows = rearranged(rows, [*range(batch_x), *[None] * batch_y, batch_x, batch_x + 1])
    first_y = x.ndim - 1
    batch = (*range(batch_x), *range(first_y, first_y + batch_y))
    row_axis = batch_x if x.ndim > 1 else None
    column_axis = len(shape) - 1 if y.ndim > 1 else None
    return Batches(rows, columns, shape, (*batch, row_axis, column_axis))


class TensordotParts(NamedTuple):
    """The operands of `numpy.tensordot`, and the shape of its result.

    Attributes
    ----------
    free, summed : pair of lists of int
        The axes of a and of b that the result has, and those that are summed over.
    """

    a: AnyArray
    b: AnyArray
    free: tuple[list[int], list[int]]
    summed: tuple[list[int], list[int]]
    shape: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, n and k."""
        (free_a, free_b), (summed_a, _) = self.free, self.summed
        pairs = (self.a, free_a), (self.b, free_b), (self.a, summed_a)
        m, n, k = (math.prod(x.shape[i] for i in axes) for x, axes in pairs)
        return m, n, k

    def matrices(self) -> tuple[AnyArray, AnyArray]:
        """Return both operands as matrices, views if possible."""
        (free_a, free_b), (summed_a, summed_b) = self.free, self.summed
        rows = rearranged(self.a, [*free_a, *summed_a])
        columns = rearranged(self.b, [*summed_b, *free_b])
        return _as_matrix_of(rows, len(free_a)), _as_matrix_of(columns, len(summed_b))


def tensordot_parts(
    a: AnyArray, b: AnyArray, summed: tuple[list[int], list[int]]
) -> TensordotParts:
    """Return the operands of `numpy.tensordot` over valid axes."""
    free_a, free_b = (
        [i for i in range(x.ndim) if i not in axes] for x, axes in zip((a, b), summed, strict=True)
    )
    shape = (*(a.shape[i] for i in free_a), *(b.shape[i] for i in free_b))
    return TensordotParts(a, b, (free_a, free_b), summed, shape)


def summed_axes(x: AnyArray, y: AnyArray, axes: Any) -> tuple[list[int], list[int]] | None:
    """Return the axes of both operands that `axes` of tensordot means; None if it is wrong.

    Raises
    ------
    IndexError, ValueError
        If the axes are wrong and the operands are device arrays.
    """
    try:
        first, second = axes
    except TypeError:
        count = operator.index(axes)
        first, second = range(x.ndim - count, x.ndim), range(count)
    both = []
    for z, chosen in ((x, first), (y, second)):
        chosen = list(chosen) if np.iterable(chosen) else [chosen]
        both.append([axis + z.ndim if axis < 0 else axis for axis in chosen])
    one, other = both
    exist = all(0 <= i < z.ndim for z, axes_of in ((x, one), (y, other)) for i in axes_of)
    if not exist and is_device(x):
        raise IndexError(f"axes={axes!r} are not all axes of shapes {x.shape} and {y.shape}")
    valid = (
        exist
        and len(one) == len(other)
        and len(set(one)) == len(one)
        and len(set(other)) == len(other)
        and all(x.shape[i] == y.shape[j] for i, j in zip(one, other, strict=True))
    )
    if not valid and is_device(x):
        raise ValueError(f"axes={axes!r} do not pair equal axes of shapes {x.shape} and {y.shape}")
    return (one, other) if valid else None


def _as_matrix_of(x: AnyArray, split: int) -> AnyArray:
    """Return an array as a matrix whose rows are its first `split` axes; a view if possible."""
    shape = math.prod(x.shape[:split]), math.prod(x.shape[split:])
    if not is_device(x):
        return x.reshape(shape)
    strides = layout_of(x).strides
    rows = merged(x.shape[:split], strides[:split])
    columns = merged(x.shape[split:], strides[split:])
    if rows is None or columns is None:
        from clgemm.transfer.multiply import duplicate

        return view(duplicate(x, "C", x.queue), shape, (shape[1], 1))
    return view(x, shape, (rows, columns))


def is_scattered(x: AnyArray) -> bool:
    """Return whether no axis of a matrix has neighbours in memory: NumPy copies it for its BLAS."""
    return x.ndim > 1 and 1 not in x.shape[-2:] and x.itemsize not in x.strides[-2:]


def matmul_kind(rows: AnyArray, columns: AnyArray, matrices: int) -> str:
    """Return how `numpy.matmul` computes a batch of float32 products.

    ``"loop"``: without its BLAS, for a column times a row, or a vector times a scattered matrix.
    ``"copied"``: scattered operands are copied first. ``"batch"``: one matrix after the other.
    """
    m, n, k = rows.shape[-2], columns.shape[-1], rows.shape[-1]
    are_scattered = is_scattered(rows) or is_scattered(columns)
    if k == 1 < min(m, n) or (1 in (m, n) and are_scattered):
        return "loop"
    if are_scattered:
        return "copied"
    return "batch" if matrices > 1 else "blas"


def dot_kind(x: AnyArray, y: AnyArray) -> str:
    """Return how `numpy.dot` computes a product; ``"elements"``: one sum after the other."""
    if max(x.ndim, y.ndim) > 2:
        return "elements"
    return "copied" if is_scattered(x) or is_scattered(y) else "blas"


def _multiply(x: Any, y: Any, c: Any) -> None:
    """Multiply batches of matrices into `c`; a product that is repeated is not planned again."""
    from clgemm.transfer.call_cache import remember, repeat
    from clgemm.transfer.multiply import multiply

    precision = chosen_precision()
    made, signature = repeat("host product", None, precision, 1.0, x, y, 0.0, c)
    if made is None:
        remember(signature, multiply(1.0, x, y, 0.0, c, precision=precision), c.shape)
