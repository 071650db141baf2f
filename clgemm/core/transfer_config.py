"""The limits of transfers between host arrays and a device with memory of its own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TransferConfig"]


@dataclass(frozen=True)
class TransferConfig:
    """The limits of transfers between host arrays and a device with memory of its own.

    A product that fits the device is cut into tiles only so that its transfers overlap.
    `tile_bytes`, `tiles`, `rows`, `ramp` and `square` hold for such tiles.

    Attributes
    ----------
    memory_bytes : int
        Device memory that the operands and the result of one call may take.
    threads : int
        Threads of one call that copy.
    threaded_bytes : int
        Bytes from which on a call uses those threads; for fewer, the calling thread copies.
    chunk_bytes : int
        The largest chunk: pinned memory that one thread fills or empties for one transfer.
    chunks : int
        The most chunks that one call may hold in each direction.
    pool_chunks : int
        The most chunks that all calls together may hold, at least twice `chunks`.
    tile_bytes : int
        The fewest bytes that a tile moves.
    tiles : int
        The most tiles of a product.
    rows : int
        The fewest rows of a tile: fewer would leave parts of the device idle.
    ramp : int
        How often the rows of the first and last tiles are halved, so that they are done sooner.
    square : int
        Blocks per side of C, which are computed as A and B come in by turns. 0 for tiles of rows,
        for which B comes in whole before the first tile.
    square_bytes : int
        The fewest bytes of B for which `square` holds.
    edge_bytes : int
        The largest transfer of the first block that comes in and the last one that goes out,
        unless that makes many. 0 for no other limit than for the rest.
    at_once_bytes : int
        The most bytes of a product that is sent at once, without tiles.
    at_once_us : int
        The longest time in microseconds that such a product may take the device, if threads copy:
        the first tiles of a longer one are computed while others are on the way.
    """

    memory_bytes: int
    threads: int
    threaded_bytes: int = 2**22
    chunk_bytes: int = 2**22
    chunks: int = 16
    pool_chunks: int = 64
    tile_bytes: int = 2**23
    tiles: int = 4
    rows: int = 256
    ramp: int = 0
    square: int = 0
    square_bytes: int = 0
    edge_bytes: int = 0
    at_once_bytes: int = 2**26
    at_once_us: int = 500
