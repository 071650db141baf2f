"""How many bytes a rung's kernels ask of global and local memory, counted from their formulas."""

from __future__ import annotations

from dataclasses import dataclass

from clgemm.ladder.rung import FLOAT_BYTES, Launch, Rung, Shape

__all__ = ["Counts", "count"]


@dataclass(frozen=True)
class Counts:
    """The memory traffic of one product, before any cache.

    Attributes
    ----------
    read_bytes, written_bytes : int
        Of global memory, by ``multiply``.
    local_read_bytes, local_written_bytes : int
        Of local memory, by ``multiply``.
    support_bytes : int
        Of global memory, read and written by the other kernels.
    work_groups, work_items : int
        Work-groups of ``multiply``, and work-items of each.
    local_memory_bytes : int
        Local memory of each work-group.
    flops : int
        Multiplications and additions, with those of padding, and of all products of parts.
    """

    read_bytes: int
    written_bytes: int
    local_read_bytes: int
    local_written_bytes: int
    support_bytes: int
    work_groups: int
    work_items: int
    local_memory_bytes: int
    flops: int

    @property
    def flops_per_byte(self) -> float:
        """Flops for each byte that ``multiply`` reads or writes in global memory."""
        return self.flops / (self.read_bytes + self.written_bytes)

    @property
    def flops_per_local_byte(self) -> float | None:
        """Flops for each byte that ``multiply`` reads from local memory; None without any."""
        return self.flops / self.local_read_bytes if self.local_read_bytes else None


def count(rung: Rung, shape: Shape) -> Counts:
    """Count the memory traffic of one product.

    Parameters
    ----------
    rung : Rung
        The rung with its parameters.
    shape : Shape
        The product, without padding.
    """
    launches = {launch.kernel: launch for launch in rung.launches(shape)}
    multiply = launches["multiply"]
    groups = multiply.groups[0] * multiply.groups[1]
    items = multiply.items[0] * multiply.items[1]
    m, n, k = rung.padded(shape)
    steps = rung.tiles(shape) * rung.steps(shape) // rung.extent.k
    by_items = steps * rung.tile_read_bytes  # what work-items read
    by_tiles = steps * rung.tile_bytes  # what work-groups copy
    is_tiled = rung.local_memory_bytes > 0
    return Counts(
        read_bytes=by_tiles if is_tiled else by_items,
        written_bytes=FLOAT_BYTES * rung.results(shape),
        local_read_bytes=by_items * is_tiled,
        local_written_bytes=by_tiles * is_tiled,
        support_bytes=sum(_support_bytes(launch) for launch in rung.launches(shape)),
        work_groups=groups,
        work_items=items,
        local_memory_bytes=rung.local_memory_bytes,
        flops=2 * m * n * k * rung.products,
    )


def _support_bytes(launch: Launch) -> int:
    """Return the bytes that a kernel other than ``multiply`` reads and writes."""
    if launch.kernel == "multiply":
        return 0
    if launch.moved_bytes is not None:
        return launch.moved_bytes
    rows, columns, *padded = launch.sizes
    read = written = rows * columns
    if launch.kernel == "pad":
        written = padded[0] * padded[1]
    elif launch.kernel == "reduce":
        read *= padded[0]
    return FLOAT_BYTES * (read + written)
