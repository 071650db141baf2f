"""Small products of host arrays: the calling thread sends all of it at once.

To manage tiles, pieces and threads takes half a millisecond, in which a small product is done.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyopencl as cl

from clgemm.core.layout import Layout, dense_layout, memory_order
from clgemm.core.nesting import is_within
from clgemm.core.steps import ceil_div
from clgemm.core.transfer import FLOAT_BYTES, TransferConfig
from clgemm.runtime.enqueueing import enqueue_transfer
from clgemm.runtime.execute import BoundCall
from clgemm.runtime.finite import watch
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray
from clgemm.runtime.transfer.product import TiledProduct, run_product
from clgemm.runtime.transfer.staging import Chunk, Staging, abandon
from clgemm.runtime.workspace import Workspace

__all__ = ["AtOnceCall", "fits_at_once", "multiply_at_once"]

Forms: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # shapes and strides

STEP = LARGEST_ALIGNMENT // FLOAT_BYTES  # arrays begin at multiples of so many elements


def fits_at_once(config: TransferConfig, *arrays: HostArray) -> bool:
    """Tell whether a product of these arrays is small enough."""
    sizes = [FLOAT_BYTES * _stored(x).size for x in arrays]
    most = min(config.at_once_bytes, config.memory_bytes)
    return sum(sizes) <= most and max(sizes) <= config.chunk_bytes


class _Place(NamedTuple):
    """Where the elements of a host array go: dense, in the order of its memory.

    Attributes
    ----------
    axes : tuple of int
        The array's axes, from the outermost in memory.
    chunk, first, size : int
        The number of its chunk, its first element there, and how many there are.
    start : int
        Its first element on the device, where both operands are in one buffer.
    """

    axes: tuple[int, ...]
    layout: Layout
    chunk: int
    first: int
    size: int
    start: int


class AtOnceCall(NamedTuple):
    """A product that was sent at once, to be repeated with arrays of the same shapes and strides.

    Attributes
    ----------
    bound : BoundCall
        What the device computes.
    """

    staging: Staging
    product: TiledProduct
    bound: BoundCall

    @property
    def space(self) -> Workspace:
        """The workspace of its queue."""
        return self.product.space

    def repeat(self, alpha: float, a: HostArray, b: HostArray, beta: float, c: HostArray) -> None:
        """Make the product of other arrays; those of the first call may have been views of them."""
        product = self.product._replace(alpha=alpha, beta=beta)
        _make(self.staging, product, self.bound, (a, b, c))


def multiply_at_once(
    staging: Staging, product: TiledProduct, a: HostArray, b: HostArray, c: HostArray
) -> AtOnceCall | None:
    """Multiply host arrays; the result is in `c` on return, and nothing is written there before.

    Parameters
    ----------
    a, b, c : float32 array
        As for `multiply_through`, with as many axes. They fit, and have elements.

    Returns
    -------
    AtOnceCall or None
        What repeats the product; None if arrays repeat their elements.
    """
    arrays = _stored(a), _stored(b), c
    places = _places(_forms(arrays), product.beta != 0, staging.config.chunk_bytes // FLOAT_BYTES)
    bound = product.bind(*(each.layout for each in places))  # may compile: no chunk waits for that
    _make(staging, product, bound, arrays)
    if not all(map(_has_one_order, (a, b, c))):
        return None
    return AtOnceCall(staging, product._replace(wait_for=(), advance=int), bound)


def _make(
    staging: Staging, product: TiledProduct, bound: BoundCall, arrays: tuple[HostArray, ...]
) -> None:
    is_nested = is_within(run_product)
    run_product(lambda: _run(staging, product, bound, arrays, is_nested))
    product.advance(arrays[2].size * arrays[0].shape[-1])


def _run(
    staging: Staging,
    product: TiledProduct,
    bound: BoundCall,
    arrays: tuple[HostArray, ...],
    is_nested: bool,
) -> None:
    space, reads_c = product.space, product.beta != 0
    places = _places(_forms(arrays), reads_c, staging.config.chunk_bytes // FLOAT_BYTES)
    views = [x.transpose(each.axes) for x, each in zip(arrays, places, strict=True)]
    (_, of_b, of_c), count = places, 1 + max(each.chunk for each in places)
    with staging.lent(count, space.lock, is_nested) as chunks:
        hosts = [
            chunks[each.chunk][each.first : each.first + each.size].reshape(x.shape)
            for x, each in zip(views, places, strict=True)
        ]
        memory: list[object] = [*chunks]
        try:
            memory.append(operands := product.allocate(of_b.start + of_b.size))
            memory.append(result := product.allocate(of_c.size))
            sent = []
            for number in range(1 + of_b.chunk):
                inside = [i for i in (0, 1) if places[i].chunk == number]
                for i in inside:
                    np.copyto(hosts[i], views[i])
                ends = places[inside[0]], places[inside[-1]]
                sent.append(_send(space, operands, chunks[number], *ends))
            if reads_c:
                np.copyto(hosts[2], views[2])
                sent.append(_send(space, result, chunks[of_c.chunk], of_c, of_c))
            _multiply(product, bound, operands, result, places, hosts[2], sent).wait()
        except BaseException:
            abandon(space.queue, space, chunks, memory)
            raise
        asked = None if is_nested else watch()
        if asked is not None and _is_finite(hosts[2]):
            asked.elements += of_c.size
        np.copyto(views[2], hosts[2])


def _send(
    space: Workspace, buffer: cl.Buffer, chunk: Chunk, first: _Place, last: _Place
) -> cl.Event:
    """Enqueue the transfer of what is in a chunk, from one array to another."""
    host = chunk[first.first : last.first + last.size]
    with space.lock:
        before = () if space.order.is_in_order else space.order.pending()
        place = FLOAT_BYTES * first.start
        event = enqueue_transfer(space.queue, True, buffer, place, host, before)
        space.queue.flush()
    return event


def _multiply(
    product: TiledProduct,
    bound: BoundCall,
    operands: cl.Buffer,
    result: cl.Buffer,
    places: Sequence[_Place],
    host: HostArray,
    sent: list[cl.Event],
) -> cl.Event:
    """Enqueue the product, and the transfer of its result to the host."""
    space, is_in_order = product.space, product.space.order.is_in_order
    with space.lock:
        a, b = (Matrix(operands, each.start, each.layout) for each in places[:2])
        c = Matrix(result, 0, places[2].layout)
        made = product.enqueue(bound, a, b, c, True, [] if is_in_order else sent)
        event = enqueue_transfer(space.queue, False, result, 0, host, [] if is_in_order else [made])
        space.queue.flush()
    return event


def _forms(arrays: tuple[HostArray, ...]) -> Forms:
    return tuple((x.shape, x.strides) for x in arrays)


@functools.lru_cache(maxsize=256)
def _places(forms: Forms, reads_c: bool, chunk_elements: int) -> tuple[_Place, ...]:
    """Place A, B and C one after the other, each whole in a chunk.

    A C that is not read comes back to the first chunk, which is free again then. It has a buffer
    of its own: kernels may take it that what they write to is no operand's.
    """
    places: list[_Place] = []
    chunk = used = start = 0
    for shape, strides in forms:
        axes, size = memory_order(strides), math.prod(shape)
        is_c = len(places) == 2
        if is_c and not reads_c:
            chunk = used = 0
        elif used + size > chunk_elements:
            chunk, used = chunk + 1, 0
        layout = dense_layout(shape, axes, LARGEST_ALIGNMENT)
        places.append(_Place(axes, layout, chunk, used, size, 0 if is_c else start))
        room = ceil_div(size, STEP) * STEP
        used, start = used + room, start + room
    return tuple(places)


def _stored(x: HostArray) -> HostArray:
    """Return a batch without what is repeated along its axes."""
    if 0 not in x.strides[:-2]:
        return x
    return x[tuple(slice(0, None if stride else 1) for stride in x.strides[:-2])]


def _has_one_order(x: HostArray) -> bool:
    """Tell whether an array's elements have one order in memory, however its axes are permuted."""
    strides = [abs(s) for n, s in zip(x.shape, x.strides, strict=True) if n > 1]
    return 0 not in strides and len({*strides}) == len(strides)


def _is_finite(x: HostArray) -> bool:
    """Tell whether all elements are finite, as far as their sum does not overflow."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.add.reduce(x, axis=None)))
