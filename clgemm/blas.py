"""BLAS's products: the checks, BLAS's special cases, and one call from start to end."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from clgemm.core.settings import chosen_precision
from clgemm.runtime.operands import (
    AnyArray,
    accepted,
    allocated,
    as_matrix,
    common_queue,
    conjugate,
    elementwise,
    layout_of,
    numbers,
    overlaps_either,
    require_queue,
    transposed,
    updatable,
    view,
    writable,
    zeros,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyopencl as cl
    import pyopencl.array as cl_array

TRANSPOSES = 0, 1, 2
Order = Literal["F", "C"]
Sizes = tuple[int | None, int | None, int | None]  # m, n and k; None if not given
UNKNOWN_SIZES: Sizes = None, None, None


@overload
def sgemm(
    alpha: float,
    a: cl_array.Array,
    b: cl_array.Array,
    beta: float = 0.0,
    c: Any = None,
    trans_a: int = 0,
    trans_b: int = 0,
    overwrite_c: int = 0,
    *,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    lda: int | None = None,
    ldb: int | None = None,
    ldc: int | None = None,
    order: Order = "F",
    precision: str | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl_array.Array: ...
@overload
def sgemm(
    alpha: float,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    beta: float = 0.0,
    c: Any = None,
    trans_a: int = 0,
    trans_b: int = 0,
    overwrite_c: int = 0,
    *,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    lda: int | None = None,
    ldb: int | None = None,
    ldc: int | None = None,
    order: Order = "F",
    precision: str | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> npt.NDArray[np.float32]: ...
def sgemm(
    alpha: float,
    a: Any,
    b: Any,
    beta: float = 0.0,
    c: Any = None,
    trans_a: int = 0,
    trans_b: int = 0,
    overwrite_c: int = 0,
    *,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    lda: int | None = None,
    ldb: int | None = None,
    ldc: int | None = None,
    order: Order = "F",
    precision: str | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Any:
    """Multiply single-precision matrices on an OpenCL device: alpha op(A) op(B) + beta C.

    The arguments up to `overwrite_c` are those of ``scipy.linalg.blas.sgemm``.

    Parameters
    ----------
    alpha : float
        When it is 0 (in float32), `a` and `b` are not read: NaN there does not spread.
    a : array_like, shape (m, k), or (k, m) if `trans_a`
        Other dtypes are converted to float32. A float32 view of any strides is used without a
        copy: its leading dimension is its outer stride. A vector is a matrix of one column. A
        `pyopencl.array.Array` stays on its device.
    b : array_like, shape (k, n), or (n, k) if `trans_b`
        As `a`. Both are on the host, or both on the device.
    beta : float, optional
        When it is 0 (in float32), `c` is not read: NaN there does not spread.
    c : array_like, shape (m, n), optional
        The default is a matrix of zeros.
    trans_a, trans_b : {0, 1, 2}, optional
        1 transposes the operand; 2, the conjugate transpose, is the same for real numbers.
    overwrite_c : bool, optional
        Whether to write the result to `c` itself, if it is a writable float32 array. It may have
        any strides and may overlap `a` and `b`.
    m, n, k, lda, ldb, ldc : int, optional
        If `lda`, `ldb` or `ldc` is given, the call is in flat mode: op(A) is m x k and op(B) is
        k x n. `a`, `b` and `c` are then BLAS storage, which is contiguous of any shape, or
        one-dimensional of any stride. The default of a leading dimension is the smallest
        possible. The m x n window of `c` is updated, and the rest of its storage is kept. Without
        leading dimensions, m, n and k are only checked.
    order : {"F", "C"}, optional
        The order of a new result. In flat mode, column-major (BLAS) or row-major (CBLAS) storage.
    precision : {"strict", "float32", "fast"}, optional
        The error that is allowed: `clgemm.precision` describes each mode. The default is that of
        the ``with`` block, the environment variable CLGEMM_PRECISION, or ``"float32"``.
    queue : pyopencl.CommandQueue, optional
        The queue to compute on. The default is the queue of the device operands. Host operands
        are multiplied on its device and in its context; the default is the device that
        `clgemm.get_device` returns.
    wait_for : list of pyopencl.Event, optional
        Events that the computation waits for.

    Returns
    -------
    numpy.ndarray or pyopencl.array.Array, float32, shape (m, n)
        `c` itself if it was overwritten. In flat mode, the result is storage of the shape of `c`.
        If there was no `c`, it is one-dimensional and zero outside the window. Host results are
        complete on return. Device results are enqueued, not waited for; the event is among their
        ``events``.

    Raises
    ------
    ValueError
        If shapes disagree, if `trans_a`, `trans_b`, `order` or `precision` is none of those above,
        if a leading dimension is too small, or if a storage is too short.
    TypeError
        If an operand or a scalar is not numeric, if host and device operands are mixed, or if
        `queue` or `wait_for` has another type.
    RuntimeError
        If there is no OpenCL device. If a signal handler or a finalizer calls this while it
        interrupts the preparation of another product. (`clgemm.dot` and its relatives use NumPy
        then.)

    Notes
    -----
    After an exception during the call, such as KeyboardInterrupt, a `c` to be overwritten is
    undefined: the device may still write to it. Ctrl-C raises KeyboardInterrupt within 0.2 seconds.
    The device completes the current kernel and starts no other. Arrays are kept alive until then,
    and the next product waits for it.

    If several devices are chosen, the exception comes out once each of them has finished its tile,
    and nothing writes to `c` any more.

    References
    ----------
    .. [1] J. J. Dongarra, J. Du Croz, S. Hammarling, I. Duff, "A set of level 3 basic linear
       algebra subprograms", ACM TOMS 16(1), 1990.

    Examples
    --------
    >>> import numpy as np, clgemm
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> clgemm.sgemm(2.0, a, a, trans_b=1)
    array([[ 10.,  28.],
           [ 28., 100.]], dtype=float32)
    """
    if not _is_loaded:
        _load()
    from clgemm.runtime.waiting import wait_for_all
    from clgemm.transfer.call_cache import remember, repeat
    from clgemm.transfer.multiply import duplicate, multiply

    before = () if wait_for is None else events(wait_for)
    alpha, beta = single(alpha, "alpha"), single(beta, "beta")
    _check_options(order, trans_a=trans_a, trans_b=trans_b)
    sizes = UNKNOWN_SIZES
    if not (m is None and n is None and k is None):
        sizes = whole(m, "m"), whole(n, "n"), whole(k, "k")
    flat = not (lda is None and ldb is None and ldc is None)
    precision = chosen_precision(precision)
    signature = None
    if alpha and not flat and queue is None and (c is None or overwrite_c):
        options = trans_a, trans_b, order, sizes
        beta_or_0 = 0.0 if c is None else beta
        repeated, signature = repeat(
            *("sgemm", options, precision, alpha, a, b, beta_or_0, c), wait_for=before
        )
        if repeated is not None:
            return repeated
    require_queue(queue)
    given = {"a": a, "b": b} if c is None else {"a": a, "b": b, "c": c}
    operands, shared = accepted(given, queue)
    in_place = bool(overwrite_c) and updatable(c)

    if not flat:
        op_a, op_b, shape = _from_shapes(operands, sizes, trans_a, trans_b)
    else:
        leading = {"a": whole(lda, "lda"), "b": whole(ldb, "ldb"), "c": whole(ldc, "ldc")}
        transposes = {"a": bool(trans_a), "b": bool(trans_b)}
        op_a, op_b, shape, ldc = _from_storage(operands, sizes, leading, transposes, order)

    if before and shared is None:  # nothing may come to write a host array later
        wait_for_all(before)
        before = ()
    # The result is c itself, a copy of it, or a new array.
    if c is None:
        beta = 0.0
        if ldc is not None:
            result = zeros(op_a, storage_size(*shape, ldc, order), order, shared)
        else:
            result = allocated(op_a, shape, order, shared)
    elif in_place:
        result = c
    elif ldc is not None:
        result = duplicate(operands["c"], "K", shared)
    elif beta == 0:
        result = allocated(op_a, shape, order, shared)
    else:
        result = duplicate(operands["c"], order, shared)
    matrix = as_matrix(result, "c") if ldc is None else window(result, "c", *shape, ldc, order)
    bound = multiply(
        *(alpha, op_a, op_b, beta, matrix),
        queue=shared or queue,
        wait_for=before,
        precision=precision,
    )
    if c is None or in_place:
        remember(signature, bound, shape, order)
    return result


@overload
def ssyrk(
    alpha: float,
    a: cl_array.Array,
    beta: float = 0.0,
    c: Any = None,
    trans: int = 0,
    lower: int = 0,
    overwrite_c: int = 0,
    *,
    order: Order = "F",
    precision: str | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl_array.Array: ...
@overload
def ssyrk(
    alpha: float,
    a: npt.ArrayLike,
    beta: float = 0.0,
    c: Any = None,
    trans: int = 0,
    lower: int = 0,
    overwrite_c: int = 0,
    *,
    order: Order = "F",
    precision: str | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> npt.NDArray[np.float32]: ...
def ssyrk(
    alpha: float,
    a: Any,
    beta: float = 0.0,
    c: Any = None,
    trans: int = 0,
    lower: int = 0,
    overwrite_c: int = 0,
    *,
    order: Order = "F",
    precision: str | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Any:
    """Multiply a matrix by its transpose on an OpenCL device: one triangle of alpha A A' + beta C.

    The arguments up to `overwrite_c` are those of ``scipy.linalg.blas.ssyrk``.

    Parameters
    ----------
    alpha : float
        When it is 0 (in float32), `a` is not read: NaN there does not spread.
    a : array_like, shape (n, k), or (k, n) if `trans`
        As for `sgemm`.
    beta : float, optional
        When it is 0 (in float32), the triangle of `c` is not read: NaN there does not spread.
    c : array_like, shape (n, n), optional
        The default is a matrix of zeros. Only one triangle is updated; the other one stays.
    trans : {0, 1, 2}, optional
        1 and 2 compute A' A in place of A A'.
    lower : {0, 1}, optional
        Whether the lower triangle is updated. The default is the upper one.
    overwrite_c : bool, optional
        As for `sgemm`.
    order : {"F", "C"}, optional
        The order of a new result.
    precision, queue, wait_for : optional
        As for `sgemm`.

    Returns
    -------
    numpy.ndarray or pyopencl.array.Array, float32, shape (n, n)
        `c` itself if it was overwritten, or a new matrix. Its other triangle is that of `c`, or
        zero. Host results are complete on return; device results are enqueued.

    Raises
    ------
    ValueError
        If shapes disagree, or if `trans`, `lower`, `order` or `precision` is none of those above.
    TypeError, RuntimeError
        As for `sgemm`.

    See Also
    --------
    sgemm : with ``trans_b=1`` and twice the same matrix, it computes both triangles.

    Notes
    -----
    Host arrays on a device with memory of its own: the product takes as much more memory as `c`.
    After an exception, see `sgemm`.

    Examples
    --------
    >>> import numpy as np, clgemm
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> clgemm.ssyrk(1.0, a)
    array([[ 5., 14.],
           [ 0., 50.]], dtype=float32)
    """
    if not _is_loaded:
        _load()
    from clgemm.runtime.waiting import wait_for_all
    from clgemm.transfer.call_cache import remember, repeat
    from clgemm.transfer.multiply import duplicate, multiply

    before = () if wait_for is None else events(wait_for)
    alpha, beta = single(alpha, "alpha"), single(beta, "beta")
    _check_options(order, trans=trans)
    if lower not in (0, 1):
        raise ValueError(f"lower={lower!r} is neither 0 nor 1")
    precision = chosen_precision(precision)
    signature = None
    if alpha and queue is None and c is not None and overwrite_c:
        repeated, signature = repeat(
            *("ssyrk", (trans, lower), precision, alpha, a, a, beta, c), wait_for=before
        )
        if repeated is not None:
            return repeated
    require_queue(queue)
    operands, shared = accepted({"a": a} if c is None else {"a": a, "c": c}, queue)
    op_a = as_matrix(operands["a"], "a")
    if trans:
        op_a = transposed(op_a)
    n, k = op_a.shape
    if c is not None and as_matrix(operands["c"], "c").shape != (n, n):
        raise ValueError(f"c has shape {operands['c'].shape} but op(a) is {n}x{k}")
    if before and shared is None:  # nothing may come to write a host array later
        wait_for_all(before)
        before = ()
    if c is None:
        beta, result = 0.0, zeros(op_a, (n, n), order, shared)
    elif overwrite_c and updatable(c):
        result = c
    else:
        result = duplicate(as_matrix(operands["c"], "c"), order, shared)
    bound = multiply(
        *(alpha, op_a, transposed(op_a), beta, as_matrix(result, "c")),
        queue=shared or queue,
        wait_for=before,
        precision=precision,
        triangles="lower" if lower else "upper",
    )
    if result is c:
        remember(signature, bound, (n, n), order)
    return result


def gemm(
    alpha: complex,
    a: Any,
    b: Any,
    beta: complex = 0,
    c: Any = None,
    trans_a: int = 0,
    trans_b: int = 0,
    overwrite_c: int = 0,
    *,
    dtype: Any = None,
    order: Order = "F",
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Multiply matrices of any dtype on an OpenCL device: alpha op(A) op(B) + beta C.

    The arguments up to `overwrite_c` are those of ``scipy.linalg.blas.dgemm``.

    Parameters
    ----------
    alpha, beta : complex
        Real for real dtypes, whole for integers. When `beta` is 0, `c` is not read; when `alpha` is
        0, `a` and `b` are not read.
    a, b, c : array_like
        As for `sgemm`. Host arrays are converted to `dtype`, and views of any strides are used
        without a copy. Device arrays are not converted.
    trans_a, trans_b : {0, 1, 2}, optional
        1 transposes the operand, 2 also conjugates it.
    overwrite_c : bool, optional
        Whether to write the result to `c` itself, if it is writable and of this dtype.
    dtype : dtype, optional
        float32, float64, complex64, complex128, float16 or an integer dtype. The default is the one
        to which NumPy promotes `a` and `b`.
    order, queue : optional
        As for `sgemm`. To add to a `c` on the device, the result has the order of that.

    Returns
    -------
    numpy.ndarray or pyopencl.array.Array, shape (m, n)
        `c` itself if it was overwritten. Integers wrap around modulo 2^N. Host results are complete
        on return; device results are enqueued.

    Raises
    ------
    ValueError
        If shapes disagree, if `trans_a`, `trans_b` or `order` is none of those above, or if a `c`
        on the device is not contiguous where it or the product is scaled.
    TypeError
        If devices do not multiply this dtype, if an operand is not numeric, if a scalar is not of
        its kind, if host and device operands are mixed, or if device arrays of float16 are scaled.
    RuntimeError
        If there is no OpenCL device, or it does not compute this dtype.

    Examples
    --------
    >>> import numpy as np, clgemm
    >>> a = np.arange(6, dtype=np.int8).reshape(2, 3)
    >>> clgemm.gemm(10, a, a, trans_b=1, dtype=np.int32)
    array([[ 50, 140],
           [140, 500]], dtype=int32)
    """
    if not _is_loaded:
        _load()
    from clgemm.hardware.device import of_queue
    from clgemm.numpy_rules import FLOAT32, devices_multiply
    from clgemm.transfer.multiply import multiply_exactly

    _check_options(order, trans_a=trans_a, trans_b=trans_b)
    require_queue(queue)
    given = {"a": a, "b": b} if c is None else {"a": a, "b": b, "c": c}
    shared = common_queue(given, queue)
    if shared is None:
        given = {name: numbers(x, name) for name, x in given.items()}
    if dtype is None:
        dtype = np.promote_types(given["a"].dtype, given["b"].dtype)
    dtype = np.dtype(dtype)
    if dtype == FLOAT32:
        real: Any = (alpha, a, b, beta, c, trans_a, trans_b, overwrite_c)
        return sgemm(*real, order=order, queue=queue)
    if not devices_multiply(dtype, dtype, dtype):
        raise TypeError(f"devices do not multiply {dtype}")
    alpha, beta = _scalar(alpha, "alpha", dtype), _scalar(beta, "beta", dtype)
    operands = {}
    for name, x in given.items():
        is_ours = x.dtype == dtype if name == "c" else devices_multiply(x.dtype, x.dtype, dtype)
        if not is_ours and shared is not None:
            raise TypeError(f"{name} is a device array of dtype {x.dtype}, the product of {dtype}")
        operands[name] = x if is_ours else x.astype(dtype)
    op_a, op_b, shape = _from_shapes(operands, UNKNOWN_SIZES, trans_a, trans_b)
    reads = bool(alpha)
    is_scaled = reads and alpha != 1 and op_a.shape[1] > 0
    if reads:
        op_a, op_b = (
            conjugate(x, shared) if trans == 2 else x
            for x, trans in ((op_a, trans_a), (op_b, trans_b))
        )
    is_own = bool(overwrite_c) and c is operands.get("c") is not None and writable(c)
    matrix = as_matrix(operands["c"], "c") if beta or is_own else None
    if matrix is not None and shared is not None and matrix.queue != shared:
        matrix = matrix.with_queue(shared)
    old, result = (matrix if beta else None), (matrix if is_own else None)
    is_direct = result is not None and old is None and reads and not is_scaled
    if is_direct and shared is None:
        is_direct = not overlaps_either(result, op_a, op_b)
    if shared is not None and dtype == np.float16 and (alpha != 1 or old is not None):
        raise TypeError("products of float16 on the device are not scaled: alpha is 1, and beta 0")
    product: Any = result
    if not is_direct:
        if shared is not None and matrix is not None:
            order = _order_of(matrix)  # in which pyopencl combines both
        if shared is not None and reads:
            product = allocated(op_a, shape, order, shared, dtype)
        else:
            product = zeros(op_a, shape, order, shared, dtype)
        if shared is not None and matrix is not None:  # an axis of one element may have any stride
            product = view(product, shape, layout_of(matrix).strides)
    if reads:
        device = None if queue is None else of_queue(queue)
        multiply_exactly(op_a, op_b, product, device, is_optional=False)
    if is_direct:
        return c
    alone = contextlib.nullcontext() if shared is None else elementwise
    with np.errstate(all="ignore"), alone:
        if is_scaled:
            product *= alpha
        if old is not None:
            product += beta * old
        if result is None:
            return product
        result[...] = product
    return c


def _order_of(c: AnyArray) -> Order:
    """Return the order of a matrix on the device.

    Raises
    ------
    ValueError
        If it is not contiguous.
    """
    if not c.flags.forc:
        raise ValueError(
            f"c has strides {c.strides}: on the device, it is scaled if it is contiguous"
        )
    return "C" if c.flags.c_contiguous else "F"


def _named(name: str, dtype: Any, first_line: str) -> Callable[..., Any]:
    """Return `gemm` in one dtype, by BLAS's name."""

    def product(
        alpha: complex,
        a: Any,
        b: Any,
        beta: complex = 0.0,
        c: Any = None,
        trans_a: int = 0,
        trans_b: int = 0,
        overwrite_c: int = 0,
        *,
        order: Order = "F",
        queue: cl.CommandQueue | None = None,
    ) -> Any:
        scalars = (alpha, a, b, beta, c, trans_a, trans_b, overwrite_c)
        return gemm(*scalars, dtype=dtype, order=order, queue=queue)

    product.__name__ = product.__qualname__ = name
    product.__doc__ = f"{first_line} on an OpenCL device: `gemm` in {np.dtype(dtype)}."
    return product


dgemm = _named("dgemm", np.float64, "Multiply double-precision matrices")
cgemm = _named("cgemm", np.complex64, "Multiply complex matrices")
zgemm = _named("zgemm", np.complex128, "Multiply complex matrices of double precision")


def _scalar(value: Any, name: str, dtype: np.dtype[Any]) -> Any:
    """Return alpha or beta in a dtype; whole numbers modulo 2^N.

    Raises
    ------
    TypeError
        If it is not a number of this kind.
    """
    try:
        if dtype.kind in "iu":
            wrapped = operator.index(value) % 2 ** (8 * dtype.itemsize)
            return np.array(wrapped, np.uint64).astype(dtype)[()]
        if value is None or isinstance(value, str | bytes) or np.ndim(value):
            raise TypeError
        if dtype.kind != "c" and isinstance(value, complex | np.complexfloating):
            raise TypeError
        with np.errstate(over="ignore"):  # as in `single`
            return dtype.type(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r} is not a number of dtype {dtype}") from None


def _check_options(order: Order, **transposes: int) -> None:
    """Raise ValueError if an order or a transposition is none of BLAS's."""
    for name, value in transposes.items():
        if value not in TRANSPOSES:
            raise ValueError(f"{name}={value!r} is not one of 0, 1 and 2")
    if order not in ("F", "C"):
        raise ValueError(f"order={order!r} is neither 'F' nor 'C'")


_is_loaded = False


def _load() -> None:
    """Import what a product on the device takes, at the first call."""
    global _is_loaded
    from clgemm.side import preparation

    preparation.begin()
    preparation.load()
    _is_loaded = True


def _from_shapes(
    operands: Mapping[str, AnyArray],
    sizes: Sizes,
    trans_a: int,
    trans_b: int,
) -> tuple[AnyArray, AnyArray, tuple[int, int]]:
    """Return op(A), op(B) and the shape of C, without flat mode."""
    op_a, op_b = as_matrix(operands["a"], "a"), as_matrix(operands["b"], "b")
    if trans_a:
        op_a = transposed(op_a)
    if trans_b:
        op_b = transposed(op_b)
    (m, k), (rows_b, n) = op_a.shape, op_b.shape
    if k != rows_b:
        raise ValueError(
            f"op(a) is {m}x{k} but op(b) is {rows_b}x{n}: the inner sizes {k} and {rows_b} differ"
        )
    for name, given, size in zip("mnk", sizes, (m, n, k), strict=True):
        if given is not None and given != size:
            raise ValueError(f"{name}={given} but op(a) is {m}x{k} and op(b) is {rows_b}x{n}")
    if "c" in operands:
        rows_c, columns_c = as_matrix(operands["c"], "c").shape
        if (rows_c, columns_c) != (m, n):
            raise ValueError(f"c is {rows_c}x{columns_c} but op(a) op(b) is {m}x{n}")
    return op_a, op_b, (m, n)


def _from_storage(
    operands: Mapping[str, AnyArray],
    sizes: Sizes,
    leading: Mapping[str, int | None],
    transposes: Mapping[str, bool],
    order: Order,
) -> tuple[AnyArray, AnyArray, tuple[int, int], int]:
    """Return op(A), op(B), the shape of C and its leading dimension, in flat mode."""
    for name, size in zip("mnk", sizes, strict=True):
        if size is None or size < 0:
            raise ValueError(
                f"{name}={size}: with leading dimensions, m, n and k must be given, none negative"
            )
    m, n, k = cast("tuple[int, int, int]", sizes)

    def leading_of(name: str, rows: int, columns: int) -> int:
        size = leading[name]
        return smallest_leading(rows, columns, order) if size is None else size

    op = {}
    for name, shape in (("a", (m, k)), ("b", (k, n))):
        stored = shape[::-1] if transposes[name] else shape
        matrix = window(operands[name], name, *stored, leading_of(name, *stored), order)
        op[name] = transposed(matrix) if transposes[name] else matrix
    ldc = leading_of("c", m, n)
    if "c" in operands:
        window(operands["c"], "c", m, n, ldc, order)  # for its checks
    else:
        check_leading("c", m, n, ldc, order)
    return op["a"], op["b"], (m, n), ldc


def smallest_leading(rows: int, columns: int, order: Order) -> int:
    """Return the smallest leading dimension of a rows x columns matrix; BLAS demands at least 1."""
    return max(1, rows if order == "F" else columns)


def storage_size(rows: int, columns: int, leading: int, order: Order) -> int:
    """Return the number of elements of a new storage for a rows x columns matrix."""
    return leading * (columns if order == "F" else rows)


def check_leading(name: str, rows: int, columns: int, leading: int, order: Order) -> None:
    """Raise ValueError if a leading dimension is too small for a rows x columns matrix."""
    if leading < smallest_leading(rows, columns, order):
        across = f"{rows} rows" if order == "F" else f"{columns} columns"
        raise ValueError(f"ld{name}={leading} is less than the {across} of {name}")


def window(x: AnyArray, name: str, rows: int, columns: int, leading: int, order: Order) -> AnyArray:
    """Return a view of the rows x columns matrix at the start of a storage.

    Parameters
    ----------
    x : array
        Contiguous of any shape, read in the order of its memory, or one-dimensional of any stride.
    leading : int
        Elements between columns (order "F") or rows (order "C").

    Raises
    ------
    ValueError
        If `leading` is too small, or if `x` is too short or not a storage.
    """
    check_leading(name, rows, columns, leading, order)
    if x.ndim != 1 and not x.flags.forc:
        raise ValueError(
            f"with leading dimensions, {name} must be BLAS storage: contiguous or "
            f"one-dimensional; it has shape {x.shape} and strides {x.strides}"
        )
    inner, outer = (rows, columns) if order == "F" else (columns, rows)
    needed = (outer - 1) * leading + inner if rows and columns else 0
    if x.size < needed:
        raise ValueError(
            f"{name} has {x.size} elements, but {rows} x {columns} with ld{name}={leading} "
            f"needs {needed}"
        )
    step = layout_of(x).strides[0] if x.ndim == 1 else 1
    return view(x, (rows, columns), (step, leading * step)[:: 1 if order == "F" else -1])


def single(value: Any, name: str) -> float:
    """Return a scalar rounded to float32, as BLAS receives it.

    Raises
    ------
    TypeError
        If it is not a real scalar.
    """
    if type(value) is float and value in (0.0, 1.0):
        return value
    try:
        if value is None or isinstance(value, str | bytes):  # NumPy would parse text
            raise TypeError
        with np.errstate(over="ignore"):  # too large a number becomes infinite, as in C
            return float(np.float32(value))
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r} is not a real number") from None


def events(wait_for: Any) -> tuple[cl.Event, ...]:
    """Return the events to wait for.

    Raises
    ------
    TypeError
        If it is not a sequence of events.
    """
    import pyopencl as cl

    found = tuple(wait_for) if isinstance(wait_for, Iterable) else (None,)
    if not all(isinstance(event, cl.Event) for event in found):
        raise TypeError(f"wait_for={wait_for!r} is not a sequence of pyopencl events")
    return found


def whole(value: Any, name: str) -> int | None:
    """Return a size as an int, or None if it is None.

    Raises
    ------
    TypeError
        If it is not a whole number.
    """
    try:
        return None if value is None else operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} is not a whole number") from None
