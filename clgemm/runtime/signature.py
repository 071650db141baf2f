"""The call signature: all that a call depends on but its operands' contents and addresses."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np
import pyopencl as cl
import pyopencl.tools

from clgemm.hardware.choice import get_devices
from clgemm.hardware.forks import require_unforked
from clgemm.runtime.operands import (
    FLOAT32,
    HOST_MEMORY,
    LARGEST_ALIGNMENT,
    DeviceArray,
    usable_in_place,
)

__all__ = ["Signature", "call_signature"]

Signature: TypeAlias = tuple[Hashable, ...]

# Memory of device arrays that is aligned as their offsets say, unless it is the host's.
BUFFERS = frozenset({cl.Buffer, cl.tools.PooledBuffer})


def call_signature(
    function: str, options: Hashable, precision: str | None, a: Any, b: Any, c: Any
) -> Signature | None:
    """Return a call's signature; None if it has none, and so is not kept in the call cache.

    Parameters
    ----------
    options : hashable
        What else decides how the function makes its product.
    precision : str or None
        As it was resolved; None if it was not.
    a, b, c : object
        The operands as they came; None for `c` if the result goes to a new array.
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
            where = get_devices()
        else:
            require_unforked()
            where = queue = a.queue
            if queue is None or not (
                (b.queue is queue or b.context == queue.context)
                and (c is None or c.queue is queue or c.context == queue.context)
            ):
                return None
    except (ValueError, RuntimeError):
        return None  # the call itself says so, if it matters there
    return where, function, options, precision, of_a, of_b, of_c


def _operand_signature(x: object) -> tuple[Any, ...] | None:
    """Return the operand's part of a call's signature; None if the call has none.

    Operands with one signature may stand for each other wherever only the layout counts.
    """
    if type(x) is DeviceArray:
        memory: Any = x.base_data
        if x.dtype is not FLOAT32 or type(memory) not in BUFFERS or memory.flags & HOST_MEMORY:
            return None
        return x.shape, x.strides, x.offset % LARGEST_ALIGNMENT
    if type(x) is np.ndarray and usable_in_place(x):
        return x.shape, x.strides, x.flags.writeable
    return None
