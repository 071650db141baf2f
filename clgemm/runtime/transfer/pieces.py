"""The parts of a product's transfers: blocks in device memory, pieces of them on their way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyopencl as cl

from clgemm.core.transfer import pieces
from clgemm.runtime.operands import HostArray

if TYPE_CHECKING:
    from clgemm.runtime.transfer.staging import Chunk

__all__ = ["Piece", "Slot", "cut", "has_ended", "shaped"]


class Slot:
    """Device memory for one block of an operand or of the result.

    Attributes
    ----------
    buffer : pyopencl.Buffer
        The memory, once it is allocated.
    ready : list of pyopencl.Event
        What brings its contents.
    users : list of pyopencl.Event
        What must be over before the contents change.
    tiles : list of int
        Those that use its contents and are not enqueued, in order.
    unfetched : int
        Pieces of a result whose transfers to the host are not enqueued.

    Parameters
    ----------
    share : int
        The number of the share that it belongs to.
    """

    buffer: cl.Buffer

    def __init__(self, share: int = 0) -> None:
        self.share = share
        self.ready: list[cl.Event] = []
        self.users: list[cl.Event] = []
        self.tiles: list[int] = []
        self.unfetched = 0

    def is_needed_before(self, tile: int) -> bool:
        """Tell whether commands that use the contents before a tile are still to be enqueued."""
        return bool(self.unfetched) or any(user < tile for user in self.tiles)


class Piece(NamedTuple):
    """A part of a block, which a transfer moves to each of its slots, or from its only one."""

    slots: tuple[Slot, ...]
    host: HostArray  # with its axes in the order of its memory
    first: int  # element of the block
    size: int


def cut(block: HostArray, slots: tuple[Slot, ...], most: int) -> Iterator[Piece]:
    """Cut a block, its axes in the order of its memory, into pieces of `most` elements at most."""
    for index, first, size in pieces(block.shape, most):
        yield Piece(slots, block[index], first, size)


def has_ended(event: cl.Event) -> bool:
    """Tell whether a command is over; raise its error if it failed."""
    status = event.command_execution_status
    if status < cl.command_execution_status.COMPLETE:
        event.wait()
    return status == cl.command_execution_status.COMPLETE


def shaped(chunk: Chunk, piece: Piece) -> HostArray:
    """Return a chunk's part for a piece, in the piece's shape."""
    return chunk[: piece.size].reshape(piece.host.shape)
