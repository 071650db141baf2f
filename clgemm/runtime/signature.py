"""The call signature: everything that a call's plan depends on, without data and addresses."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np
import pyopencl as cl
import pyopencl.tools
from pyopencl.array import Array as DeviceArray

from clgemm.hardware.choice import chosen
from clgemm.hardware.forks import require_unforked
from clgemm.runtime.operands import (
    FLOAT32,
    HOST_MEMORY,
    LARGEST_ALIGNMENT,
    same_memory,
    usable_in_place,
)

__all__ = ["Signature", "call_signature"]

Signature: TypeAlias = tuple[Hashable, ...]

# Types of device memory whose base is aligned (unless it is host memory): an array's offset gives
# its alignment.
BUFFERS = frozenset({cl.Buffer, cl.tools.PooledBuffer})


def call_signature(
    function: str,
    options: Hashable,
    precision: str | None,
    a: Any,
    b: Any,
    c: Any,
    queue: cl.CommandQueue | None = None,
) -> Signature | None:
    """Return a call's signature; None if it has none, so that the call is not cached.

    Parameters
    ----------
    options : hashable
        Everything else that the function's plan depends on.
    precision : str or None
        The resolved precision; None if the setting is wrong.
    a, b, c : object
        The arguments of the call; None for `c` if the result goes to a new array.
    queue : pyopencl.CommandQueue, optional
        Where host arrays are multiplied, if not on the chosen devices.

    Returns
    -------
    tuple or None
        The last item tells whether `a` and `b` have one first element.
    """
    of_a, of_b = _operand_signature(a), _operand_signature(b)
    of_c = None if c is None else _operand_signature(c)
    kind = type(a)
    if (
        of_a is None
        or of_b is None
        or precision is None
        or type(b) is not kind
        or (c is not None and (of_c is None or type(c) is not kind))
    ):
        return None
    where: Hashable
    try:
        if kind is np.ndarray:
            where = chosen() if queue is None else queue
        else:
            require_unforked()
            where = own = a.queue
            if own is None or not (
                (b.queue is own or b.context == own.context)
                and (c is None or c.queue is own or c.context == own.context)
            ):
                return None
    except (ValueError, RuntimeError):
        return None  # if the call needs a device, the call raises this error
    return where, function, options, precision, of_a, of_b, of_c, same_memory(a, b)


def _operand_signature(x: object) -> tuple[Any, ...] | None:
    """Return the operand's part of a call's signature; None if the call has no signature.

    Plans do not distinguish operands with the same signature.
    """
    if type(x) is DeviceArray:
        memory: Any = x.base_data
        if x.dtype is not FLOAT32 or type(memory) not in BUFFERS or memory.flags & HOST_MEMORY:
            return None
        return x.shape, x.strides, x.offset % LARGEST_ALIGNMENT
    if type(x) is np.ndarray and usable_in_place(x):
        return x.shape, x.strides, x.flags.writeable
    return None
