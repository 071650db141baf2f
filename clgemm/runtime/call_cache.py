"""The call cache: repeats a call of a known signature without checks and planning.

A call's signature is all that a call depends on but the operands' contents and addresses: the
function and its options, the precision, the device or queue, and the operands' kinds, shapes and
strides. The cache holds bound plans by signature.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyopencl as cl

from clgemm.core.caches import on_forget
from clgemm.hardware.choice import get_device
from clgemm.hardware.device import Device
from clgemm.hardware.forks import require_unforked
from clgemm.runtime.execute import BoundCall, execute
from clgemm.runtime.operands import AnyArray, allocated, operand_signature, overlaps_either

__all__ = ["Signature", "call_signature", "keep", "repeat"]

Signature: TypeAlias = tuple[Hashable, ...]

MOST_CALLS = 1024


class _Kept(NamedTuple):
    """What repeats a call.

    Attributes
    ----------
    shape, order
        Of a new array for the result.
    """

    bound: BoundCall
    shape: tuple[int, ...]
    order: Literal["C", "F"]


_calls: dict[Signature, _Kept] = {}
on_forget(lambda: _calls.clear())  # the name is looked up then: tests put another in its place


def call_signature(
    function: str, options: Hashable, precision: str | None, a: Any, b: Any, c: Any
) -> Signature | None:
    """Return a call's signature; None if it has none, and so is not repeated from the cache.

    Parameters
    ----------
    options : hashable
        What else decides how the function makes its product.
    precision : str or None
        As it was resolved; None if it was not.
    a, b, c : object
        The operands as they came; None for `c` if the result goes to a new array.
    """
    of_a, of_b = operand_signature(a), operand_signature(b)
    of_c = None if c is None else operand_signature(c)
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
            where = get_device()
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


def repeat(
    signature: Signature | None,
    alpha: float,
    a: Any,
    b: Any,
    beta: float,
    c: Any,
    wait_for: Sequence[cl.Event] = (),
) -> AnyArray | None:
    """Make a product of a known signature, and return its result.

    Parameters
    ----------
    a, b, c : object
        The operands that the signature was made from.

    Returns
    -------
    array or None
        None, and nothing done, if the signature is not known, or `c` may share elements with an
        operand.
    """
    if signature is None or (kept := _calls.get(signature)) is None:
        return None
    bound, shape, order = kept
    if c is None:
        c = allocated(a, shape, order, bound.space.queue)
    elif overlaps_either(c, a, b):
        return None
    execute(bound, alpha, a, b, beta, c, wait_for)
    return c


def keep(
    signature: Signature | None,
    bound: BoundCall | None,
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
) -> None:
    """Keep how a product was made, if all of it was one bound plan.

    Parameters
    ----------
    shape, order
        Of a new array for the result. Nothing is kept for a shape of no dimensions, which becomes
        a scalar.
    """
    if signature is None or bound is None or not shape or not _is_where(signature, bound):
        return
    if len(_calls) >= MOST_CALLS:
        _calls.clear()
    _calls[signature] = _Kept(bound, shape, order)


def _is_where(signature: Signature, bound: BoundCall) -> bool:
    """Tell whether a product was made where its signature says.

    A signal handler may have chosen another device in between.
    """
    where: Any = signature[0]
    return bool(bound.space.queue == (where.queue if isinstance(where, Device) else where))
