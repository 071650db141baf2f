"""NumPy and pyopencl arrays as matrices. No other module depends on the types of arrays.

A program without device arrays need not import pyopencl for this.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from clgemm.core.cache import holds_contexts
from clgemm.core.problem import Layout, Problem, Triangles
from clgemm.runtime import kept_memory

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyopencl as cl
    import pyopencl.array

HostArray: TypeAlias = "npt.NDArray[np.float32]"
DeviceArray: TypeAlias = "cl.array.Array"
# A HostArray or a DeviceArray. Any, because their type stubs share no protocol.
AnyArray: TypeAlias = Any
Layouts: TypeAlias = tuple[Layout, Layout, Layout]

ITEM_BYTES = 4
FLOAT32 = np.dtype(np.float32)
LARGEST_ALIGNMENT = 64  # bytes; the widest vector that a kernel loads
HOST_MEMORY = 1 << 3  # CL_MEM_USE_HOST_PTR
NO_MEMORY = object()
# Held while pyopencl combines elements: its kernels are shared by all threads, and one would launch
# them with the arguments of another.
elementwise = threading.RLock()
# The most steps of NumPy's exact overlap test. If it needs more, an overlap is assumed.
OVERLAP_WORK = 10_000


def is_device(x: object) -> bool:
    """Return whether the operand is a pyopencl array."""
    arrays = sys.modules.get("pyopencl.array")
    return arrays is not None and isinstance(x, getattr(arrays, "Array", ()))


def is_plain_device(x: object) -> bool:
    """Return whether the operand is a pyopencl array, and of no subclass."""
    arrays = sys.modules.get("pyopencl.array")
    return arrays is not None and type(x) is getattr(arrays, "Array", None)


def numbers(x: object, name: str) -> npt.NDArray[Any]:
    """Return a host operand as an array.

    Raises
    ------
    TypeError
        If it does not consist of numbers.
    """
    if x is None:
        raise TypeError(f"{name} is None, but a matrix product needs numbers")
    array = np.asarray(x)
    if array.dtype.kind not in "biufcO":
        raise TypeError(f"{name} has dtype {array.dtype}, but a matrix product needs numbers")
    return array


def float32_host(x: object, name: str) -> HostArray:
    """Return a host operand as a float32 array that kernels can index, without a copy if possible.

    Raises
    ------
    TypeError
        If it does not consist of numbers.
    """
    array = np.asarray(x)
    if usable_in_place(array):
        return array
    array = numbers(x, name)
    try:
        # Complex input loses its imaginary part with NumPy's own ComplexWarning, as in SciPy.
        array = array.astype(np.float32, copy=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} of dtype {array.dtype} is not numeric: {error}") from None
    return array if usable_in_place(array) else np.array(array, order="K")


def indexable(array: npt.NDArray[Any]) -> bool:
    """Return whether kernels can index the array's own memory as elements of its dtype."""
    flags, size = array.flags, array.itemsize
    return flags.aligned and (flags.forc or not any(stride % size for stride in array.strides))


def usable_in_place(array: npt.NDArray[Any]) -> bool:
    """Return whether kernels can index the array's own memory as float32 elements."""
    return array.dtype == FLOAT32 and indexable(array)  # a swapped byte order is another dtype


def float32_operand(x: object, name: str) -> AnyArray:
    """Return the operand as a float32 array on the same side, without a copy if possible.

    Raises
    ------
    TypeError
        If it does not consist of numbers, or if it is a device array of another dtype. A device
        array is not converted, because that would take device memory without being asked for.
    """
    if not is_device(x):
        return float32_host(x, name)
    array: AnyArray = x
    if array.dtype != np.float32:
        dtype = array.dtype
        raise TypeError(f"{name} is a device array of dtype {dtype}: only float32 is multiplied")
    return array


def duplicate_memory(x: DeviceArray, queue: cl.CommandQueue) -> DeviceArray:
    """Return an array of the same layout over a copy of a device array's memory."""
    import pyopencl as cl

    first, last = (x.offset + x.dtype.itemsize * each for each in layout_of(x).extent)
    size_bytes = last + x.dtype.itemsize - first
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size_bytes)
    memory = cast("cl.Buffer", x.base_data)
    event = cl.enqueue_copy(
        queue, buffer, memory, byte_count=size_bytes, src_offset=first, wait_for=list(x.events)
    )
    copy: DeviceArray = cl.array.Array(
        *(queue, x.shape, x.dtype),
        strides=x.strides,
        data=buffer,
        offset=x.offset - first,
        events=[event],
    )
    return copy


def conjugate(x: AnyArray, queue: cl.CommandQueue | None) -> AnyArray:
    """Return the conjugate of an array; of a device array, enqueued and not waited for."""
    if x.dtype.kind not in "cO" or not x.size:
        return x
    if queue is None:
        return x.conj()
    if x.flags.forc:
        with elementwise:
            return x.with_queue(queue).conj()
    import pyopencl as cl

    # pyopencl combines contiguous arrays only: all from the lowest element to the highest is one.
    copy, (first, last) = duplicate_memory(x, queue), layout_of(x).extent
    whole = cl.array.Array(
        *(queue, (last - first + 1,), x.dtype), data=copy.base_data, events=copy.events
    )
    with elementwise:
        conjugates = whole.conj()
    return cl.array.Array(
        *(queue, x.shape, x.dtype),
        strides=x.strides,
        data=conjugates.base_data,
        offset=copy.offset,
        events=conjugates.events,
    )


def updatable(x: Any) -> bool:
    """Return whether a float32 product can be written directly to the operand's own memory."""
    if is_device(x):
        return bool(x.dtype == np.float32) and writable(x)
    return isinstance(x, np.ndarray) and usable_in_place(x) and writable(x)


def writable(x: AnyArray) -> bool:
    """Return whether an array may be written to, and no two of its elements share memory."""
    if isinstance(x, np.ndarray) and not (x.flags.writeable and indexable(x)):
        return False
    return bool(x.flags.forc or x.size == 0 or not layout_of(x).may_overlap_itself)


def require_out(
    out: AnyArray | None, shape: tuple[int, ...], dtype: np.dtype[Any] = FLOAT32
) -> None:
    """Raise ValueError if a device array cannot take a result of this shape and dtype."""
    if out is None:
        return
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"out is {out.dtype} of shape {out.shape}, the result {dtype} of {shape}")
    if not writable(out):
        raise ValueError(f"elements of out overlap: shape {out.shape}, strides {out.strides}")


def with_axes(x: HostArray, count: int) -> HostArray:
    """Return a view with axes of length 1 in front, so many axes in all."""
    return x[(None,) * (count - x.ndim)]


def address_of(x: HostArray) -> int:
    """Return the address of an array's first element."""
    return int(x.__array_interface__["data"][0])


class _Memory:
    """A vector of so many elements at an address; faster than as_strided."""

    def __init__(
        self, address: int, count: int, typestr: str, is_readonly: bool, owner: object
    ) -> None:
        self._owner = owner  # lives as long
        self.__array_interface__ = {
            "version": 3,
            "typestr": typestr,
            "shape": (count,),
            "data": (address, is_readonly),
        }


def span_of(array: HostArray, is_readonly: bool = True) -> HostArray:
    """Return an array's memory, from its lowest element to its highest, as a vector."""
    lowest, highest = layout_of(array).extent
    first, count = address_of(array) + array.itemsize * lowest, highest - lowest + 1
    return np.asarray(_Memory(first, count, array.dtype.str, is_readonly, array))


def bytes_at(address: int, count: int, owner: object) -> npt.NDArray[np.uint8]:
    """Return so many bytes from an address on, which live as long as their owner."""
    return np.asarray(_Memory(address, count, "|u1", False, owner))


def layout_of(x: AnyArray) -> Layout:
    """Return an array's shape and strides in elements, and the alignment of a device array."""
    if isinstance(x, np.ndarray):
        size = x.itemsize
        return Layout(x.shape, tuple([stride // size for stride in x.strides]))
    import pyopencl as cl

    memory = x.base_data
    address = x.offset
    if not isinstance(memory, cl.MemoryObjectHolder) or memory.flags & HOST_MEMORY:
        address |= ITEM_BYTES  # the runtime did not align this memory
    return _device_layout(x.shape, x.strides, address, x.dtype.itemsize)


def layouts_of(a: AnyArray, b: AnyArray, c: AnyArray) -> Layouts:
    """Return the layouts of three arrays."""
    return layout_of(a), layout_of(b), layout_of(c)


@functools.lru_cache(maxsize=1024)
def _device_layout(
    shape: tuple[int, ...], strides: tuple[int, ...], address: int, item_bytes: int
) -> Layout:
    in_elements = tuple([stride // item_bytes for stride in strides])
    return Layout(tuple(shape), in_elements, alignment(address))


def alignment(address: int) -> int:
    """Return the largest power of two that divides an address, at most the widest vector's."""
    return (address | LARGEST_ALIGNMENT) & -(address | LARGEST_ALIGNMENT)


@dataclass(frozen=True)
class Matrix:
    """A batch of matrices in memory that kernels of one device can reach.

    Attributes
    ----------
    offset : int
        Elements from the start of `buffer` to the first element.
    """

    buffer: cl.Buffer
    offset: int
    layout: Layout


def place(array: DeviceArray) -> Matrix:
    """Return the matrix of a device array, where it lies."""
    buffer = cast("cl.Buffer", array.base_data)
    return Matrix(buffer, array.offset // array.dtype.itemsize, layout_of(array))


def view(x: AnyArray, shape: tuple[int, ...], strides: tuple[int, ...]) -> AnyArray:
    """Return a view that begins at an array's first element; the strides are in elements."""
    in_bytes = tuple(stride * x.dtype.itemsize for stride in strides)
    if isinstance(x, np.ndarray):
        return np.lib.stride_tricks.as_strided(x, shape, in_bytes)
    import pyopencl as cl

    return cl.array.Array(
        x.queue,
        shape,
        x.dtype,
        strides=in_bytes,
        offset=x.offset,
        data=x.base_data,
        allocator=x.allocator,
        events=x.events,
    )


def as_matrix(x: AnyArray, name: str) -> AnyArray:
    """Return an array of at most two dimensions as a matrix; a vector is one column.

    Raises
    ------
    ValueError
        If it has more dimensions.
    """
    if x.ndim > 2:
        raise ValueError(f"{name} has shape {x.shape}: a matrix has two dimensions, not {x.ndim}")
    if x.ndim == 2:
        return x
    missing = (1,) * (2 - x.ndim)
    return view(x, x.shape + missing, layout_of(x).strides + missing)


def rearranged(x: AnyArray, axes: Sequence[int | None]) -> AnyArray:
    """Return a view with the given axes in the given order; None is a new axis of length 1."""
    if list(axes) == list(range(x.ndim)):
        return x
    kept = [axis for axis in axes if axis is not None]
    if isinstance(x, np.ndarray):
        return x.transpose(kept)[tuple(None if a is None else slice(None) for a in axes)]
    shape, strides = x.shape, layout_of(x).strides
    return view(
        x,
        tuple(1 if axis is None else shape[axis] for axis in axes),
        tuple(0 if axis is None else strides[axis] for axis in axes),
    )


def transposed(x: AnyArray) -> AnyArray:
    """Return a view with the last two dimensions exchanged."""
    return rearranged(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def allocated(
    like: AnyArray,
    shape: tuple[int, ...],
    order: Literal["C", "F"],
    queue: cl.CommandQueue | None,
    dtype: np.dtype[Any] = FLOAT32,
) -> AnyArray:
    """Return a new, uninitialised array on the same side as `like`."""
    if isinstance(like, np.ndarray):
        return kept_memory.empty_result(shape, order, dtype)
    import pyopencl as cl

    from clgemm.runtime.events import EventsOnDemand

    assert queue is not None
    if 0 in shape:
        return cl.array.empty(queue, shape, dtype, order)
    array = cl.array.Array.__new__(cl.array.Array)
    vars(array).update(vars(_unallocated(queue, shape, order, dtype)))
    array.allocator, array.events = like.allocator, EventsOnDemand()
    if like.allocator is None:
        array.base_data = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, array.nbytes)
    else:
        array.base_data = like.allocator(array.nbytes)
    return array


@holds_contexts
@functools.lru_cache(maxsize=256)
def _unallocated(
    queue: cl.CommandQueue,
    shape: tuple[int, ...],
    order: Literal["C", "F"],
    dtype: np.dtype[Any],
) -> DeviceArray:
    """Return an array without memory, to be copied, which is faster than pyopencl's constructor."""
    import pyopencl as cl

    return cl.array.Array(queue, shape, dtype, order, data=NO_MEMORY)


def zeros(
    like: AnyArray,
    shape: int | tuple[int, ...],
    order: Literal["C", "F"],
    queue: cl.CommandQueue | None,
    dtype: np.dtype[Any] = FLOAT32,
) -> AnyArray:
    """Return a new array of zeros on the same side as `like`."""
    if isinstance(like, np.ndarray):
        return np.zeros(shape, dtype, order)
    import pyopencl as cl

    assert queue is not None
    return cl.array.zeros(queue, shape, dtype, order, allocator=like.allocator)


def require_queue(queue: object) -> None:
    """Raise TypeError if `queue` is neither a command queue nor None."""
    import pyopencl as cl

    if not (queue is None or isinstance(queue, cl.CommandQueue)):
        raise TypeError(f"queue={queue!r} is not a pyopencl.CommandQueue")


def for_queue(
    queue: cl.CommandQueue, arguments: Sequence[Any], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return operands, of which some are sequences, for a queue; None if all are on the host.

    Raises
    ------
    ValueError
        If device arrays belong to another context than the queue.
    """
    flat = [x for each in arguments for x in (each if type(each) in (list, tuple) else [each])]
    placed = {f"operand {i}": x for i, x in enumerate(flat) if is_device(x)}
    placed |= {name: x for name, x in named.items() if is_device(x)}
    if not placed:
        return None
    common_queue(placed, queue)

    def moved(x: Any) -> Any:
        if type(x) in (list, tuple):
            return [moved(each) for each in x]
        return x.with_queue(queue) if is_device(x) else x

    return tuple(map(moved, arguments)), {name: moved(x) for name, x in named.items()}


def common_queue(
    operands: dict[str, AnyArray], queue: cl.CommandQueue | None
) -> cl.CommandQueue | None:
    """Return the queue for a product of device operands; None for host operands.

    Raises
    ------
    TypeError
        If host and device operands are mixed.
    ValueError
        If device operands belong to different contexts, or none has a queue.
    RuntimeError
        If this process was forked from the process that created them.
    """
    on_device = {name: is_device(x) for name, x in operands.items()}
    if True not in on_device.values():
        return None
    if not all(on_device.values()):
        words = (f"{n} is a {'device' if d else 'host'} array" for n, d in on_device.items())
        raise TypeError(
            f"host and device operands are mixed: {', '.join(words)}; copy one with "
            "pyopencl.array.to_device or .get()"
        )
    queue = queue or next((x.queue for x in operands.values() if x.queue is not None), None)
    if queue is None:
        raise ValueError("no device operand has a queue: pass queue=")
    from clgemm.hardware.forks import require_unforked

    context = queue.context
    require_unforked(context)
    for name, x in operands.items():
        if x.context != context:
            raise ValueError(
                f"{name} belongs to {x.context} but the queue to {queue.context}: "
                "the operands of a product must share a context"
            )
    return queue


def accepted(
    operands: dict[str, Any], queue: cl.CommandQueue | None
) -> tuple[dict[str, AnyArray], cl.CommandQueue | None]:
    """Return operands as float32 arrays, and their `common_queue`.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `common_queue` and `float32_operand`.
    """
    shared = common_queue(operands, queue)
    return {name: float32_operand(x, name) for name, x in operands.items()}, shared


def same_memory(a: AnyArray, b: AnyArray) -> bool:
    """Return whether two arrays have one first element, as views of one array; True is certain."""
    if a is b:
        return True
    if isinstance(a, np.ndarray):
        is_related = a.base is b or (b.base is not None and (b.base is a or b.base is a.base))
        return is_related and address_of(a) == address_of(b)
    return bool(a.base_data == b.base_data and a.offset == b.offset)


def own_transpose(a: AnyArray, b: AnyArray) -> bool:
    """Return whether b is the transpose of a in the same memory, so that a @ b is symmetric."""
    return bool(
        a.ndim == b.ndim > 1
        and a.strides[-1] == b.strides[-2]
        and a.shape == b.shape[:-2] + b.shape[:-3:-1]
        and a.strides == b.strides[:-2] + b.strides[:-3:-1]
        and same_memory(a, b)
    )


def overlap(x: AnyArray, y: AnyArray) -> bool:
    """Return whether two arrays on the same side may share an element."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        if not np.may_share_memory(x, y):
            return False
        try:
            return np.shares_memory(x, y, max_work=cast("Any", OVERLAP_WORK))
        except np.exceptions.TooHardError:
            return True
    if x.base_data != y.base_data:
        return False
    (x_first, x_last), (y_first, y_last) = (
        tuple(a.offset + a.dtype.itemsize * e for e in layout_of(a).extent) for a in (x, y)
    )
    return bool(x_first < y_last + y.dtype.itemsize and y_first < x_last + x.dtype.itemsize)


def overlaps_either(c: AnyArray, a: AnyArray, b: AnyArray) -> bool:
    """Return whether an array may share an element with one of two others on the same side."""
    if is_device(c) and c.base_data not in (a.base_data, b.base_data):
        return False  # the usual case
    return overlap(a, c) or overlap(b, c)


def problem_of(
    a: AnyArray,
    b: AnyArray,
    c: AnyArray,
    precision: str | None,
    beta: float | None = None,
    triangles: Triangles = "",
) -> tuple[Problem, tuple[bool, bool]]:
    """Return the problem C = A B + beta C, and whether `a` and `b` may share elements with `c`.

    Parameters
    ----------
    beta : float, optional
        If left out, nobody asks whether the product is symmetric.
    triangles : {"", "upper", "lower"}, optional
        The triangle of C that alone is updated, where B is A's transpose.
    """
    is_symmetric = False
    if not (triangles or beta is None or precision is None) and own_transpose(a, b):
        is_symmetric, triangles = beta == 0, "both" if beta else ""
    problem = Problem(*layouts_of(a, b, c), precision, is_symmetric, triangles)
    return problem, (overlap(a, c), overlap(b, c))
