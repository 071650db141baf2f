"""The order and the sizes of tiles that start early and end early."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

__all__ = ["ramped", "square_order"]


def ramped(size: int, step: int, halvings: int, grain: int, least: int) -> list[slice]:
    """Cut an axis into slices of `step`, with shorter ones at both ends.

    The first slice takes ``step / 2**halvings``, and each of the next twice as much until `step`.
    The last slices are the first ones in reverse. So the device starts before much has come in,
    and little remains to go out after its last tile.

    Parameters
    ----------
    grain : int
        Slices but the last are multiples of this where `step` is.
    least : int
        The shortest slice, unless the axis or `step` is shorter.
    """
    sizes = []
    for power in range(halvings, 0, -1):
        part = max(-(-step // 2**power // grain) * grain, least)
        if part < step:
            sizes.append(part)
    while 2 * sum(sizes) + step > size and sizes:
        sizes.pop()  # the longest: an axis of few slices keeps the shortest
    middle = size - 2 * sum(sizes)
    whole, rest = divmod(middle, max(step, 1))
    lengths = [*sizes, *[step] * whole, *([rest] if rest else []), *reversed(sizes)]
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    return [slice(i, j) for i, j in pairwise(edges)] or [slice(0, 0)]


def square_order(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks of C, as row and column, so that each new block of A or B serves many.

    After s blocks of A and s of B have come in, s squared blocks of C are computed. So the device
    has work early, and A and B arrive in turns.
    """
    for step in range(max(rows, columns)):
        if step < rows:
            yield from ((step, j) for j in range(min(step, columns)))
        if step < columns:
            yield from ((i, step) for i in range(min(step + 1, rows)))
