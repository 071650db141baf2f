"""The base class of rungs: their parameters, constraints, launches and memory traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from clgemm.testing.assertions import gamma

FLOAT_BYTES = 4  # and of an int32
INDEX_LIMIT = 2**31  # the kernels compute indices in int

WIDTHS = (1, 2, 4, 8)  # floats in a vector

Presets: TypeAlias = tuple[Mapping[str, int], ...]
Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Shape(NamedTuple):
    """The sizes of a product, where A is m x k, B is k x n and C is m x n; or those of a tile."""

    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        """Multiplications and additions of one product of real numbers."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True)
class Target:
    """The properties of a device and its compiler that the rungs need."""

    local_memory_bytes: int
    work_group_size: int
    allocation_bytes: int
    lanes: tuple[int, ...] = ()  # sub-group sizes with shuffles; empty if there are no shuffles
    is_nvidia: bool = False  # with loads through the read-only cache
    is_cuda: bool = False  # through the CUDA toolchain, not through OpenCL
    # The compute capability of an NVIDIA GPU that is used through NVIDIA's OpenCL.
    capability: tuple[int, int] = (0, 0)


class Launch(NamedTuple):
    """One launch of a rung; the kernel's arguments are the sizes and then the buffers."""

    kernel: str
    sizes: tuple[int, ...]
    buffers: tuple[str, ...]  # their names
    groups: tuple[int, int]  # work-groups along each dimension
    items: tuple[int, int]  # work-items per work-group
    local_memory_bytes: int  # per work-group
    moved_bytes: int = 0  # of global memory, read and written by a supporting kernel


def square_launch(
    kernel: str,
    side: int,
    covered: tuple[int, int],
    sizes: tuple[int, ...],
    buffers: tuple[str, ...],
    moved: int,
) -> Launch:
    """Return the launch of a supporting kernel, whose work-groups are squares of the matrix.

    Parameters
    ----------
    moved : int
        Numbers of four bytes that it reads and writes.
    """
    groups = (-(-covered[0] // side), -(-covered[1] // side))
    return Launch(kernel, sizes, buffers, groups, (side, side), 0, FLOAT_BYTES * moved)


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A rung with its parameters, which are the macros of its kernel file."""

    number: ClassVar[int]
    title: ClassVar[str]
    file: ClassVar[str]
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)  # of A, B and C
    # The tutorial's figure at 4096 on a Tesla K40m; 0 if it has none.
    kepler_gflops: ClassVar[int] = 0
    presets: ClassVar[Presets]  # the first that fits is the default
    remark: ClassVar[str] = ""  # what `note` returns on every device
    flags: ClassVar[frozenset[str]] = frozenset()  # parameters that are 0 or 1
    vectors: ClassVar[frozenset[str]] = frozenset({"width"})  # parameters out of `WIDTHS`
    # Pairs of parameters: the first one is a multiple of the second.
    multiples: ClassVar[Pairs] = ()
    local_tiles: ClassVar[int] = 1  # tiles of A, and as many of B, in local memory
    follows: ClassVar[int] = 0  # the rung whose code it changes; 0 for the rung before
    options: ClassVar[tuple[str, ...]] = ()  # of the build, which NVIDIA's compiler knows
    products: ClassVar[int] = 1  # products of matrices that it computes: more with split operands
    pictured: ClassVar[bool] = True  # whether the page can draw what a single work-item reads
    sizes: ClassVar[tuple[str, str, str]] = ("m", "n", "k")  # what `padded` returns, in words

    @classmethod
    def parameters(cls) -> list[str]:
        """Return the names of the parameters."""
        return [field.name for field in fields(cls)]

    @classmethod
    def before(cls) -> int:
        """Return the number of the rung whose code this rung changes; 0 for rung 1."""
        return cls.follows or cls.number - 1

    @classmethod
    def label(cls) -> str:
        """Return the title, with the dtype if it is not float32."""
        return cls.title if cls.dtype == Rung.dtype else f"{cls.title} ({cls.dtype})"

    @classmethod
    def missing(cls, target: Target) -> str:  # noqa: ARG003 - rungs 16 to 21 use it
        """Return what the rung needs and the device or its compiler lacks; "" if nothing."""
        return ""

    def flops(self, shape: Shape) -> int:
        """Return the multiplications and additions of one product, without those of padding.

        Those of complex numbers count as the real ones that they consist of: four times as many.
        """
        return shape.flops * (4 if self.dtype.kind == "c" else 1)

    def error_bound(self, shape: Shape) -> float:
        """Return the bound on |C - C_exact| / (|A| |B|): Higham's gamma(k)."""
        return gamma(shape.k)

    @property
    def extent(self) -> Shape:
        """The rows and columns of C per work-group, and its step along k."""
        raise NotImplementedError

    @property
    def items(self) -> tuple[int, int]:
        """Work-items per work-group along the rows and the columns of C."""
        raise NotImplementedError

    @property
    def local_memory_bytes(self) -> int:
        """Bytes of local memory that one work-group of ``multiply`` uses."""
        return self.local_tiles * self.tile_bytes

    @property
    def registers_read(self) -> tuple[int, int]:
        """Elements of A and of B that a work-item reads for each step along k."""
        return self.extent.m // self.items[0], self.extent.n // self.items[1]

    @property
    def tile_bytes(self) -> int:
        """Bytes of the tiles of A and of B that a work-group copies for each step of a tile."""
        return FLOAT_BYTES * self.extent.k * (self.extent.m + self.extent.n)

    @property
    def tile_read_bytes(self) -> int:
        """Bytes that all work-items of a work-group together read for each step of a tile."""
        items = self.items[0] * self.items[1]
        return FLOAT_BYTES * self.extent.k * items * sum(self.registers_read)

    def tiles(self, shape: Shape) -> int:
        """Return how many tiles of C there are, or parts of them along k."""
        groups = next(x.groups for x in self.launches(shape) if x.kernel == "multiply")
        return groups[0] * groups[1]

    def local_memory_limit(self, target: Target) -> int:
        """Return how many bytes of local memory a work-group may use."""
        return target.local_memory_bytes

    def steps(self, shape: Shape) -> int:
        """Return along how much of k a work-group computes for one tile of C."""
        return self.padded(shape).k

    def results(self, shape: Shape) -> int:
        """Return how many numbers of four bytes ``multiply`` writes."""
        return self.padded(shape).m * self.padded(shape).n

    def padded(self, shape: Shape) -> Shape:
        """Return the sizes of the product that ``multiply`` computes: those with padding."""
        return shape

    def buffers(self, shape: Shape) -> dict[str, int]:
        """Return the size in elements of each buffer: a, b, c and scratch memory."""
        return {"a": shape.m * shape.k, "b": shape.k * shape.n, "c": shape.m * shape.n}

    def launches(self, shape: Shape) -> tuple[Launch, ...]:
        """Return the launches of one product in order."""
        return (self.multiply(shape, "a", "b", "c"),)

    def multiply(self, shape: Shape, *buffers: str) -> Launch:
        """Return the launch of the kernel ``multiply``."""
        groups = (shape.m // self.extent.m, shape.n // self.extent.n)
        return Launch("multiply", shape, buffers, groups, self.items, self.local_memory_bytes)

    def problems(self) -> list[str]:
        """Return each constraint that the parameters break on any device.

        Where a value is wrong by itself, what it is compared with is not looked at.
        """
        return (
            list(self._value_problems())
            or list(self._multiple_problems())
            or list(self.load_problems())
        )

    def _value_problems(self) -> Iterator[str]:
        for name, value in asdict(self).items():
            if name in self.flags and value not in (0, 1):
                yield f"{name}={value} is neither 0 nor 1"
            elif name not in self.flags and value < 1:
                yield f"{name}={value} is less than 1"
            elif name in self.vectors and value not in WIDTHS:
                yield f"{name}={value} is not one of {WIDTHS}"

    def _multiple_problems(self) -> Iterator[str]:
        for name, unit_name in self.multiples:
            value, unit = getattr(self, name), getattr(self, unit_name)
            if value % unit:
                yield f"{name}={value} is not a multiple of {unit_name}={unit}"

    def load_problems(self) -> Iterator[str]:
        """Yield each reason why the work-items cannot load the tiles as the kernel does."""
        yield from ()

    def problems_on(self, target: Target, shape: Shape) -> Iterator[str]:
        """Yield each constraint that the parameters break for this device and these sizes."""
        own = self.problems()
        yield from own
        if missing := self.missing(target):
            yield missing
        if own:  # with broken parameters, the launches below are meaningless
            return
        for launch in self.launches(shape):
            if (items := launch.items[0] * launch.items[1]) > target.work_group_size:
                yield (
                    f"{items} work-items per work-group of {launch.kernel} exceed the device's "
                    f"{target.work_group_size}"
                )
            if launch.local_memory_bytes > (limit := self.local_memory_limit(target)):
                yield (
                    f"{launch.local_memory_bytes} bytes of local memory of {launch.kernel} exceed "
                    f"the device's {limit}"
                )
        for name, size, tile in zip(self.sizes, self.padded(shape), self.extent, strict=True):
            if size % tile:
                yield f"{name}={size} is not a multiple of the tile's {tile}"
        largest = max(self.buffers(shape).values()) * self.dtype.itemsize // FLOAT_BYTES
        most = min(target.allocation_bytes // FLOAT_BYTES, INDEX_LIMIT - 1)
        if largest > most:
            yield f"a matrix of {largest} numbers of four bytes exceeds the device's {most}"

    def __str__(self) -> str:
        parameters = ", ".join(f"{name}={value}" for name, value in asdict(self).items())
        return f"rung {self.number} with {parameters}"

    def macros(self, target: Target) -> dict[str, int]:  # noqa: ARG002 - rung 8 uses it
        """Return the -D macros of the kernel file."""
        return {name.upper(): value for name, value in asdict(self).items()}

    def note(self, target: Target) -> str:  # noqa: ARG002 - rung 8 uses it
        """Return which features the rung uses and which the device lacks; "" for most rungs."""
        return self.remark


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
    multiply = next(x for x in rung.launches(shape) if x.kernel == "multiply")
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
        support_bytes=sum(launch.moved_bytes for launch in rung.launches(shape)),
        work_groups=groups,
        work_items=items,
        local_memory_bytes=rung.local_memory_bytes,
        flops=2 * m * n * k * rung.products,
    )
