"""What is under way in a product of host arrays: blocks on the device, and pieces of them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

import pyopencl as cl

from clgemm.runtime.operands import HostArray
from clgemm.runtime.transfer.staging import Chunk

__all__ = ["Arriving", "Filling", "Piece", "Slot", "is_over", "shaped"]


class Slot:
    """Device memory for one block of an operand or of the result."""

    def __init__(self, buffer: cl.Buffer, users: Sequence[cl.Event]) -> None:
        self.buffer = buffer
        self.ready: list[cl.Event] = []  # what brings its contents
        self.users = list(users)  # what must be over before the contents change


class Piece(NamedTuple):
    """A part of a block, which one transfer moves to or from its slot."""

    slot: Slot
    host: HostArray  # with its axes in the order of its memory
    first: int  # element of the block
    size: int


class Filling(NamedTuple):
    """A piece on its way to pinned memory."""

    tile: int
    piece: Piece
    chunk: Chunk
    filled: Future[None]


class Arriving(NamedTuple):
    """A piece on its way from the device to pinned memory."""

    piece: Piece
    chunk: Chunk
    event: cl.Event


def is_over(event: cl.Event | None) -> bool:
    """Tell whether a command has ended, well or badly."""
    return event is None or event.command_execution_status <= cl.command_execution_status.COMPLETE


def shaped(chunk: Chunk, piece: Piece) -> HostArray:
    """Return the part of a chunk that holds a piece, in the piece's shape."""
    return chunk[: piece.size].reshape(piece.host.shape)
