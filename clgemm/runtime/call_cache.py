"""The call cache: repeats a call of a known signature without checks and planning.

A call's signature (`call_signature`) is all that it depends on but the operands' contents and
addresses. The cache holds bound plans by signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import pyopencl as cl

from clgemm.core.caches import on_forget
from clgemm.runtime.execute import BoundCall, execute
from clgemm.runtime.operands import AnyArray, allocated, overlaps_either
from clgemm.runtime.signature import Signature

__all__ = ["CachedCall", "find", "remember", "repeat"]

MOST_CALLS = 1024


class CachedCall(NamedTuple):
    """What repeats a call.

    Attributes
    ----------
    shape, order
        Of a new array for the result.
    """

    bound: BoundCall
    shape: tuple[int, ...]
    order: Literal["C", "F"]


_calls: dict[Signature, CachedCall] = {}
on_forget(lambda: _calls.clear())  # the name is looked up then: tests put another in its place


def find(signature: Signature | None) -> CachedCall | None:
    """Return what repeats calls of a signature; None if there is nothing yet."""
    return None if signature is None else _calls.get(signature)


def repeat(
    cached: CachedCall,
    alpha: float,
    a: Any,
    b: Any,
    beta: float,
    c: Any,
    wait_for: Sequence[cl.Event] = (),
) -> AnyArray | None:
    """Make a product of a signature that was found, and return its result.

    Parameters
    ----------
    a, b, c : object
        The operands that the signature was made from.

    Returns
    -------
    array or None
        None, and nothing done, if `c` may share elements with an operand.
    """
    bound, shape, order = cached
    if c is None:
        c = allocated(a, shape, order, bound.space.queue)
    elif overlaps_either(c, a, b):
        return None
    execute(bound, alpha, a, b, beta, c, wait_for)
    return c


def remember(
    signature: Signature | None,
    bound: BoundCall | None,
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
) -> None:
    """Cache how a product was made, if one bound plan made all of it.

    Parameters
    ----------
    shape, order
        Of a new array for the result. Nothing is cached for a shape of no dimensions, which becomes
        a scalar.
    """
    if signature is None or bound is None or not shape or not _is_where(signature, bound):
        return
    if len(_calls) >= MOST_CALLS:
        _calls.clear()
    _calls[signature] = CachedCall(bound, shape, order)


def _is_where(signature: Signature, bound: BoundCall) -> bool:
    """Tell whether a product was made where its signature says.

    A signal handler may have chosen another device in between.
    """
    where: Any = signature[0]
    return bool(bound.space.queue == (where[0].queue if isinstance(where, tuple) else where))
