"""Products that are checked and planned once, and computed many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.core.problem import broadcast_batch
from clgemm.core.settings import chosen_precision, precision
from clgemm.hardware.device import of_queue
from clgemm.runtime import exact
from clgemm.runtime.execute import DeviceCall, bind_alone, settled_alone
from clgemm.runtime.operands import (
    FLOAT32,
    AnyArray,
    allocated,
    common_queue,
    indexable,
    is_device,
    overlaps_either,
    own_transpose,
    problem_of,
    require_out,
)
from clgemm.transfer.call_cache import DTYPES
from clgemm.transfer.multiply import multiply, multiply_exactly


class PreparedProduct:
    """A product of the same arrays, for every call: made by `prepare`.

    Attributes
    ----------
    a, b, out : array
        The operands and the result. Their contents may change between calls.
    """

    def __init__(
        self, alpha: float, a: AnyArray, b: AnyArray, beta: float, out: AnyArray, mode: Any
    ) -> None:
        self.a, self.b, self.out = a, b, out
        self._alpha, self._beta = alpha, beta
        self._precision = mode
        self._call: DeviceCall | None = None
        if is_device(out) and alpha and 0 not in (*out.shape, a.shape[-1]):
            if out.dtype == FLOAT32:
                problem, _ = problem_of(a, b, out, mode, beta)
                self._call = bind_alone(problem, of_queue(out.queue), alpha, a, b, beta, out)
            else:
                with precision(mode):
                    bound = exact.bind_arrays(a, b, out, own_transpose(a, b), is_alone=True)
                self._call = settled_alone(bound, alpha, a, b, beta, out)

    def __call__(self, wait_for: Sequence[cl.Event] = ()) -> AnyArray:
        """Compute the product and return `out`.

        Device arrays are enqueued behind all their events, and not waited for.

        Parameters
        ----------
        wait_for : sequence of pyopencl.Event, optional
            What the product waits for besides.
        """
        if self._call is not None:
            self._call.enqueue(self.a, self.b, self.out, wait_for)
        elif self.out.dtype != FLOAT32:
            if is_device(self.out):
                self.out.events.extend(wait_for)
            elif wait_for:
                cl.wait_for_events(list(wait_for))
            with precision(self._precision):
                multiply_exactly(self.a, self.b, self.out, is_optional=False)
        else:
            queue = self.out.queue if is_device(self.out) else None
            multiply(
                *(self._alpha, self.a, self.b, self._beta, self.out),
                queue=queue,
                wait_for=wait_for,
                precision=self._precision,
            )
        return self.out


def prepare(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    precision: str | None = None,
) -> PreparedProduct:
    """Prepare ``out = alpha a b + beta out`` for many calls with the same arrays.

    What `matmul` does before each product is done once: checks, planning, compiling, and setting
    the kernels' arguments. A call only enqueues. It pays for small products of device arrays.

    Parameters
    ----------
    a, b : array or pyopencl.array.Array, shapes (..., m, k) and (..., k, n)
        Both of float32, or of one other dtype that the device multiplies. Batches broadcast as
        those of `numpy.matmul`. Arrays of the host are multiplied on the device in any case.
    out : array, shape (..., m, n), optional
        The result, of the same dtype, on the same side. It may not overlap `a` or `b`. By default a
        new array, which every call overwrites; with `beta` other than 0 it must be given.
    alpha, beta : float, optional
        Factors of the product and of the former `out`, which is not read where `beta` is 0. Only
        float32 has them.
    precision : {"strict", "float32", "fast"}, optional
        By default the mode that holds now (`clgemm.precision`); later changes of it have no effect.

    Returns
    -------
    PreparedProduct
        A callable that computes the product and returns `out`.

    Raises
    ------
    ValueError
        If shapes disagree, `out` overlaps an operand, `beta` is not 0 without `out`, or another
        dtype than float32 has an `alpha` or a `beta`.
    TypeError
        If host and device arrays are mixed, or dtypes are, or the device does not multiply them.

    Examples
    --------
    >>> import numpy as np
    >>> import clgemm
    >>> a, b = np.ones((3, 2), np.float32), np.ones((2, 4), np.float32)
    >>> product = clgemm.prepare(a, b)
    >>> float(product()[0, 0])
    2.0
    >>> a[...] = 3
    >>> float(product()[0, 0])
    6.0
    """
    mode = chosen_precision(precision)
    given: dict[str, AnyArray]
    given = {"a": a, "b": b} | ({} if out is None else {"out": out})
    for name, each in given.items():
        _require_own_memory(each, name)
    dtype = given["a"].dtype
    if {each.dtype for each in given.values()} != {dtype}:
        found = ", ".join(f"{name} is {each.dtype}" for name, each in given.items())
        raise TypeError(f"{found}: all must be of one dtype")
    if dtype != FLOAT32 and (alpha, beta) != (1, 0):
        raise ValueError(f"alpha={alpha}, beta={beta}: products of {dtype} have neither")
    queue, x, y = common_queue(given, None), given["a"], given["b"]
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"a has shape {x.shape} and b has shape {y.shape}: k disagrees")
    shape = (*broadcast_batch(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    if out is None:
        if beta:
            raise ValueError(f"beta={beta} needs out, whose former contents it multiplies")
        out = allocated(x, shape, "C", queue, dtype)
    require_out(out, shape, dtype)
    if out.size and overlaps_either(out, x, y):
        raise ValueError("out may share elements with a or b")
    return PreparedProduct(float(alpha), x, y, float(beta), out, mode)


def _require_own_memory(x: Any, name: str) -> None:
    """Check that an operand needs no copy, which would not follow later changes."""
    if not (isinstance(x, np.ndarray) or is_device(x)):
        raise TypeError(f"{name} is a {type(x).__name__}, not an array of NumPy or pyopencl")
    if x.dtype != FLOAT32 and x.dtype not in DTYPES:
        raise TypeError(f"{name} is {x.dtype}, which no device multiplies")
    if isinstance(x, np.ndarray) and not indexable(x):
        raise TypeError(f"{name} is {x.dtype} with strides {x.strides}: it must be aligned")
    if x.ndim < 2:
        raise ValueError(f"{name} has shape {x.shape}, but at least two axes are needed")
