"""Accelerated products on a device: one that is repeated is neither checked nor planned again."""

from __future__ import annotations

import pyopencl as cl

from clgemm.contraction import contracted
from clgemm.core.precision import chosen_precision
from clgemm.runtime.call_cache import remember, repeat
from clgemm.runtime.launch import multiply
from clgemm.runtime.operands import AnyArray, HostArray

__all__ = ["dot_of", "multiply_into"]


def multiply_into(x: HostArray, y: HostArray, c: HostArray, queue: cl.CommandQueue | None) -> None:
    """Multiply batches of matrices into `c`, as `multiply` does.

    Parameters
    ----------
    queue : pyopencl.CommandQueue or None
        Where; None for the chosen devices.
    """
    precision = chosen_precision()
    made, signature = repeat("accelerated matmul", None, precision, 1.0, x, y, 0.0, c, queue=queue)
    if made is None:
        bound = multiply(1.0, x, y, 0.0, c, queue=queue, precision=precision)
        remember(signature, bound, c.shape)


def dot_of(
    x: HostArray,
    y: HostArray,
    shape: tuple[int, ...],
    out: HostArray | None,
    queue: cl.CommandQueue | None,
) -> AnyArray:
    """Return dot(x, y), as `contracted` does."""
    precision = chosen_precision()
    made, signature = repeat("accelerated dot", None, precision, 1.0, x, y, 0.0, out, queue=queue)
    if made is None:
        made, bound = contracted(x, y, shape, out, queue, precision)
        remember(signature, bound, shape)
    return made
