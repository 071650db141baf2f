"""`multi_dot`: a chain of matrices, multiplied in the cheapest order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clgemm.numpy_rules import EXACT
from clgemm.products import dot
from clgemm.runtime.operands import AnyArray, common_queue, float32_operand, is_device, rearranged

__all__ = ["multi_dot"]


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """Multiply a chain of matrices in the cheapest order, as `numpy.linalg.multi_dot` does.

    Parameters
    ----------
    arrays : sequence of array_like or pyopencl.array.Array
        Matrices; the first and the last may be vectors.
    out : array, optional
        As for `dot`. In a chain of three or more arrays, NumPy treats a vector at either end as a
        matrix. Then `out` has the shape (m, 1), (1, n) or (1, 1). A device array may also have the
        shape of the result.

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
    named = {f"array {i}": x for i, x in enumerate(chain)}
    if common_queue(named, None) is not None:
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
    if not is_ours or any(x.dtype != dtype for x in arrays):
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
