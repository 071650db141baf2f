"""Small products of host arrays, without tiles: both operands go in, one plan runs, C comes back.

To manage tiles takes half a millisecond, in which a small product is done. The smallest are copied
by the caller, and sent in one transfer if they fit; others by threads, in a few pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from clgemm.core.plan import expected_us
from clgemm.core.problem import FLOAT_BYTES
from clgemm.core.threads import is_within
from clgemm.kernels.finite.plan import count_flags
from clgemm.runtime.enqueueing import enqueue_transfer
from clgemm.runtime.execute import BoundCall
from clgemm.runtime.finite import are_all_set, watch
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import HostArray
from clgemm.runtime.progress import begun
from clgemm.runtime.transfer.checks import Check, check_of
from clgemm.runtime.transfer.crew import SIGNALS_SECONDS, Crew
from clgemm.runtime.transfer.product import TiledProduct, run_product
from clgemm.runtime.transfer.route import PlacedCopy, Route, Transfer, copies, make_route
from clgemm.runtime.transfer.staging import Chunk, Staging, abandon
from clgemm.runtime.workspace import Workspace

__all__ = ["AtOnceCall", "plan_at_once"]

# More threads wait longer for the interpreter's lock than they save, of up to 64 MiB: measured with
# 16 Xeon cores beside an H100 (2026-11-26).
MOST_THREADS = 6


class AtOnceCall(NamedTuple):
    """A product that is sent at once, with any arrays of the same shapes and strides.

    Attributes
    ----------
    bound : BoundCall
        What the device computes.
    work : int
        The multiply-adds of the product.
    """

    staging: Staging
    product: TiledProduct
    bound: BoundCall
    work: int

    @property
    def space(self) -> Workspace:
        """The workspace of its queue."""
        return self.product.space

    def make(self, a: HostArray, b: HostArray, c: HostArray) -> None:
        """Make the product; the result is in `c` on return."""
        product, is_nested = self.product, is_within(run_product)
        arrays = _stored(a), _stored(b), c
        # A product within another one does not tell for it.
        asked = None if is_nested else watch()
        check = None if asked is None else check_of(product, c.size)
        flags = np.zeros(0 if check is None else check.flags, np.float32)
        config = self.staging.config
        route = make_route(arrays, product.beta != 0, config, is_nested, flags.size)
        run_product(lambda: _run(self, route, (*arrays, flags), is_nested, check))
        if asked is not None and are_all_set(flags):
            asked.elements += c.size
        self.product.advance(self.work)

    def repeat(self, alpha: float, a: HostArray, b: HostArray, beta: float, c: HostArray) -> None:
        """Make the product of other arrays; those of the first call may have been views of them."""
        meter = begun(self.work)
        advance = int if meter is None else meter.advance
        product = self.product._replace(alpha=alpha, beta=beta, advance=advance)
        self._replace(product=product).make(a, b, c)
        if meter is not None:
            meter.end()

    def reusable(self, *arrays: HostArray) -> AtOnceCall | None:
        """Return what repeats the product, with nothing of the first call.

        None if the elements of an array have more than one order in memory, depending on how it is
        viewed.
        """
        if not all(map(_has_one_order, arrays)):
            return None
        return self._replace(product=self.product._replace(advance=int))


def plan_at_once(
    staging: Staging, product: TiledProduct, a: HostArray, b: HostArray, c: HostArray
) -> AtOnceCall | None:
    """Return what makes a product of host arrays, built and set up; None if it is not small.

    Parameters
    ----------
    a, b, c : float32 array
        As for `multiply_through`, with as many axes. They have elements.
    """
    config, arrays = staging.config, (_stored(a), _stored(b), c)
    moved_bytes = FLOAT_BYTES * sum(x.size for x in arrays)
    if moved_bytes > min(config.at_once_bytes, config.memory_bytes):
        return None
    flags = count_flags(c.size, product.device.limits)  # there may be none in the end
    route = make_route(arrays, product.beta != 0, config, is_within(run_product), flags)
    if route.chunks > config.chunks:
        return None
    bound = product.bind(*route.layouts, is_whole=True)  # may compile: no chunk waits for that
    if route.is_threaded:
        taken_us = expected_us(bound.plan.plan, product.device.limits)
        if taken_us > config.at_once_us:
            return None
    return AtOnceCall(staging, product, bound, c.size * a.shape[-1])


def _run(
    call: AtOnceCall,
    route: Route,
    arrays: tuple[HostArray, ...],
    is_nested: bool,
    check: Check | None,
) -> None:
    staging, product, space = call.staging, call.product, call.space
    views = [x.transpose(axes) for x, axes in zip(arrays, route.axes, strict=False)]
    views.append(arrays[-1])
    with staging.lent(route.chunks, space.lock, is_nested) as chunks:
        crew: Crew[PlacedCopy] | None = None
        if route.is_threaded:
            crew = Crew(staging, True, MOST_THREADS)
        try:
            filled = _made(crew, copies(route.up, views, chunks, is_up=True))
            buffers = [product.allocate(size) for size in route.sizes]
            for copy in filled:
                if copy.is_last:
                    into = buffers[copy.number >= route.operands]
                    _send(space, into, chunks, route.up[copy.number])
            arriving = _multiply(call, buffers, route, chunks, check)
            results = copies(route.down, views, chunks, is_up=False)
            if crew is None:
                _store_here(results, arriving)
            else:
                of_c = len(route.down) - (check is not None)
                _store(crew, results, arriving, of_c)
        except BaseException:
            if crew is not None:
                crew.abandon()
            abandon(space.queue, space)
            raise


def _made(crew: Crew[PlacedCopy] | None, wanted: Iterator[PlacedCopy]) -> Iterator[PlacedCopy]:
    """Hand out copies; yield each when it is made, by the caller where there is no crew."""
    if crew is None:
        return _made_here(wanted)
    for copy in wanted:
        crew.copy(copy)
    return _returned(crew)


def _made_here(wanted: Iterator[PlacedCopy]) -> Iterator[PlacedCopy]:
    for copy in wanted:
        np.copyto(copy.target, copy.source)
        yield copy


def _returned(crew: Crew[PlacedCopy]) -> Iterator[PlacedCopy]:
    """Yield the copies that have been handed out, as they are made."""
    while crew.under_way:
        yield from crew.done(SIGNALS_SECONDS)


def _store_here(results: Iterator[PlacedCopy], arriving: Sequence[cl.Event]) -> None:
    """Copy the result when all of it is there."""
    for event in arriving:
        event.wait()
    for each in results:
        np.copyto(each.target, each.source)


def _store(
    crew: Crew[PlacedCopy],
    results: Iterator[PlacedCopy],
    arriving: Sequence[cl.Event],
    of_c: int,
) -> None:
    """Have each part of the result copied when it is there.

    If a later part fails on the device, some parts are written.

    Parameters
    ----------
    of_c : int
        How many transfers belong to C.
    """
    for each, event in zip(results, arriving, strict=True):
        event.wait()
        if each.number < of_c:
            crew.copy(each)
        else:  # flags are copied before a thread would take them
            np.copyto(each.target, each.source)
    for _ in _returned(crew):
        pass


def _send(space: Workspace, buffer: cl.Buffer, chunks: Sequence[Chunk], transfer: Transfer) -> None:
    """Enqueue the transfer of what is in a chunk."""
    with space.lock:
        _enqueue(space, True, buffer, chunks, transfer)
        space.queue.flush()


def _enqueue(
    space: Workspace, is_up: bool, buffer: cl.Buffer, chunks: Sequence[Chunk], transfer: Transfer
) -> cl.Event:
    host = chunks[transfer.chunk][transfer.first : transfer.first + transfer.size]
    return enqueue_transfer(space.queue, is_up, buffer, FLOAT_BYTES * transfer.start, host, ())


def _multiply(
    call: AtOnceCall,
    buffers: Sequence[cl.Buffer],
    route: Route,
    chunks: Sequence[Chunk],
    check: Check | None,
) -> list[cl.Event]:
    """Enqueue the product, its check, and the transfers of its result to the host."""
    product, space, (operands, result) = call.product, call.space, buffers
    with space.lock:
        a, b = (
            Matrix(operands, start, layout)
            for start, layout in zip(route.starts, route.layouts, strict=False)
        )
        c = Matrix(result, 0, route.layouts[2])
        product.enqueue(call.bound, a, b, c, True, [])
        if check is not None:
            check.enqueue(result, result, route.sizes[1] - check.flags, ())
        events = _fetch(space, result, chunks, route)
        space.queue.flush()
    return events


def _fetch(
    space: Workspace, buffer: cl.Buffer, chunks: Sequence[Chunk], route: Route
) -> list[cl.Event]:
    """Enqueue the transfers of the result to the host.

    A function of its own: if a tracer raises an exception in a comprehension, Python 3.12 does not
    leave the with block around it.
    """
    return [_enqueue(space, False, buffer, chunks, each) for each in route.down]


def _stored(x: HostArray) -> HostArray:
    """Return a batch without what is repeated along its axes."""
    if 0 not in x.strides[:-2]:
        return x
    return x[tuple(slice(0, None if stride else 1) for stride in x.strides[:-2])]


def _has_one_order(x: HostArray) -> bool:
    strides = [abs(s) for n, s in zip(x.shape, x.strides, strict=True) if n > 1]
    return 0 not in strides and len({*strides}) == len(strides)
