"""The parts of a product's transfers: blocks in device memory, pieces of them on their way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import pyopencl as cl

from clgemm.core.locking import runs
from clgemm.core.transfer import FLOAT_BYTES, pieces
from clgemm.runtime.operands import HostArray, address_of
from clgemm.runtime.transfer.page_locks import PageLock
from clgemm.runtime.transfer.staging import Chunk

__all__ = ["Arriving", "Filling", "Piece", "Slot", "cut", "is_over", "is_refused", "shaped"]


class Slot:
    """Device memory for one block of an operand or of the result."""

    def __init__(self, buffer: cl.Buffer, users: Sequence[cl.Event]) -> None:
        self.buffer = buffer
        self.ready: list[cl.Event] = []  # what brings its contents
        self.users = list(users)  # what must be over before the contents change
        self.tiles: list[int] = []  # those that use its contents and are not enqueued, in order


class Piece(NamedTuple):
    """A part of a block, which one transfer moves to or from its slot."""

    slot: Slot
    host: HostArray  # with its axes in the order of its memory
    first: int  # element of the block
    size: int
    in_place: bool  # without a chunk: page-locked if possible
    is_result: bool = False


class Filling(NamedTuple):
    """A piece on its way to pinned memory: to a chunk, or becoming page-locked.

    Attributes
    ----------
    sent : list of pyopencl.Event or None
        Filled by the thread that copies, which also enqueues the transfer; None if the caller does.
    """

    tile: int
    piece: Piece
    chunk: Chunk | None
    filled: Future[None] | Future[PageLock | None]
    sent: list[cl.Event] | None = None


class Arriving(NamedTuple):
    """A piece on its way from the device to pinned memory."""

    piece: Piece
    chunk: Chunk | None
    event: cl.Event


def cut(
    block: HostArray, slot: Slot, most: int, share: float, region_bytes: int, is_result: bool
) -> Iterator[Piece]:
    """Cut a block, its axes in the order of its memory, into pieces.

    Parameters
    ----------
    most : int
        The most elements of a piece that goes through a chunk.
    share : float
        Of the block's regions of `region_bytes`, which go without. Only a contiguous block has any,
        and only if it is writeable: the pages of another may belong to a file.
    """
    if share and block.flags.c_contiguous and block.flags.writeable:
        flat = block.reshape(-1)
        address = address_of(flat)
        for first, count, locked in runs(
            address, flat.size, FLOAT_BYTES, most, region_bytes, share
        ):
            yield Piece(slot, flat[first : first + count], first, count, locked, is_result)
        return
    for index, first, size in pieces(block.shape, most):
        yield Piece(slot, block[index], first, size, False, is_result)


def is_over(event: cl.Event | None) -> bool:
    """Tell whether a command has ended, well or badly."""
    return event is None or event.command_execution_status <= cl.command_execution_status.COMPLETE


def shaped(chunk: Chunk, piece: Piece) -> HostArray:
    """Return a chunk's part for a piece, in the piece's shape."""
    return chunk[: piece.size].reshape(piece.host.shape)


def is_refused(lock: Future[PageLock | None]) -> bool:
    """Tell whether memory is known not to be locked."""
    return lock.done() and lock.result() is None
