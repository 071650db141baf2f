"""NumPy's products `dot`, `inner`, `matmul` and `tensordot`, with NumPy's rules and errors.

Products of float32 operands run on the faster side, and those of integers, booleans and float16 by
`clgemm.exact`. All other calls go to NumPy's own function: other dtypes, subclasses of ndarray,
small products, and calls that are wrong.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from clgemm import exact
from clgemm.core.layout import broadcast_batch
from clgemm.core.nesting import NestedCallError, RejectedError
from clgemm.core.precision import chosen_precision
from clgemm.runtime.contraction import (
    as_batches,
    as_matrix_of,
    as_products,
    batched,
    contracted,
    dot_kind,
    fits_dot,
    is_scaling,
    matmul_kind,
    require_out,
    summed_axes,
    unwrapped,
    without,
)
from clgemm.runtime.operands import (
    AnyArray,
    allocated,
    common_queue,
    float32_operand,
    is_device,
    is_plain_device,
    rearranged,
    transposed,
    updatable,
)
from clgemm.side import decision
from clgemm.side.decision import FLOAT32, Entry

if TYPE_CHECKING:
    import pyopencl as cl

    from clgemm.runtime.signature import Signature

__all__ = ["dot", "inner", "matmul", "tensordot"]

_is_numpys_dot, _is_numpys_matmul = (decision.quick_test(x, int) for x in ("dot", "matmul"))
F = TypeVar("F", bound=Callable[..., Any])


def _numpys_if_nested(numpys: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator: if a nested call cannot use the device, NumPy multiplies.

    With device arrays, such a call raises `NestedCallError`.
    """

    def decorate(ours: F) -> F:
        def product(*arguments: Any) -> Any:
            try:
                return ours(*arguments)
            except NestedCallError:
                if any(map(is_device, arguments)):
                    raise
                return numpys(*arguments)

        return cast("F", product)

    return decorate


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Multiply as `numpy.dot` does: sum over the last axis of `a` and the last but one of `b`.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., k) and (..., k, n) or (k,)
        float32 arrays are multiplied on the device if that is faster. So are integers, booleans
        and float16 in host memory, bit for bit as NumPy's, by CPU devices. NumPy multiplies all
        other dtypes.
    out : array, shape ``a.shape[:-1] + b.shape[:-2] + b.shape[-1:]``, optional
        C-contiguous and of the result's dtype. It may overlap `a` and `b`.

    Returns
    -------
    numpy.ndarray, scalar or pyopencl.array.Array
        As from NumPy. Device arrays give a device array, enqueued and not waited for.

    Raises
    ------
    ValueError
        If the shapes disagree, or `out` does not fit.
    TypeError
        If host and device operands are mixed, or a device array is not float32.
    """
    if _are_plain(a, b, out):
        if a.dtype is not FLOAT32 or b.dtype is not FLOAT32:
            if a.dtype != FLOAT32 or b.dtype != FLOAT32:
                product = exact.of_dot("dot", a, b, out)
                return _exact(product, lambda: decision.numpys.dot(a, b, out))
        elif not decision.is_ruled():
            if _is_numpys_dot(a, b, out):
                return decision.numpys.dot(a, b, out)
            known = decision.find("dot", a, b, out)
            if known is not None and known.stays():
                return decision.on_host(known, decision.numpys.dot, a, b, out)
    return _dot(a, b, out)


@_numpys_if_nested(np.dot)
def _dot(a: Any, b: Any, out: Any) -> Any:
    arrays = _taken(a, b, out)
    if arrays is None or not _aligned(arrays.x, arrays.y):
        return np.dot(a, b, out=out)
    x, y, queue = arrays
    shape = x.shape[:-1] + without(y.shape, -2)

    def on_device() -> Any:
        precision, made, signature = _repeated("dot", a, b, out)
        if made is not None:
            return made
        made, bound = contracted(x, y, shape, out, queue, precision)
        _remember(signature, bound, shape)
        made = unwrapped(made, out)
        return _typed(made, a, b) if out is None else made

    if is_device(x):
        require_out(out, shape)
        return on_device()
    if is_scaling(x, y) or not (out is None or fits_dot(out, shape)):
        return np.dot(a, b, out=out)
    sizes = math.prod(x.shape[:-1]), math.prod(without(y.shape, -2)), x.shape[-1], 1
    return _from_either(
        *("dot", a, b, out, sizes, dot_kind(x, y)),
        lambda: as_products(x, y, shape),
        on_device,
        lambda: decision.numpys.dot(a, b, out),
    )


def inner(a: Any, b: Any, /) -> Any:
    """Multiply as `numpy.inner` does: sum over the last axes of both.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., k) and (..., k)
        As for `dot`.

    Returns
    -------
    numpy.ndarray, scalar or pyopencl.array.Array, shape ``a.shape[:-1] + b.shape[:-1]``

    Raises
    ------
    ValueError
        If the last axes differ.
    TypeError
        As `dot`.
    """
    return _inner(a, b)


@_numpys_if_nested(np.inner)
def _inner(a: Any, b: Any) -> Any:
    arrays = _taken(a, b, None)
    if arrays is None or not _aligned(arrays.x, arrays.y, -1):
        turned = b.swapaxes(-1, -2) if type(b) is np.ndarray and b.ndim > 1 else b
        product = exact.of_dot("inner", a, turned)
        return _exact(product, lambda: decision.numpys.inner(a, b))
    x, y, queue = arrays
    columns = transposed(y) if y.ndim > 1 else y
    shape = x.shape[:-1] + y.shape[:-1]

    def on_device() -> Any:
        return _typed(unwrapped(contracted(x, columns, shape, None, queue)[0], None), a, b)

    if is_device(x):
        return on_device()
    if is_scaling(x, y):
        return np.inner(a, b)
    sizes = math.prod(x.shape[:-1]), math.prod(y.shape[:-1]), x.shape[-1], 1
    return _from_either(
        *("inner", x, columns, None, sizes, dot_kind(x, columns)),
        lambda: as_products(x, columns, shape),
        on_device,
        lambda: decision.numpys.inner(a, b),
    )


def matmul(a: Any, b: Any, /, out: Any = None, **keywords: Any) -> Any:
    """Multiply as `numpy.matmul` does: batches of matrices, broadcast, in one launch.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., m, k) or (k,), (..., k, n) or (k,)
        As for `dot`.
    out : array, shape (..., m, n), optional
        May have any strides, and may overlap `a` and `b`. The result is converted to its dtype as
        by NumPy.
    **keywords
        NumPy's other arguments, such as `dtype`. NumPy makes a product with any of them, unless it
        is one of integers, booleans or float16 with no others than `dtype` and `casting`. Device
        arrays accept none.

    Returns
    -------
    numpy.ndarray, scalar or pyopencl.array.Array
        As from `dot`.

    Raises
    ------
    ValueError
        If the shapes disagree, an operand is a scalar, or `out` does not fit.
    TypeError
        As `dot`, or if device arrays come with other keywords.
    """
    if not keywords:
        if out is not None and is_plain_device(out) and _again(a, b, out):
            return out
        if _are_plain(a, b, out):
            if a.dtype is not FLOAT32 or b.dtype is not FLOAT32:
                if a.dtype != FLOAT32 or b.dtype != FLOAT32:
                    product = exact.of_matmul(a, b, out)
                    return _exact(product, lambda: decision.numpys.matmul(a, b, out))
            elif not decision.is_ruled():
                if _is_numpys_matmul(a, b, out):
                    return decision.numpys.matmul(a, b, out)
                known = decision.find("matmul", a, b, out)
                if known is not None and known.stays():
                    return decision.on_host(known, decision.numpys.matmul, a, b, out)
    return _matmul(a, b, out, keywords)


@_numpys_if_nested(lambda a, b, out, keywords: np.matmul(a, b, out=out, **keywords))
def _matmul(a: Any, b: Any, out: Any, keywords: dict[str, Any]) -> Any:
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if keywords and (is_device(a) or is_device(b) or is_device(target)):
        raise TypeError(f"matmul of device arrays does not accept {', '.join(sorted(keywords))}")
    arrays = None if keywords else _taken(a, b, target)
    if arrays is None or not _aligned(arrays.x, arrays.y):
        product = exact.of_matmul(a, b, out, keywords)
        return _exact(product, lambda: decision.numpys.matmul(a, b, out=out, **keywords))
    x, y, queue = arrays
    try:
        rows, columns, batch, shape, axes = batched(x, y)
    except ValueError:
        if is_device(x):
            raise
        return np.matmul(a, b, out=out)

    def on_device() -> Any:
        precision, made, signature = _repeated("matmul", a, b, target)
        if made is not None:
            return unwrapped(made, out)
        direct = target is not None and updatable(target)
        result = target if direct else allocated(x, shape, "C", queue)
        bound = _multiply(rows, columns, rearranged(result, axes), queue, precision)
        if direct or target is None:
            _remember(signature, bound, shape)
            return unwrapped(result, out)
        np.copyto(target, result, casting="same_kind")
        return target

    if is_device(x):
        require_out(target, shape)
        return on_device()
    usable = target is None or (
        type(target) in (np.ndarray, np.memmap) and target.shape == shape
        and target.flags.writeable and np.can_cast(np.float32, target.dtype, "same_kind")
    )  # fmt: skip
    if not usable:
        return np.matmul(a, b, out=out)
    matrices = math.prod(batch)
    sizes = rows.shape[-2], columns.shape[-1], rows.shape[-1], matrices
    return _from_either(
        *("matmul", x, y, target, sizes, matmul_kind(rows, columns, matrices)),
        lambda: (rows, columns, (*batch, *sizes[:2])),
        on_device,
        lambda: decision.numpys.matmul(a, b, out=out),
    )


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Multiply as `numpy.tensordot` does: sum over the given axes.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array
        As for `dot`.
    axes : int or pair of sequences of int, optional
        The number of axes: the last ones of `a`, the first ones of `b`. Or the axes of `a` and
        those of `b`, in the same order.

    Returns
    -------
    numpy.ndarray or pyopencl.array.Array
        Its axes are the remaining axes of `a`, then those of `b`.

    Raises
    ------
    ValueError
        If the summed axes differ in number or length.
    IndexError
        If there is no such axis.
    TypeError
        As `dot`.
    """
    return _tensordot(a, b, axes)


@_numpys_if_nested(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any) -> Any:
    arrays = _taken(a, b, None)
    summed = None if arrays is None else summed_axes(arrays.x, arrays.y, axes)
    if arrays is None or summed is None:
        if arrays is None and (turned := _turned(a, b, axes)) is not None:
            rows, columns, shape = turned
            product = exact.of_dot("tensordot", rows, columns)
            made = _exact(product, lambda: decision.numpys.dot(rows, columns))
            return made.reshape(shape)
        return np.tensordot(a, b, axes)
    x, y, queue = arrays
    free_x = [axis for axis in range(x.ndim) if axis not in summed[0]]
    free_y = [axis for axis in range(y.ndim) if axis not in summed[1]]
    shape = tuple(x.shape[axis] for axis in free_x) + tuple(y.shape[axis] for axis in free_y)
    m, n = (math.prod(z.shape[i] for i in free) for z, free in ((x, free_x), (y, free_y)))
    k = math.prod(x.shape[axis] for axis in summed[0])

    def as_matrices() -> tuple[AnyArray, AnyArray, tuple[int, ...]]:
        rows = as_matrix_of(rearranged(x, [*free_x, *summed[0]]), len(free_x))
        return rows, as_matrix_of(rearranged(y, [*summed[1], *free_y]), len(summed[1])), (m, n)

    def on_device() -> Any:
        rows, columns, _ = as_matrices()
        result = allocated(x, (m, n), "C", queue)
        _multiply(rows, columns, result, queue, None)
        return result.reshape(shape)

    if is_device(x):
        return on_device()
    if is_scaling(x, y):
        return np.tensordot(a, b, axes)
    return _from_either(
        *(f"tensordot {summed}", x, y, None, (m, n, k, 1), "blas"),
        as_matrices,
        on_device,
        lambda: np.tensordot(a, b, axes),
    )


def _turned(a: Any, b: Any, axes: Any) -> tuple[Any, Any, tuple[int, ...]] | None:
    """Return tensordot's operands as matrices, as NumPy does, and the shape of its result.

    None if NumPy is to make the product.
    """
    if not exact.may_take(a, b) or (summed := summed_axes(a, b, axes)) is None:
        return None
    free = [[i for i in range(x.ndim) if i not in s] for x, s in zip((a, b), summed, strict=True)]
    k = math.prod(a.shape[i] for i in summed[0])
    rows = a.transpose([*free[0], *summed[0]]).reshape(-1, k)
    columns = b.transpose([*summed[1], *free[1]]).reshape(k, -1)
    shape = [x.shape[i] for x, axes_left in zip((a, b), free, strict=True) for i in axes_left]
    return rows, columns, tuple(shape)


def entry_of(name: str, a: Any, b: Any) -> Entry | str:
    """Return what is known of matmul, dot or inner of two float32 arrays, for `explain`.

    A text says why the product is NumPy's in any case.
    """
    x, y = np.asarray(a), np.asarray(b)
    if not _aligned(x, y, -1 if name == "inner" else -2):
        return "the shapes do not fit"
    if name == "inner" and y.ndim > 1:
        y = transposed(y)
    rows, columns = as_batches(x, y)
    if name == "matmul":
        try:
            batch = broadcast_batch(rows.shape[:-2], columns.shape[:-2])
        except ValueError:
            return "the shapes do not fit"
        sizes = rows.shape[-2], columns.shape[-1], rows.shape[-1], math.prod(batch)
        kind, made = matmul_kind(rows, columns, sizes[3]), (rows, columns, (*batch, *sizes[:2]))
    else:
        shape = x.shape[:-1] + without(y.shape, -2)
        sizes = math.prod(x.shape[:-1]), math.prod(without(y.shape, -2)), x.shape[-1], 1
        kind, made = dot_kind(x, y), as_products(x, y, shape)
    if 0 in sizes or decision.is_negligible(sizes, kind):
        return "it takes NumPy less than any device's call"
    return decision.describe(name, x, y, None, sizes, kind, lambda: made)


class _Operands(NamedTuple):
    """Both operands as float32 arrays on one side, and the queue of device operands."""

    x: AnyArray
    y: AnyArray
    queue: cl.CommandQueue | None


def _exact(product: exact.Product | None, on_host: Callable[[], Any]) -> Any:
    """Return a product of other dtypes from the side that is decided; NumPy's if it is None."""
    if product is None:
        return on_host()
    return _from_either(*product.described, product.on_device, on_host, product.dtypes)


def _from_either(
    name: str,
    a: Any,
    b: Any,
    out: Any,
    sizes: decision.Sizes,
    kind: str,
    operands: Callable[[], tuple[Any, Any, tuple[int, ...]]],
    on_device: Callable[[], Any],
    on_host: Callable[[], Any],
    dtypes: tuple[str, ...] = (),
) -> Any:
    """Return a product of host arrays, from the side that is decided for it.

    Parameters
    ----------
    name, a, b, out, sizes, kind, operands, dtypes : object
        As for `clgemm.side.decision.describe`.
    """
    goes = decision.ruled(math.prod(sizes))
    if goes is not None:
        if goes:
            with contextlib.suppress(RejectedError):
                return on_device()
        return on_host()
    if decision.is_negligible(sizes, kind):
        if 0 not in sizes:
            decision.note_small(name, a, b, out)
        return on_host()
    entry = decision.describe(name, a, b, out, sizes, kind, operands, dtypes)
    if entry.goes_to_device():
        made = decision.on_device(entry, on_device)
        if made is not None:
            return made[0]
    return decision.on_host(entry, on_host)


def _typed(made: Any, a: Any, b: Any) -> Any:
    """Return a result of the type that NumPy's dot and inner give it."""
    is_mapped = type(a) is type(b) is np.memmap and type(made) is np.ndarray
    return made.view(np.memmap) if is_mapped else made


def _are_plain(a: Any, b: Any, out: Any) -> bool:
    """Tell whether all are NumPy's own arrays; `out` may be None."""
    array = np.ndarray
    return type(a) is array and type(b) is array and (out is None or type(out) is array)


def _again(a: Any, b: Any, out: Any) -> bool:
    """Make a product of the same device arrays as before; False if it is another one."""
    from clgemm.runtime.call_cache import again

    return again("matmul", a, b, out)


def _multiply(x: AnyArray, y: AnyArray, c: AnyArray, queue: Any, precision: str | None) -> Any:
    from clgemm.runtime.launch import multiply

    return multiply(1.0, x, y, 0.0, c, queue=queue, precision=precision)


def _remember(signature: Signature | None, bound: Any, shape: tuple[int, ...]) -> None:
    from clgemm.runtime.call_cache import remember

    remember(signature, bound, shape)


def _repeated(
    function: str, a: Any, b: Any, out: Any
) -> tuple[str | None, AnyArray | None, Signature | None]:
    """Return a call's precision, its result if the call cache makes it, and its signature.

    All are None if the precision's setting is wrong: `multiply` raises that error.
    """
    from clgemm.runtime.call_cache import repeat

    try:
        precision = chosen_precision()
    except ValueError:
        return None, None, None
    return precision, *repeat(function, None, precision, 1.0, a, b, 0.0, out)


def _taken(a: Any, b: Any, out: Any) -> _Operands | None:
    """Return the operands as float32 arrays; None if NumPy must make the product."""
    operands = {"a": a, "b": b} | ({} if out is None else {"out": out})
    if any(is_device(x) for x in operands.values()):
        queue = common_queue(operands, None)
        return _Operands(float32_operand(a, "a"), float32_operand(b, "b"), queue)
    # Subclasses may redefine products. np.memmap does not.
    if all(type(x) in (np.ndarray, np.memmap) and x.dtype == np.float32 for x in (a, b)):
        x, y = (float32_operand(np.asarray(z), name) for z, name in ((a, "a"), (b, "b")))
        return _Operands(x, y, None)
    return None


def _aligned(x: AnyArray, y: AnyArray, axis: int = -2) -> bool:
    """Tell whether the last axis of x and the given axis of y have the same length.

    The only axis of a vector is also its last but one.

    Raises
    ------
    ValueError
        If they differ and the operands are device arrays.
    """
    if x.ndim and y.ndim and x.shape[-1] == y.shape[axis if y.ndim > 1 else 0]:
        return True
    if is_device(x):
        place = {-1: "last", -2: "last but one"}[axis]
        raise ValueError(
            f"shapes {x.shape} and {y.shape} are not aligned: the last axis of the first and the "
            f"{place} of the second are summed over"
        )
    return False
