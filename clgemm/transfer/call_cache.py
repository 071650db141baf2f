"""The call cache: it repeats a call of a known signature without checks and planning.

It holds bound plans by call signature: everything that a call's plan depends on, without data and
addresses. A call with the same device arrays as one before is found by the arrays' identities,
which is faster than to make its signature.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyopencl as cl
import pyopencl.tools
from pyopencl.array import Array as DeviceArray

from clgemm.core.cache import note, on_forget
from clgemm.core.settings import chosen_precision
from clgemm.hardware.choice import chosen
from clgemm.hardware.forks import keep_in_children, require_unforked
from clgemm.kernels.exact.types import RESULTS
from clgemm.runtime.execute import BoundCall, DeviceCall, execute, settled
from clgemm.runtime.host_pages import NotInPlaceError
from clgemm.runtime.operands import (
    FLOAT32,
    HOST_MEMORY,
    LARGEST_ALIGNMENT,
    AnyArray,
    allocated,
    overlaps_either,
    same_memory,
    usable_in_place,
)
from clgemm.transfer.resident import alignment_there, any_held
from clgemm.transfer.single_transfer import SingleTransfer

MOST_CALLS = 1024
MOST_SAME = 256
DTYPES = frozenset(map(np.dtype, RESULTS))  # besides float32
# Types of device memory whose base is aligned (unless it is host memory): an array's offset gives
# its alignment.
BUFFERS = frozenset({cl.Buffer, cl.tools.PooledBuffer})

Signature: TypeAlias = tuple[Hashable, ...]

# A function, its options, the precision, alpha and beta.
Settings: TypeAlias = tuple[str, Hashable, "str | None", float, float]


class CachedCall(NamedTuple):
    """A bound plan, and how to allocate the result.

    Attributes
    ----------
    shape, order
        The shape and the memory order of a new array for the result.
    dtype : numpy.dtype
        That of the result.
    """

    bound: BoundCall | SingleTransfer
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype[Any]


class SameArrays(NamedTuple):
    """A call with three device arrays, for the next one with the same.

    Attributes
    ----------
    state : tuple
        What the call depends on, of each array: memory, place, layout, type and queue.
    references : tuple of weakref.ref
        The arrays. When one is deleted, this object is too, and with it its hold on the memory.
    """

    bound: BoundCall
    call: DeviceCall
    state: tuple[Any, ...]
    settings: Settings
    references: tuple[weakref.ref[Any], ...]


_calls: dict[Signature, CachedCall] = {}
_same: dict[int, SameArrays] = {}  # by the identity of the result
_last: tuple[Any, ...] | None = None  # the last call that was not found in `_same`


def _forget() -> None:
    _calls.clear()
    _same.clear()


on_forget(_forget)
keep_in_children(lambda: (dict(_calls), dict(_same)), _forget)  # there, the calls raise an error


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
        if type(memory) not in BUFFERS or memory.flags & HOST_MEMORY:
            return None
        if x.dtype is FLOAT32:
            return x.shape, x.strides, x.offset % LARGEST_ALIGNMENT
        if x.dtype not in DTYPES:
            return None
        return x.shape, x.strides, x.offset % LARGEST_ALIGNMENT, x.dtype.char
    if type(x) is np.ndarray and usable_in_place(x):
        lying = x.shape, x.strides, x.flags.writeable
        return (*lying, alignment_there(x)) if any_held() else lying
    return None


def repeat(
    function: str,
    options: Hashable,
    precision: str | None,
    alpha: float,
    a: Any,
    b: Any,
    beta: float,
    c: Any,
    wait_for: Sequence[cl.Event] = (),
    queue: cl.CommandQueue | None = None,
) -> tuple[AnyArray | None, Signature | None]:
    """Make a product by a cached call, if there is one for its operands.

    Parameters
    ----------
    function, options, precision, a, b, c, queue : object
        As for `call_signature`.

    Returns
    -------
    array or None
        The result. None if nothing is computed: no call is cached, or `c` may share elements with
        an operand.
    signature or None
        For `remember`; None if there is a result, or the call has no signature.
    """
    are_device = type(c) is type(a) is type(b) is DeviceArray
    settings = function, options, precision, alpha, beta
    if are_device and _again(settings, a, b, c, wait_for):
        return c, None
    signature = call_signature(function, options, precision, a, b, c, queue)
    if beta and signature is not None and signature[-1]:
        return None, None  # C may be symmetric, unless something is added
    cached = None if signature is None else _calls.get(signature)
    if cached is None:
        return None, signature
    bound, shape, order, dtype = cached
    if wait_for and not are_device:
        return None, signature
    if c is None:
        c = allocated(a, shape, order, bound.space.queue, dtype)
    elif overlaps_either(c, a, b):
        return None, signature
    elif are_device and not isinstance(bound, SingleTransfer):
        _keep(settings, bound, a, b, c)
    if isinstance(bound, SingleTransfer):
        if not bound.repeat(alpha, a, b, beta, c):
            return None, signature
    else:
        try:
            execute(bound, alpha, a, b, beta, c, wait_for)
        except NotInPlaceError:
            return None, signature
    return c, None


def again(function: str, a: Any, b: Any, c: Any) -> bool:
    """Make the product of two device arrays into a third by a cached call with the same arrays.

    Returns
    -------
    bool
        False if nothing is computed: no such call is cached, or a setting is wrong.
    """
    if id(c) not in _same:
        return False
    try:
        settings = function, None, chosen_precision(), 1.0, 0.0
    except ValueError:
        return False
    return _again(settings, a, b, c, ())


def _again(settings: Settings, a: Any, b: Any, c: Any, wait_for: Sequence[cl.Event]) -> bool:
    same = _same.get(id(c))
    if same is None or same.state != _state(a, b, c):
        return False
    if same.settings != settings:
        # A result to which nothing is added may be symmetric.
        if same.settings[:3] != settings[:3] or (same.settings[4] == 0) != (settings[4] == 0):
            return False
        call = settled(same.bound, settings[3], a, b, settings[4], c)
        same = _same[id(c)] = same._replace(call=call, settings=settings)
    same.call.enqueue(a, b, c, wait_for)
    return True


def _state(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    """Return what a call depends on, of three device arrays. Equal parts are mostly identical."""
    return (
        *(a.base_data, a.shape, a.strides, a.offset, a.dtype, a.queue),
        *(b.base_data, b.shape, b.strides, b.offset, b.dtype, b.queue),
        *(c.base_data, c.shape, c.strides, c.offset, c.dtype, c.queue),
    )


def _keep(settings: Settings, bound: BoundCall, a: Any, b: Any, c: Any) -> None:
    """Keep a call for the next one with the same arrays, the second time in a row.

    Each result has one such call.
    """
    global _last
    now = *settings[:3], id(a), id(b), id(c)
    if now != _last:
        _last = now
        return
    key = id(c)

    def drop(_: Any) -> None:
        _same.pop(key, None)

    references = tuple(weakref.ref(x, drop) for x in (a, b, c))
    call = settled(bound, settings[3], a, b, settings[4], c)
    note(_same, key, SameArrays(bound, call, _state(a, b, c), settings, references), MOST_SAME)


def remember(
    signature: Signature | None,
    bound: BoundCall | SingleTransfer | None,
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
    dtype: np.dtype[Any] = FLOAT32,
) -> None:
    """Add a call to the cache, if one bound plan made the whole product.

    Parameters
    ----------
    shape, order, dtype
        The shape, the memory order and the dtype of a new array for the result. A result without
        dimensions is not cached, because it becomes a scalar.
    """
    if signature is None or bound is None or not shape or not _is_where(signature, bound):
        return
    note(_calls, signature, CachedCall(bound, shape, order, dtype), MOST_CALLS)


def _is_where(signature: Signature, bound: BoundCall | SingleTransfer) -> bool:
    """Return whether a product was made on the device or queue in its signature.

    A signal handler may have chosen another device meanwhile.
    """
    where: Any = signature[0]
    queue = where[0].queue if isinstance(where, tuple) else where
    if isinstance(bound, SingleTransfer):  # has a queue of its own there
        return bool(bound.space.queue.context == queue.context)
    return bool(bound.space.queue == queue)
