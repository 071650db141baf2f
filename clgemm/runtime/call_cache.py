"""Products like ones before: what they come to is found by one look-up, not worked out again.

Of all that a call works out - whether shapes agree, which views kernels see, which config, plan and
kernels serve - nothing depends on the operands' contents or on where they lie. So it is noted under
what it does depend on, the product's kind; the next of the kind only takes memory and enqueues.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyopencl as cl

from clgemm.core.caches import on_forget
from clgemm.core.precision import chosen_precision
from clgemm.hardware.choice import get_device
from clgemm.hardware.forks import require_unforked
from clgemm.runtime.operands import (
    ITEM_BYTES,
    AnyArray,
    HostArray,
    allocated,
    buffer_over,
    likeness,
    overlaps_either,
    start_in_buffer,
)
from clgemm.runtime.waiting import answers_signals, finish, wait
from clgemm.runtime.workspace import Prepared, Workspace

__all__ = ["Asked", "Way", "again", "note", "starts_of"]

Events: TypeAlias = Sequence[cl.Event]

MOST_KINDS = 1024


class Asked(NamedTuple):
    """What is called, and what decides how it makes a product beside the operands.

    Attributes
    ----------
    precision : str, optional
        As `clgemm.precision`.
    """

    function: str
    precision: str | None = None
    others: Hashable = None


class Way(NamedTuple):
    """How a product is made: kernels that wait for its memory.

    Attributes
    ----------
    swapped : bool
        Whether they take A for B and B for A.
    starts : tuple of int
        Of host arrays a, b and c, in which element of its buffer each begins.
    is_long : bool
        Whether a product of host arrays takes so long that signals are answered meanwhile.
    """

    space: Workspace
    prepared: Prepared
    swapped: bool
    starts: tuple[int, int, int] = (0, 0, 0)
    is_long: bool = False

    def on_device(
        self, alpha: float, a: AnyArray, b: AnyArray, beta: float, c: AnyArray, wait_for: Events
    ) -> None:
        """Enqueue C = alpha A B + beta C for device arrays, behind all their events."""
        space, prepared, swapped, _, _ = self
        events = c.events
        before = [*wait_for, *a.events, *b.events, *events]
        if swapped:
            a, b = b, a
        try:
            done = space.enqueue(
                prepared,
                {"a": a.base_data, "b": b.base_data, "c": c.base_data},
                (
                    alpha,
                    beta,
                    a.offset // ITEM_BYTES,
                    b.offset // ITEM_BYTES,
                    c.offset // ITEM_BYTES,
                ),
                before,
            )
            events[:] = (done,)  # which comes after all that were there
        except BaseException:
            with contextlib.suppress(cl.Error), space.lock:  # steps may be enqueued
                events.append(cl.enqueue_marker(space.queue))
            raise

    def on_host(
        self, alpha: float, a: HostArray, b: HostArray, beta: float, c: HostArray, wait_for: Events
    ) -> None:
        """Compute C = alpha A B + beta C where host arrays lie."""
        queue, (start_a, start_b, start_c) = self.space.queue, self.starts
        if self.swapped:
            a, b, start_a, start_b = b, a, start_b, start_a
        memory = _InPlace(queue.context, {"a": a, "b": b, "c": c})
        scalars = alpha, beta, start_a, start_b, start_c
        try:
            # Nobody knows how long a user's events take.
            if (self.is_long or wait_for) and answers_signals():
                waiting = functools.partial(wait, memory=memory)
                self.space.compute(self.prepared, memory, scalars, wait_for, waiting)
            else:
                self.space.enqueue(self.prepared, memory, scalars, wait_for).wait()
        except BaseException:
            # Commands still enqueued may read or write the caller's memory.
            finish(queue, self.space.lock, (a, b, c), memory)
            raise


class _InPlace(dict[str, cl.Buffer]):
    """Buffers over host arrays by slot, made when a launch first takes them.

    Packing the first operand runs while the next is seen to.
    """

    def __init__(self, context: cl.Context, arrays: dict[str, HostArray]) -> None:
        self._context, self._arrays = context, arrays

    def __missing__(self, slot: str) -> cl.Buffer:
        buffer = self[slot] = buffer_over(self._arrays[slot], self._context)
        return buffer


def starts_of(a: HostArray, b: HostArray, c: HostArray) -> tuple[int, int, int]:
    """Return a way's `starts` for operands like these."""
    return start_in_buffer(a), start_in_buffer(b), start_in_buffer(c)


class _Noted(NamedTuple):
    way: Way
    shape: tuple[int, ...]
    order: Literal["C", "F"]


_noted: dict[Hashable, _Noted] = {}
on_forget(lambda: _noted.clear())


def again(
    asked: Asked, alpha: float, a: Any, b: Any, beta: float, c: Any, wait_for: Events = ()
) -> AnyArray | None:
    """Make a product of a kind that was noted, and return its result.

    Parameters
    ----------
    a, b, c : object
        The operands as they came; None for `c` if the result goes to a new array.

    Returns
    -------
    array or None
        None, and nothing done, if there was none of the kind, or `c` may share elements with an
        operand.
    """
    if not _noted or (noted := _noted.get(_kind(asked, a, b, c))) is None:
        return None
    way, shape, order = noted
    if c is None:
        c = allocated(a, shape, order, way.space.queue)
    elif overlaps_either(c, a, b):
        return None
    if type(c) is np.ndarray:
        way.on_host(alpha, a, b, beta, c, wait_for)
    else:
        way.on_device(alpha, a, b, beta, c, wait_for)
    return c


def note(
    asked: Asked,
    a: Any,
    b: Any,
    c: Any,
    way: Way | None,
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
) -> None:
    """Keep the way that a product of a kind was made, if there is one, for `again`.

    Parameters
    ----------
    a, b, c : object
        As for `again`.
    shape, order
        Of a new array for the result. Nothing is kept for those of no dimensions, which become
        scalars.
    """
    if way is not None and shape and (kind := _kind(asked, a, b, c)) is not None:
        if len(_noted) >= MOST_KINDS:
            _noted.clear()
        _noted[kind] = _Noted(way, shape, order)


def _kind(asked: Asked, a: Any, b: Any, c: Any) -> Hashable:
    """Return all that a product depends on but contents and places; None if that is not clear."""
    like_a, like_b, like_c = likeness(a), likeness(b), None if c is None else likeness(c)
    if like_a is None or like_b is None or (like_c is None and c is not None):
        return None
    kind = type(a)
    if type(b) is not kind or (c is not None and type(c) is not kind):
        return None
    where: Hashable
    try:
        precision = chosen_precision(asked.precision)
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
        return None  # for the call itself to say, if it matters there
    return asked.function, asked.others, precision, where, like_a, like_b, like_c
