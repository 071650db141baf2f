"""Contractions that are made of products: `einsum`, `multi_dot`, powers, products with vectors.

A pair of einsum's operands whose indices fall into batch, rows, columns and sum is one `matmul`, on
the faster side; NumPy computes all else. A chain of matrices is multiplied in the cheapest order.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clgemm.core.settings import Precision
from clgemm.numpy_rules import ARRAYS, EXACT, FLOAT32, LEAST_SIZES, NEVER, of_matmul
from clgemm.products import dot, from_either, matmul, under
from clgemm.runtime.operands import (
    AnyArray,
    common_queue,
    conjugate,
    float32_operand,
    is_device,
    rearranged,
)

if TYPE_CHECKING:
    import pyopencl as cl

# The elements of A times those of B, of float32, below which NumPy's einsum takes less than to call
# its BLAS: 32 x 32 by 32 x 32.
LEAST_FLOATS = 2**20


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
    **keywords: Any,
) -> Any:
    """Sum products of elements by Einstein's convention, as `numpy.einsum` does.

    Parameters
    ----------
    subscripts : str
        As for `numpy.einsum`.
    *operands : array_like
        Arrays in host memory. Those of float32, of integers, booleans and float16, and on GPUs of
        float64 and complex numbers are contracted as `matmul` does, two at a time. NumPy contracts
        others, and single operands.
    precision, queue : optional
        As for `dot`.
    **keywords
        NumPy's other arguments. With `out`, `dtype`, `order` or `casting`, and where operands are
        subclasses of `numpy.ndarray`, NumPy computes all. More than two operands are contracted in
        the order that NumPy's ``optimize="greedy"`` chooses, unless `optimize` says another one.

    Returns
    -------
    numpy.ndarray or scalar
        float16 adds up in float32 and rounds once for each pair, as `matmul`.

    Raises
    ------
    ValueError
        If the subscripts do not fit the operands.
    TypeError
        If an operand is a device array.

    Examples
    --------
    >>> import numpy as np, clgemm
    >>> a = np.arange(6).reshape(2, 3)
    >>> clgemm.einsum("ij,kj->ik", a, a)
    array([[ 5, 14],
           [14, 50]])
    """
    if precision is not None or queue is not None:
        return under(precision, queue, einsum, subscripts, *operands, **keywords)
    if not keywords and len(operands) == 2 and type(subscripts) is str:
        a, b = operands
        if type(a) in ARRAYS and type(b) in ARRAYS and not _may_pay(a, b):
            return np.einsum(subscripts, a, b)
    if any(map(is_device, operands)):
        raise TypeError("einsum takes arrays in host memory: use matmul or tensordot")
    optimize = keywords.get("optimize", len(operands) > 2)
    if keywords.keys() - {"optimize"} or not isinstance(subscripts, str) or len(operands) < 2:
        return np.einsum(subscripts, *operands, **keywords)
    terms, result = _parsed(subscripts)
    if not terms or not _fit(terms, operands):
        return np.einsum(subscripts, *operands, **keywords)
    if len(operands) == 2 and isinstance(optimize, bool):
        return _pair(terms, result, operands)
    if not optimize:
        return np.einsum(subscripts, *operands, optimize=optimize)
    # NumPy adds up in the dtype of the result, which that of two operands may not hold.
    dtype = np.result_type(*operands)
    operands = tuple(x.astype(dtype, copy=False) for x in operands)
    path = np.einsum_path(subscripts, *operands, optimize=optimize)[0][1:]
    return _along(path, list(terms), result, list(operands))


@functools.lru_cache(maxsize=256)
def _parsed(subscripts: str) -> tuple[tuple[str, ...], str]:
    """Return the indices of the operands and of the result; none if NumPy must read them."""
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = tuple(left.split(","))
    letters = "".join(terms)
    if not (letters + result).isalpha() or not letters.isascii():
        return (), ""
    if not arrow:
        result = "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
    if len(set(result)) < len(result) or not set(result) <= set(letters):
        return (), ""
    return terms, result


def _fit(terms: Sequence[str], operands: Sequence[Any]) -> bool:
    """Return whether operands are NumPy's own arrays, and have an axis for each index."""
    sizes: dict[str, int] = {}
    if len(terms) != len(operands):
        return False
    for term, x in zip(terms, operands, strict=True):
        if type(x) not in ARRAYS or x.ndim != len(term):
            return False
        for letter, size in zip(term, x.shape, strict=True):
            if sizes.setdefault(letter, size) != size:  # NumPy repeats an axis of one element
                return False
    return True


class _Product(NamedTuple):
    """How the contraction of two operands is a product of batches of matrices.

    Attributes
    ----------
    axes : pair of tuple of int
        Of both operands: batch, rows and sum; batch, sum and columns.
    shapes : pair of tuple of int
        The operands, as batches of matrices.
    shape, order : tuple of int
        The shape of the result with batch, rows and columns, and the order of its axes.
    """

    axes: tuple[tuple[int, ...], tuple[int, ...]]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    shape: tuple[int, ...]
    order: tuple[int, ...]


@functools.lru_cache(maxsize=256)
def _product(
    of_a: str, of_b: str, result: str, shape_a: tuple[int, ...], shape_b: tuple[int, ...]
) -> _Product | None:
    """Return how a contraction is a product; None if it is none."""
    batch = [x for x in of_a if x in of_b and x in result]
    rows = [x for x in of_a if x not in of_b]
    columns = [x for x in of_b if x not in of_a]
    summed = [x for x in of_a if x in of_b and x not in result]
    if not summed or not set(rows + columns) <= set(result):
        return None
    if len(set(of_a)) < len(of_a) or len(set(of_b)) < len(of_b):
        return None
    sizes = dict(zip(of_a + of_b, shape_a + shape_b, strict=True))
    m, k, n = (math.prod(sizes[x] for x in group) for group in (rows, summed, columns))
    outer = tuple(sizes[x] for x in batch)
    order = [*batch, *rows, *columns]
    return _Product(
        (
            tuple(of_a.index(x) for x in (*batch, *rows, *summed)),
            tuple(of_b.index(x) for x in (*batch, *summed, *columns)),
        ),
        ((*outer, m, k), (*outer, k, n)),
        tuple(sizes[x] for x in order),
        tuple(order.index(x) for x in result),
    )


def _along(path: Sequence[Any], terms: list[str], result: str, operands: list[Any]) -> Any:
    """Contract operands in an order: each step takes some out and puts their product at the end."""
    for step in path:
        taken = sorted(step, reverse=True)
        those = [operands.pop(i) for i in taken][::-1]
        of_those = [terms.pop(i) for i in taken][::-1]
        kept = set(result).union(*terms)
        of_product = "".join(x for x in dict.fromkeys("".join(of_those)) if x in kept)
        if not operands:
            of_product = result
        if len(those) == 2:
            product = _pair(of_those, of_product, those)
        else:
            product = np.einsum(f"{','.join(of_those)}->{of_product}", *those)
        operands.append(product)
        terms.append(of_product)
    return operands[0]


def _pair(terms: Sequence[str], result: str, operands: Sequence[Any]) -> Any:
    """Contract two operands."""
    (of_a, of_b), (a, b) = terms, operands

    def by_numpy() -> Any:
        return np.einsum(f"{of_a},{of_b}->{result}", a, b)

    found = _product(of_a, of_b, result, a.shape, b.shape) if _may_pay(a, b) else None
    if found is None:
        return by_numpy()
    x, y = (
        each.transpose(axes).reshape(shape)
        for each, axes, shape in zip((a, b), found.axes, found.shapes, strict=True)
    )

    def delivered(product: Any) -> Any:
        return product.reshape(found.shape).transpose(found.order)[()]

    if a.dtype == b.dtype == FLOAT32:
        return delivered(matmul(x, y))
    request = of_matmul((x, y), {})
    if request is None:
        return by_numpy()
    # NumPy's own loops for einsum are faster than those for matmul, if the dtype has no BLAS.
    return from_either(request._replace(name=f"einsum {request.name}"), by_numpy, delivered)


def _may_pay(a: Any, b: Any) -> bool:
    """Return whether a product of two arrays may be faster than NumPy's einsum."""
    size = a.size * b.size
    if a.dtype == b.dtype == FLOAT32:
        return bool(size >= LEAST_FLOATS)
    return any(size >= LEAST_SIZES.get(x.dtype, NEVER) for x in (a, b))


def vecdot(
    a: Any,
    b: Any,
    /,
    *,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Sum products of the last axes, as `numpy.vecdot` does: the first operand is conjugated.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., n)
        As for `matmul`; the other axes broadcast. Subclasses of `numpy.ndarray` are plain arrays.
    precision, queue : optional
        As for `dot`.

    Returns
    -------
    numpy.ndarray, scalar or pyopencl.array.Array, shape (...)
    """
    if precision is not None or queue is not None:
        return under(precision, queue, vecdot, a, b)
    a, b = _arrays(a, b)
    rows, columns = _with_axis(_conjugate(a), -2), _with_axis(b, -1)
    return _without_axes(matmul(rows, columns), -2, -1)


def matvec(
    a: Any,
    b: Any,
    /,
    *,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Multiply matrices by vectors, as `numpy.matvec` does.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., m, n) and (..., n)
        As for `matmul`; the other axes broadcast. Subclasses of `numpy.ndarray` are plain arrays.
    precision, queue : optional
        As for `dot`.

    Returns
    -------
    numpy.ndarray or pyopencl.array.Array, shape (..., m)
    """
    if precision is not None or queue is not None:
        return under(precision, queue, matvec, a, b)
    a, b = _arrays(a, b)
    return _without_axes(matmul(_matrices(a), _with_axis(b, -1)), -1)


def vecmat(
    a: Any,
    b: Any,
    /,
    *,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Multiply vectors, conjugated, by matrices, as `numpy.vecmat` does.

    Parameters
    ----------
    a, b : array_like or pyopencl.array.Array, shapes (..., n) and (..., n, m)
        As for `matmul`; the other axes broadcast. Subclasses of `numpy.ndarray` are plain arrays.
    precision, queue : optional
        As for `dot`.

    Returns
    -------
    numpy.ndarray or pyopencl.array.Array, shape (..., m)
    """
    if precision is not None or queue is not None:
        return under(precision, queue, vecmat, a, b)
    a, b = _arrays(a, b)
    return _without_axes(matmul(_with_axis(_conjugate(a), -2), _matrices(b)), -2)


def matrix_power(
    a: Any,
    n: int,
    *,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Raise square matrices to a whole power, as `numpy.linalg.matrix_power` does.

    Parameters
    ----------
    a : array_like, shape (..., m, m)
        As for `matmul`.
    n : int
        A negative power is that of the inverse, which NumPy computes.
    precision, queue : optional
        As for `dot`.

    Returns
    -------
    numpy.ndarray, shape (..., m, m)

    Raises
    ------
    TypeError
        If `a` is a device array.
    """
    if precision is not None or queue is not None:
        return under(precision, queue, matrix_power, a, n)
    if is_device(a):
        raise TypeError("matrix_power takes arrays in host memory: use matmul")
    is_square = type(a) is np.ndarray and a.ndim >= 2 and a.shape[-1] == a.shape[-2]
    if not is_square or a.dtype.kind == "O" or (n := operator.index(n)) < 2:
        return np.linalg.matrix_power(a, n)
    power, result = a, None
    while n:  # by its binary digits, from the lowest on
        if n & 1:
            result = power if result is None else matmul(result, power)
        n >>= 1
        if n:
            power = matmul(power, power)
    return result


def _arrays(a: Any, b: Any) -> tuple[Any, Any]:
    # The product has an axis more, of which a subclass would know nothing.
    first, second = (x if is_device(x) else np.asarray(x) for x in (a, b))
    return first, second


def _conjugate(x: Any) -> Any:
    return conjugate(x, x.queue if is_device(x) else None)


def _matrices(x: Any) -> Any:
    if x.ndim < 2:
        raise ValueError(f"a matrix is expected, not an array of shape {x.shape}")
    return x


def _with_axis(x: Any, axis: int) -> Any:
    """Return a view with a new axis of length 1 before or after the last one."""
    if not x.ndim:
        raise ValueError("a vector is expected, not a scalar")
    axes: list[int | None] = list(range(x.ndim))
    axes.insert(x.ndim + axis + 1, None)
    return rearranged(x, axes) if is_device(x) else np.expand_dims(x, axis)


def _without_axes(x: Any, *axes: int) -> Any:
    """Return a product without axes of length 1."""
    if not is_device(x):
        return np.squeeze(x, axes)[()]
    return rearranged(x, [i for i in range(x.ndim) if i - x.ndim not in axes])


def multi_dot(
    arrays: Sequence[Any],
    *,
    out: Any = None,
    precision: Precision | None = None,
    queue: cl.CommandQueue | None = None,
) -> Any:
    """Multiply a chain of matrices in the cheapest order, as `numpy.linalg.multi_dot` does.

    Parameters
    ----------
    arrays : sequence of array_like or pyopencl.array.Array
        Matrices; the first and the last may be vectors.
    out : array, optional
        As for `dot`. In a chain of three or more arrays, NumPy treats a vector at either end as a
        matrix. Then `out` has the shape (m, 1), (1, n) or (1, 1). A device array may also have the
        shape of the result.
    precision, queue : optional
        As for `dot`.

    Returns
    -------
    numpy.ndarray, scalar or pyopencl.array.Array

    Raises
    ------
    ValueError
        If there are fewer than two arrays, or if shapes disagree.
    numpy.linalg.LinAlgError
        If an array other than the first and the last is not a matrix.
    TypeError
        As `dot`.
    """
    chain = list(arrays)
    if precision is not None or queue is not None:
        return under(precision, queue, multi_dot, chain, out=out)
    named = {f"array {i}": x for i, x in enumerate(chain)}
    if common_queue(named, None) is not None and any(x.dtype != chain[0].dtype for x in chain):
        chain = [float32_operand(x, name) for name, x in named.items()]
    dims = _chain(chain)
    if dims is None:
        return np.linalg.multi_dot(chain, out=out)
    ends = chain[0].ndim, chain[-1].ndim
    if len(chain) == 2 or ends == (2, 2):
        return _multiplied(chain, dims, out)
    chain[0], chain[-1] = _as_row(chain[0]), _as_column(chain[-1])
    matrix = _as_column(out) if ends == (2, 1) else _as_row(out) if ends == (1, 2) else out
    result = _multiplied(chain, dims, matrix if is_device(out) else out)
    if ends == (1, 1):
        return rearranged(result, ()) if is_device(result) else result[0, 0]
    return out if out is not None and out.ndim == 1 else result.reshape(-1)


def _as_row(x: Any) -> Any:
    return rearranged(x, (None, 0)) if getattr(x, "ndim", 2) == 1 else x


def _as_column(x: Any) -> Any:
    return rearranged(x, (0, None)) if getattr(x, "ndim", 2) == 1 else x


def _multiplied(chain: list[AnyArray], dims: list[int], out: Any) -> Any:
    """Return the product of a chain, multiplied in the cheapest order."""
    split = _cheapest_splits(dims)

    def product(first: int, last: int) -> Any:
        if first == last:
            return chain[first]
        middle = split[first, last]
        whole = first == 0 and last == len(chain) - 1
        return dot(product(first, middle), product(middle + 1, last), out if whole else None)

    return product(0, len(chain) - 1)


def _chain(chain: list[Any]) -> list[int] | None:
    """Return the sizes d of a chain of d[i] x d[i + 1] matrices; None if NumPy must multiply."""
    arrays = [x for x in chain if is_device(x) or type(x) in (np.ndarray, np.memmap)]
    if len(chain) < 2 or len(arrays) < len(chain):
        return None
    dtype = arrays[0].dtype
    # Sums of integers wrap around in whatever order they are made.
    is_ours = dtype == np.float32 or (dtype in EXACT and dtype.kind != "f")
    if not (is_ours or is_device(arrays[0])) or any(x.dtype != dtype for x in arrays):
        return None
    if any(x.ndim != 2 for x in arrays[1:-1]):
        return None
    first, last = arrays[0], arrays[-1]
    if not {first.ndim, last.ndim} <= {1, 2}:
        return None
    dims = [1 if first.ndim == 1 else first.shape[0], first.shape[-1]]
    dims += [x.shape[1] for x in arrays[1:-1]]
    dims.append(1 if last.ndim == 1 else last.shape[1])
    agree = all(x.shape[0] == size for x, size in zip(arrays[1:], dims[1:], strict=False))
    if not agree and is_device(first):
        raise ValueError(f"the inner sizes of the shapes {[x.shape for x in arrays]} differ")
    return dims if agree else None


def _cheapest_splits(dims: list[int]) -> npt.NDArray[np.intp]:
    """Return the cheapest split of each part of a chain (Cormen et al., Algorithms, 15.2)."""
    count = len(dims) - 1
    cost = np.zeros((count, count))
    split = np.zeros((count, count), dtype=np.intp)
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = [
                cost[i, s] + cost[s + 1, j] + dims[i] * dims[s + 1] * dims[j + 1]
                for s in range(i, j)
            ]
            best = int(np.argmin(costs))
            cost[i, j], split[i, j] = costs[best], i + best
    return split
