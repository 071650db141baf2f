"""NumPy's products `dot`, `inner`, `matmul` and `tensordot`, with NumPy's rules and errors.

Host arrays go to the faster side, and device arrays stay where they are. `clgemm.numpy_rules` reads
the calls. Those that it leaves go to NumPy's own functions: other dtypes, subclasses of ndarray,
and calls that are wrong.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from clgemm.core.settings import Precision, chosen_precision, goes_by_rule, is_ruled
from clgemm.core.settings import precision as in_precision
from clgemm.core.threads import NestedCallError, RejectedError
from clgemm.numpy_rules import (
    FLOAT32,
    Batches,
    Request,
    devices_multiply,
    dot_batches,
    matmul_batches,
    numpys,
    of_dot,
    of_inner,
    of_matmul,
    of_tensordot,
    summed_axes,
    tensordot_parts,
)
from clgemm.runtime.operands import (
    AnyArray,
    allocated,
    common_queue,
    float32_operand,
    for_queue,
    is_device,
    is_plain_device,
    rearranged,
    require_out,
    require_queue,
    transposed,
)
from clgemm.side import decision
from clgemm.side.decision import Entry

if TYPE_CHECKING:
    import pyopencl as cl

ARRAY = np.ndarray
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


def under(
    precision: str | None,
    queue: cl.CommandQueue | None,
    product: Callable[..., Any],
    *arguments: Any,
    out: Any = None,
    **keywords: Any,
) -> Any:
    """Compute a product in a precision, and on a queue, or of host arrays on its device.

    Parameters
    ----------
    precision, queue : optional
        None for what is chosen otherwise.
    product : callable
        Takes the other arguments, and `out` unless that is None. A sequence may hold device arrays.

    Raises
    ------
    TypeError
        If `queue` is no command queue.
    ValueError
        If there is no such precision, or device arrays belong to another context than the queue.
    """
    if isinstance(out, tuple) and len(out) == 1:  # as a ufunc takes it
        (out,) = out
    given = {} if out is None else {"out": out}
    if precision is None and queue is None:
        return product(*arguments, **given, **keywords)
    with contextlib.ExitStack() as stack:
        if precision is not None:
            stack.enter_context(in_precision(cast("Precision", precision)))
        if queue is None:
            return product(*arguments, **given, **keywords)
        require_queue(queue)
        if (placed := for_queue(queue, arguments, given)) is not None:
            arguments, given = placed
        else:
            from clgemm.hardware.choice import device

            stack.enter_context(device(queue))
        result = product(*arguments, **given, **keywords)
    return result if out is None else out


def dot(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Multiply as `numpy.dot` does: sum over the last axis of `a` and the last but one of `b`.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., k) and (..., k, n) or (k,)
        float32 arrays are multiplied on the device if that is faster. So are integers, booleans
        and float16, bit for bit as by NumPy, and float64 and complex numbers by GPUs. NumPy
        multiplies all other dtypes. Device arrays may have any of these dtypes.
    out : array, shape ``a.shape[:-1] + b.shape[:-2] + b.shape[-1:]``, optional
        C-contiguous and of the result's dtype. It may overlap `a` and `b`.
    precision : {"strict", "float32", "fast"}, optional
        How float32 is multiplied, as in `clgemm.precision`, which is the default. NumPy's side is
        as accurate as ``"strict"``.
    queue : pyopencl.CommandQueue, optional
        Where products of device arrays are enqueued, in place of the arrays' own; of host arrays,
        that of the device which multiplies if that is faster.

    Returns
    -------
    numpy.ndarray, scalar or pyopencl.array.Array
        As from NumPy. Device arrays give a device array, enqueued and not waited for.

    Raises
    ------
    ValueError
        If the shapes disagree, or `out` does not fit.
    TypeError
        If host and device operands are mixed, or devices do not multiply the dtypes of device
        arrays.
    """
    if precision is not None or queue is not None:
        return under(precision, queue, dot, a, b, out=out)
    is_plain = type(a) is ARRAY and type(b) is ARRAY and (out is None or type(out) is ARRAY)
    if is_plain and a.dtype is FLOAT32 and b.dtype is FLOAT32 and not is_ruled():
        if _is_numpys_dot(a, b, out):
            return numpys.dot(a, b, out)
        known = decision.find("dot", a, b, out)
        if known is not None and not known.goes_to_device():
            return decision.on_host(known, numpys.dot, a, b, out)
    return _dot(a, b, out)


@_numpys_if_nested(np.dot)
def _dot(a: Any, b: Any, out: Any) -> Any:
    if is_device(a) or is_device(b) or is_device(out):
        return _on_queue("dot", dot_batches, a, b, out)
    request = of_dot("dot", a, b, out)
    if request is None:
        return np.dot(a, b, out=out)
    return from_either(request, lambda: numpys.dot(a, b, out))


def inner(
    a: Any,
    b: Any,
    /,
    *,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Multiply as `numpy.inner` does: sum over the last axes of both.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., k) and (..., k)
    precision, queue : optional
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
    return under(precision, queue, _inner, a, b)


@_numpys_if_nested(np.inner)
def _inner(a: Any, b: Any) -> Any:
    if is_device(a) or is_device(b):
        return _on_queue("inner", dot_batches, a, b, None)
    request = of_inner(a, b)
    return np.inner(a, b) if request is None else from_either(request, lambda: numpys.inner(a, b))


def matmul(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
    **keywords: Any,
) -> Any:
    """Multiply as `numpy.matmul` does: batches of matrices, broadcast, in one launch.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., m, k) or (k,), (..., k, n) or (k,)
        As for `dot`.
    out : array, shape (..., m, n), optional
        May have any strides, and may overlap `a` and `b`. The result is converted to its dtype as
        by NumPy.
    precision, queue : optional
        As for `dot`.
    **keywords
        NumPy's other arguments, such as `dtype` and `axes`. Device arrays accept `dtype` and
        `casting`.

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
    if precision is not None or queue is not None:
        return under(precision, queue, matmul, a, b, out=out, **keywords)
    if not keywords:
        # Written out: between long products nothing of this is in the caches, and each further
        # function takes longer to be read than to be executed.
        is_plain = type(a) is ARRAY and type(b) is ARRAY and (out is None or type(out) is ARRAY)
        if is_plain and a.dtype is FLOAT32 and b.dtype is FLOAT32 and not is_ruled():
            if _is_numpys_matmul(a, b, out):
                return numpys.matmul(a, b, out)
            known = decision.find("matmul", a, b, out)
            if known is not None and not known.goes_to_device():
                return decision.on_host(known, numpys.matmul, a, b, out)
        elif out is not None and is_plain_device(out) and _again(a, b, out):
            return out
    return _matmul(a, b, out, keywords)


@_numpys_if_nested(lambda a, b, out, keywords: np.matmul(a, b, out=out, **keywords))
def _matmul(a: Any, b: Any, out: Any, keywords: dict[str, Any]) -> Any:
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if is_device(a) or is_device(b) or is_device(target):
        if others := ", ".join(sorted(keywords.keys() - {"dtype", "casting"})):
            raise TypeError(f"matmul of device arrays does not accept {others}")
        return _on_queue("matmul", matmul_batches, a, b, target, **keywords)
    request = of_matmul((a, b), {**keywords, "out": target})
    if request is None:
        return np.matmul(a, b, out=out, **keywords)
    return from_either(request, lambda: numpys.matmul(a, b, out=out, **keywords))


def tensordot(
    a: Any,
    b: Any,
    axes: Any = 2,
    *,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Multiply as `numpy.tensordot` does: sum over the given axes.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array
        As for `dot`.
    axes : int or pair of sequences of int, optional
        The number of axes: the last ones of `a`, the first ones of `b`. Or the axes of `a` and
        those of `b`, in the same order.
    precision, queue : optional
        As for `dot`.

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
    return under(precision, queue, _tensordot, a, b, axes)


@_numpys_if_nested(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any) -> Any:
    if is_device(a) or is_device(b):
        x, y, queue, dtype = _device_operands("tensordot", a, b, None)
        summed = summed_axes(x, y, axes)
        assert summed is not None, "wrong axes of device arrays raise an error"
        parts = tensordot_parts(x, y, summed)
        rows, columns = parts.matrices()
        result = allocated(x, parts.sizes[:2], "C", queue, dtype)
        _multiply(rows, columns, result, queue, None)
        return result.reshape(parts.shape)
    request = of_tensordot(a, b, axes)
    if request is None:
        return np.tensordot(a, b, axes)
    return from_either(request, lambda: np.tensordot(a, b, axes))


def entry_of(name: str, a: Any, b: Any) -> Entry | str:
    """Return what is known of matmul, dot or inner of two of NumPy's arrays, for `explain`.

    A text says why the product is NumPy's in any case.
    """
    if name == "matmul":
        request = of_matmul((a, b), {})
    else:
        request = of_inner(a, b) if name == "inner" else of_dot(name, a, b)
    if request is None:
        if not (a.dtype == b.dtype == FLOAT32):
            return f"NumPy computes {a.dtype} and {b.dtype} of these sizes in any case"
        return "NumPy scales by one number, or the shapes do not fit"
    if 0 in request.sizes or decision.is_negligible(request.sizes, request.kind):
        return "it takes NumPy less than any device's call"
    return decision.describe(request)


def from_either(
    request: Request, on_host: Callable[[], Any], deliver: Callable[[Any], Any] | None = None
) -> Any:
    """Return a product of host arrays, from the side that is decided for it.

    Parameters
    ----------
    deliver : callable, optional
        Makes of the device's product what `on_host` returns.
    """

    def compute() -> Any:
        product = request.compute()
        return product if deliver is None else deliver(product)

    goes = goes_by_rule(math.prod(request.sizes))
    if goes is not None:
        if goes:
            with contextlib.suppress(RejectedError):
                return compute()
        return on_host()
    entry = decision.describe(request)
    if entry.goes_to_device():
        result = decision.on_device(entry, compute)
        if result is not None:
            return result[0]
    return decision.on_host(entry, on_host)


def _on_queue(
    function: str,
    batches: Callable[[Any, Any], Batches],
    a: Any,
    b: Any,
    out: Any,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> AnyArray:
    """Enqueue a product of device arrays, and return the array for its result.

    Parameters
    ----------
    batches : callable
        Returns the operands as batches of matrices.
    dtype, casting : object, optional
        As for `numpy.matmul`.
    """
    precision, made, signature = (
        _repeated(function, a, b, out) if dtype is None else (None, None, None)
    )
    if made is not None:
        return made
    x, y, queue, dtype = _device_operands(function, a, b, out, dtype, casting)
    axis = -1 if function == "inner" else -2
    if not (x.ndim and y.ndim and x.shape[-1] == y.shape[axis if y.ndim > 1 else 0]):
        place = "last" if function == "inner" else "last but one"
        raise ValueError(
            f"shapes {x.shape} and {y.shape} are not aligned: the last axis of the first and the "
            f"{place} of the second are summed over"
        )
    if function == "inner" and y.ndim > 1:
        y = transposed(y)
    rows, columns, shape, axes = batches(x, y)
    require_out(out, shape, dtype)
    result = allocated(x, shape, "C", queue, dtype) if out is None else out
    bound = _multiply(rows, columns, rearranged(result, axes), queue, precision)
    if signature is not None:
        from clgemm.transfer.call_cache import remember

        remember(signature, bound, shape, dtype=result.dtype)
    return result


def _device_operands(
    function: str, a: Any, b: Any, out: Any, dtype: Any = None, casting: Any = "same_kind"
) -> tuple[AnyArray, AnyArray, cl.CommandQueue | None, np.dtype[Any]]:
    """Return two device arrays, their queue, and the dtype in which they are multiplied.

    Raises
    ------
    TypeError
        If devices do not multiply their dtypes in that dtype.
    """
    queue = common_queue({"a": a, "b": b} | ({} if out is None else {"out": out}), None)
    if dtype is None and (a.dtype == FLOAT32 or b.dtype == FLOAT32) and a.dtype != b.dtype:
        # An operand would be converted, which takes device memory without being asked for.
        return float32_operand(a, "a"), float32_operand(b, "b"), queue, FLOAT32
    found = np.dtype(np.promote_types(a.dtype, b.dtype) if dtype is None else dtype)
    for name, x in (("a", a), ("b", b)):
        if not np.can_cast(x.dtype, found, casting):
            raise TypeError(
                f"{function} cannot cast {name} from {x.dtype} to {found} with casting={casting!r}"
            )
    if found == FLOAT32:
        return float32_operand(a, "a"), float32_operand(b, "b"), queue, FLOAT32
    if not devices_multiply(a.dtype, b.dtype, found):
        raise TypeError(
            f"devices do not multiply {a.dtype} and {b.dtype} in {found}: numbers of 8 to 64 bits, "
            "complex ones of 64 and 128, and booleans only"
        )
    return a, b, queue, found


def _again(a: Any, b: Any, out: Any) -> bool:
    """Make a product of the same device arrays as before; False if it is another one."""
    from clgemm.transfer.call_cache import again

    return again("matmul", a, b, out)


def _multiply(x: AnyArray, y: AnyArray, c: AnyArray, queue: Any, precision: str | None) -> Any:
    """Enqueue a product of device arrays; return what repeats it if that is known."""
    from clgemm.transfer.multiply import multiply, multiply_exactly

    if c.dtype != FLOAT32:
        return multiply_exactly(x, y, c if c.queue == queue else c.with_queue(queue))
    return multiply(1.0, x, y, 0.0, c, queue=queue, precision=precision)


def _repeated(function: str, a: Any, b: Any, out: Any) -> tuple[str | None, AnyArray | None, Any]:
    """Return a call's precision, its result if the call cache makes it, and its signature.

    All are None if the precision's setting is wrong: `multiply` raises that error.
    """
    from clgemm.transfer.call_cache import repeat

    try:
        precision = chosen_precision()
    except ValueError:
        return None, None, None
    return precision, *repeat(function, None, precision, 1.0, a, b, 0.0, out)
