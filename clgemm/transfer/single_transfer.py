"""Products small enough for one transfer: both operands go in, one plan runs, C comes back.

Tiling costs 0.5 ms, more than a small product takes. The smallest products are copied by the
caller, and sent in one transfer if they fit; others by threads, in a few pieces.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyopencl as cl

from clgemm.core.plan import expected_us, round_up
from clgemm.core.problem import FLOAT_BYTES, Layout, dense_layout, memory_order
from clgemm.core.threads import is_within
from clgemm.core.transfer import Block, TransferConfig, pieces
from clgemm.kernels.finite.plan import count_flags
from clgemm.runtime.enqueueing import enqueue_transfer
from clgemm.runtime.execute import BoundCall
from clgemm.runtime.finite import Check, are_all_set, check_of, watch
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray, Matrix
from clgemm.runtime.progress import begun
from clgemm.runtime.workspace import Workspace
from clgemm.transfer.copy_threads import SIGNALS_SECONDS, ArrayCopy, Copier
from clgemm.transfer.resident import NO_COPIES, OperandCopies, StaleError, operand_copies
from clgemm.transfer.staging import Chunk, Staging, abandon
from clgemm.transfer.tiles import TiledProduct, run_product

Resident: TypeAlias = tuple[Matrix | None, Matrix | None]  # copies of A and B on the device
CopyLayouts: TypeAlias = tuple[Layout | None, Layout | None]  # theirs
Forms: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # shapes and strides

STEP = LARGEST_ALIGNMENT // FLOAT_BYTES  # arrays begin at multiples of so many elements
# Pieces that threads copy: about so many of a product, unless they would be smaller than that.
PIECES, SMALLEST_PIECE_BYTES = 18, 2**20
# Threads copy from so many times the bytes on from which they do for a product of tiles: the caller
# has little else to do. Beside an H100, they take 0.8 to 1.2 times as long for 5 to 8 MB, and half
# to 0.8 for more (2026-11-26).
THREADED_FACTOR = 2
# More threads wait longer for the interpreter's lock than they save, of up to 64 MiB: measured with
# 16 Xeon cores beside an H100 (2026-11-26).
MOST_THREADS = 6


class SingleTransfer(NamedTuple):
    """A product in one transfer, of any arrays with the same shapes and strides.

    Attributes
    ----------
    bound : BoundCall
        What the device computes.
    work : int
        The multiply-adds of the product.
    there : pair of Layout or None
        How A and B lie in the device's copies of them; None for one that is sent.
    """

    staging: Staging
    product: TiledProduct
    bound: BoundCall
    work: int
    there: CopyLayouts

    @property
    def space(self) -> Workspace:
        """The workspace of its queue."""
        return self.product.space

    def compute(
        self,
        a: HostArray,
        b: HostArray,
        c: HostArray,
        is_nested: bool,
        kept: OperandCopies = NO_COPIES,
    ) -> None:
        """Compute the product; the result is in `c` on return.

        Raises
        ------
        StaleError
            If the device's copies of operands are stale; nothing is written to `c` then.
        """
        product, arrays = self.product, (_stored(a), _stored(b), c)
        # A nested product does not record finiteness for the outer one.
        asked = None if is_nested else watch()
        check = None if asked is None else check_of(c.size, product.device, product.space)
        flags = np.zeros(0 if check is None else check.flags, np.float32)
        config = self.staging.config
        resident = kept.matrices(a, b)
        route = make_route(arrays, product.beta != 0, config, is_nested, flags.size, resident)
        run_product(lambda: _run(self, route, (*arrays, flags), is_nested, check, kept, resident))
        if asked is not None and are_all_set(flags):
            asked.elements += c.size
        self.product.advance(self.work)

    def repeat(self, alpha: float, a: HostArray, b: HostArray, beta: float, c: HostArray) -> bool:
        """Compute it for other arrays, of which those of the first call may have been views.

        Returns
        -------
        bool
            False if nothing is computed: the device has copies of other operands than at the first
            call, or these are stale.
        """
        is_nested = is_within(run_product)
        copies = operand_copies(self.product.device, a, b, is_nested)
        if _layouts(copies.matrices(a, b)) != self.there:
            return False
        meter = begun(self.work)
        product = self.product._replace(alpha=alpha, beta=beta, advance=meter.advance)
        with contextlib.suppress(StaleError):
            self._replace(product=product).compute(a, b, c, is_nested, copies)
            copies.count()
            meter.end()
            return True
        copies.drop()
        return False

    def reusable(self, *arrays: HostArray) -> SingleTransfer | None:
        """Return what repeats the product, with nothing of the first call.

        None if the elements of an array have more than one order in memory, depending on how it is
        viewed.
        """
        if not all(map(_has_one_order, arrays)):
            return None
        return self._replace(product=self.product._replace(advance=int))


def plan_single_transfer(
    staging: Staging,
    product: TiledProduct,
    a: HostArray,
    b: HostArray,
    c: HostArray,
    is_nested: bool,
    kept: OperandCopies = NO_COPIES,
) -> SingleTransfer | None:
    """Plan a product small enough for one transfer. Return None if it is too large.

    Parameters
    ----------
    a, b, c : float32 array
        As for `multiply_through`, with as many axes. They have elements.
    is_nested : bool
        Whether this thread is in another product.
    kept : OperandCopies, optional
        Those of A and B, which need not be sent.
    """
    config, arrays = staging.config, (_stored(a), _stored(b), c)
    resident = kept.matrices(a, b)
    sent = [x for x, copy in zip(arrays, (*resident, None), strict=True) if copy is None]
    if FLOAT_BYTES * sum(x.size for x in sent) > min(config.at_once_bytes, config.memory_bytes):
        return None
    flags = count_flags(c.size, product.device.limits)  # there may be none in the end
    route = make_route(arrays, product.beta != 0, config, is_nested, flags, resident)
    if route.chunks > config.chunks:
        return None
    # This may compile: no chunk waits for that.
    bound = product.bind(route.layouts, product.is_symmetric)
    taken_us = expected_us(bound.plan.plan, product.device.limits) if route.is_threaded else 0.0
    if taken_us > config.at_once_us:
        return None
    return SingleTransfer(staging, product, bound, c.size * a.shape[-1], _layouts(resident))


def _run(
    call: SingleTransfer,
    route: Route,
    arrays: tuple[HostArray, ...],
    is_nested: bool,
    check: Check | None,
    kept: OperandCopies,
    resident: Resident,
) -> None:
    staging, product, space = call.staging, call.product, call.space
    views = [x.transpose(axes) for x, axes in zip(arrays, route.axes, strict=False)]
    views.append(arrays[-1])
    with staging.lent(route.chunks, space.lock, is_nested) as chunks:
        copier: Copier[PlacedCopy] | None = None
        if route.is_threaded:
            copier = Copier(staging, True, MOST_THREADS)
        try:
            wanted = copies(route.up, views, chunks, is_up=True)
            if copier is not None:
                for copy in wanted:
                    copier.copy(copy)
            buffers = [product.allocate(FLOAT_BYTES * max(1, size)) for size in route.sizes]
            for copy in _made(copier, wanted):
                if copy.is_last:
                    into = buffers[copy.number >= route.operands]
                    _send(space, into, chunks, route.up[copy.number])
            arriving = _multiply(call, buffers, route, chunks, check, resident)
            results = copies(route.down, views, chunks, is_up=False)
            kept.require_fresh()
            if copier is None:  # when all of it is there
                for event in arriving:
                    event.wait()
                for _ in _made(None, results):
                    pass
            else:
                of_c = len(route.down) - (check is not None)
                _store(copier, results, arriving, of_c)
        except BaseException:
            if copier is not None:
                copier.abandon()
            abandon(space.queue, space)
            raise


def _made(copier: Copier[PlacedCopy] | None, wanted: Iterator[PlacedCopy]) -> Iterator[PlacedCopy]:
    """Yield the copies that were handed out, as they are made; the caller's without a copier."""
    while copier is not None and copier.under_way:
        yield from copier.done(SIGNALS_SECONDS)
    for copy in wanted:
        np.copyto(copy.target, copy.source)
        yield copy


def _store(
    copier: Copier[PlacedCopy],
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
            copier.copy(each)
        else:  # flags are copied before a thread would take them
            np.copyto(each.target, each.source)
    for _ in _made(copier, results):
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
    call: SingleTransfer,
    buffers: Sequence[cl.Buffer],
    route: Route,
    chunks: Sequence[Chunk],
    check: Check | None,
    resident: Resident,
) -> list[cl.Event]:
    """Enqueue the product, its check, and the transfers of its result to the host."""
    product, space, (operands, result) = call.product, call.space, buffers
    with space.lock:
        a, b = (
            copy or Matrix(operands, start, layout)
            for copy, start, layout in zip(resident, route.starts, route.layouts, strict=False)
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


class Part(NamedTuple):
    """A block of an array, its axes in the order of memory, and where it begins in a chunk."""

    array: int
    block: Block
    first: int
    size: int


class Transfer(NamedTuple):
    """What one command moves: elements of a chunk, and their place in a buffer of the device."""

    chunk: int
    first: int
    size: int
    start: int
    parts: tuple[Part, ...]


class Route(NamedTuple):
    """How a product's arrays travel.

    Attributes
    ----------
    axes : tuple of tuple of int
        Of each array, the axes from the outermost in memory.
    layouts : tuple of Layout
        How the arrays lie on the device: dense, in the order of their memory; or as in a copy.
    starts : tuple of int
        Where A and B begin in their buffer.
    sizes : tuple of int
        Elements of that buffer, and of C's, whose last elements are the flags. C has its own, even
        if it is not read: kernels may take it that what they write to is no operand's.
    up, down : tuple of Transfer
        In order. A C that is read goes up last, and comes back to chunks that are free again.
    operands : int
        How many of `up` belong to A and B.
    chunks : int
        How many are needed.
    is_threaded : bool
        Whether threads copy; each transfer has one part then.
    """

    axes: tuple[tuple[int, ...], ...]
    layouts: tuple[Layout, Layout, Layout]
    starts: tuple[int, int]
    sizes: tuple[int, int]
    up: tuple[Transfer, ...]
    down: tuple[Transfer, ...]
    operands: int
    chunks: int
    is_threaded: bool


class PlacedCopy(NamedTuple):
    """A copy between a host array and a chunk.

    Attributes
    ----------
    number : int
        That of its transfer.
    is_last : bool
        Whether it is the last copy of that transfer.
    """

    target: HostArray
    source: HostArray
    number: int
    is_last: bool

    def make(self, copy: ArrayCopy) -> None:
        """Make it."""
        copy(self.target, self.source)


def make_route(
    arrays: Sequence[HostArray],
    reads_c: bool,
    config: TransferConfig,
    is_nested: bool,
    flags: int = 0,
    resident: Resident = (None, None),
) -> Route:
    """Return how A, B and C travel; routes of equal shapes and strides are equal.

    Parameters
    ----------
    is_nested : bool
        Whether the caller is in another product: it copies itself then.
    flags : int, optional
        Elements that come back after C, as a fourth array.
    resident : pair of Matrix or None, optional
        Where A and B are on the device already.
    """
    forms = tuple((x.shape, x.strides) for x in arrays)
    return _route(forms, reads_c, config, is_nested, flags, _layouts(resident))


def _layouts(resident: Resident) -> CopyLayouts:
    a, b = (None if x is None else x.layout for x in resident)
    return a, b


def copies(
    transfers: Sequence[Transfer],
    views: Sequence[HostArray],
    chunks: Sequence[Chunk],
    is_up: bool,
) -> Iterator[PlacedCopy]:
    """Yield the copies to chunks, or from them to the arrays.

    Parameters
    ----------
    views : sequence of array
        The arrays, their axes in the order of memory.
    """
    for number, transfer in enumerate(transfers):
        for part in transfer.parts:
            block = views[part.array][part.block]
            run = chunks[transfer.chunk][part.first : part.first + part.size].reshape(block.shape)
            target, source = (run, block) if is_up else (block, run)
            yield PlacedCopy(target, source, number, part is transfer.parts[-1])


@functools.lru_cache(maxsize=256)
def _route(
    forms: Forms,
    reads_c: bool,
    config: TransferConfig,
    is_nested: bool,
    flags: int,
    there: CopyLayouts,
) -> Route:
    axes = tuple(memory_order(strides) for _, strides in forms)
    shapes = [tuple(shape[i] for i in order) for (shape, _), order in zip(forms, axes, strict=True)]
    sizes = [math.prod(shape) for shape in shapes]
    for operand in (0, 1):
        sizes[operand] *= there[operand] is None
    moved_bytes, longest = FLOAT_BYTES * sum(sizes), config.chunk_bytes // FLOAT_BYTES
    is_threaded = moved_bytes >= THREADED_FACTOR * config.threaded_bytes and not is_nested
    most = longest
    if is_threaded:
        most = min(longest, max(sum(sizes) // PIECES, SMALLEST_PIECE_BYTES // FLOAT_BYTES))
    starts, end_of_c = (0, round_up(sizes[0], STEP)), sizes[2]

    up, down = _Places(longest, not is_threaded), _Places(longest, not is_threaded)
    for operand in (0, 1):
        if there[operand] is None:
            up.add(operand, shapes[operand], starts[operand], most)
    operands = len(up.transfers)
    up.end()
    if reads_c:
        up.add(2, shapes[2], 0, most)
    down.add(2, shapes[2], 0, most)
    if flags:
        first_flag = round_up(sizes[2], STEP)
        down.add(3, (flags,), first_flag, flags)
        end_of_c = first_flag + flags
    a, b, c = (
        dense_layout(shape, order, LARGEST_ALIGNMENT)
        for (shape, _), order in zip(forms, axes, strict=True)
    )
    return Route(
        axes,
        (there[0] or a, there[1] or b, c),
        starts,
        (starts[1] + sizes[1], end_of_c),
        tuple(up.transfers),
        tuple(down.transfers),
        operands,
        1 + max(each.chunk for each in up.transfers + down.transfers),
        is_threaded,
    )


class _Places:
    """Places for parts of arrays, one after the other, each whole in a chunk.

    Parameters
    ----------
    elements : int
        Of a chunk.
    joins : bool
        Whether one transfer takes all that is in a chunk and goes to one buffer.
    """

    def __init__(self, elements: int, joins: bool) -> None:
        self.transfers: list[Transfer] = []
        self._elements, self._joins = elements, joins
        self._chunk = self._used = 0
        self._first_to_join = 0

    def add(self, array: int, shape: tuple[int, ...], start: int, most: int) -> None:
        """Place an array that begins at element `start` of its buffer, in parts of `most`."""
        for block, begin, size in pieces(shape, most):
            if self._joins and self._join(array, block, start + begin, size):
                continue
            if self._used + size > self._elements:
                self._chunk, self._used = self._chunk + 1, 0
            part = Part(array, block, self._used, size)
            self.transfers.append(Transfer(self._chunk, self._used, size, start + begin, (part,)))
            self._used += round_up(size, STEP)

    def _join(self, array: int, block: Block, start: int, size: int) -> bool:
        """Place a part in the last transfer, as far from its start as on the device, if it fits."""
        if len(self.transfers) == self._first_to_join:
            return False
        last = self.transfers[-1]
        first = last.first + start - last.start
        if first + size > self._elements:
            return False
        part = Part(array, block, first, size)
        whole = first + size - last.first
        self.transfers[-1] = last._replace(size=whole, parts=(*last.parts, part))
        self._used = round_up(first + size, STEP)
        return True

    def end(self) -> None:
        """Let what comes next go to another buffer."""
        self._first_to_join = len(self.transfers)
