"""The call cache: it repeats a call of a known signature without checks and planning.

It holds bound plans by call signature. `clgemm.runtime.signature` says what a signature is.
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
    """A bound plan, and how to allocate the result.

    Attributes
    ----------
    shape, order
        The shape and the memory order of a new array for the result.
    """

    bound: BoundCall
    shape: tuple[int, ...]
    order: Literal["C", "F"]


_calls: dict[Signature, CachedCall] = {}
on_forget(lambda: _calls.clear())  # a lambda, because tests replace `_calls`


def find(signature: Signature | None) -> CachedCall | None:
    """Return the cached call of a signature, or None."""
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
    """Make a product by a cached call, and return its result.

    Parameters
    ----------
    a, b, c : object
        The operands that the signature was made from.

    Returns
    -------
    array or None
        None if `c` may share elements with an operand. Then nothing is computed.
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
    """Add a call to the cache, if one bound plan made the whole product.

    Parameters
    ----------
    shape, order
        The shape and the memory order of a new array for the result. A result without dimensions is
        not cached, because it becomes a scalar.
    """
    if signature is None or bound is None or not shape or not _is_where(signature, bound):
        return
    if len(_calls) >= MOST_CALLS:
        _calls.clear()
    _calls[signature] = CachedCall(bound, shape, order)


def _is_where(signature: Signature, bound: BoundCall) -> bool:
    """Tell whether a product was made on the device or queue in its signature.

    A signal handler may have chosen another device meanwhile.
    """
    where: Any = signature[0]
    return bool(bound.space.queue == (where[0].queue if isinstance(where, tuple) else where))
