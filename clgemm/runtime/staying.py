"""The choice of the side of host arrays: products that are repeated are not compared again.

To compare both sides takes 25 us, and twice that after a product that has filled the caches. It
depends on the shapes and strides, and on what `_state` returns. On a CPU, `clgemm.runtime.turns`
has the last word.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeAlias

from numpy import ndarray

from clgemm.core.caches import forgettable, note
from clgemm.hardware.choice import get_devices
from clgemm.hardware.device import Device
from clgemm.planning import cpu_choice, selection
from clgemm.planning.cpu_choice import LEAST_COUNTED, is_quick_loop
from clgemm.planning.crossovers import Measured, Work, kind_of, measured, on_change, smallest
from clgemm.planning.host_times import UNPACKED, BatchKind
from clgemm.planning.selection import threshold_text
from clgemm.runtime import regions, results
from clgemm.runtime.operands import FLOAT32
from clgemm.runtime.turns import (
    LEAST_THREADED,
    MANY_WAIT_US,
    Product,
    host_makes,
    host_makes_small,
    may_spin,
)

__all__ = ["compared", "host_is_faster", "is_scattered", "stays"]

MOST_KNOWN = 1024

Shapes: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]  # and the function
Key: TypeAlias = tuple[Shapes, tuple[int, ...], tuple[int, ...]]  # and the strides

# The crossover that the environment sets, the devices, and the first one's measured crossovers.
State: TypeAlias = tuple[str | None, tuple[Device, ...], Measured | None]

# Products that are too small for any device, unless the environment sets a crossover: whether
# NumPy's BLAS makes them by several threads.
_small: dict[Shapes, bool] = {}
on_change(_small.clear)
# Products whose sides were compared. No times, if NumPy makes it whatever comes before.
_known: dict[Key, tuple[State, Product | None]] = {}


def stays(function: str, a: Any, b: Any, out: Any) -> bool:
    """Tell quickly whether NumPy makes dot(a, b) or matmul(a, b), and note it.

    Either the product is too small for any device, or its sides were compared before. Beside the
    smallest products of NumPy, which take 2 us, each tenth of a microsecond counts. After larger
    ones, which empty the processor's caches, all that is looked up here takes three times as long.

    Parameters
    ----------
    function : str
        ``"dot"`` or ``"matmul"``: arrays of the same shapes make other products by the other.
    """
    if not (type(a) is type(b) is ndarray and (out is None or type(out) is ndarray)):
        return False
    shapes = function, a.shape, b.shape
    is_threaded = _small.get(shapes)
    if is_threaded is not None and not threshold_text() and (not is_threaded or host_makes_small()):
        return True
    if a.dtype is b.dtype is FLOAT32 and not regions.any_held():
        found = _known.get((shapes, a.strides, b.strides))
        if found is not None and found[0] == _state():
            return found[1] is None or host_makes(found[1])
    return is_threaded is None and _is_small(function, a, b)


def _is_small(function: str, a: Any, b: Any) -> bool:
    """Tell whether a product is too small for any device, and note it."""
    if not a.ndim:
        return False
    k, size_a, size_b, is_set = a.shape[-1], a.size, b.size, bool(threshold_text())
    if function == "matmul" and k == 1 and size_a * size_b >= selection.LEAST_BY_LOOP:
        return False
    is_large = max(size_a, size_b) >= selection.LEAST_SCATTERED
    if is_large and not is_set and _copied(a, 1) + _copied(b, 1) >= selection.LEAST_SCATTERED:
        return False
    if (a.ndim > 2 or b.ndim > 2) and not is_set:
        by_elements = size_a * size_b < k * selection.LEAST_BY_ELEMENTS
        is_small = _is_small_batch(a.shape, b.shape) if function == "matmul" else by_elements
        is_threaded = False
    else:
        is_small = selection.is_small(size_a, size_b, k)
        is_threaded = size_a * size_b >= k * LEAST_THREADED and not is_set
    if is_small and not is_set and not is_large:  # others of these shapes may have to be copied
        note(_small, (function, a.shape, b.shape), is_threaded, MOST_KNOWN)
    return is_small and (not is_threaded or host_makes_small())


@forgettable
@functools.lru_cache(maxsize=1024)
def _is_small_batch(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Tell whether a batch of these shapes takes NumPy less time than any device's call."""
    batch, matrices = a[:-2], math.prod(a[:-2])
    if b[:-2] and b[:-2] != batch:
        matrices *= math.prod(b[:-2])  # at least as many as there are
    m, n, k = a[-2] if len(a) > 1 else 1, b[-1] if len(b) > 1 else 1, a[-1]
    return is_quick_loop(m, n, k, matrices) and matrices * m * n * k < smallest(LEAST_COUNTED)


def host_is_faster(
    function: str | None,
    a: Any,
    b: Any,
    sizes: tuple[int, int, int, int],
    sent: float,
    **how: Any,
) -> bool:
    """Tell whether the host's BLAS should multiply, and note it.

    Parameters
    ----------
    function : str or None
        As for `stays`; None if nothing is to be noted.
    **how
        As for `compared`, as are the other parameters.
    """
    is_hosts, product = compared(a, b, sizes, sent, **how)
    # What is noted must hold for any `out`.
    is_settled = (is_hosts or product) and not selection.is_mostly_result(*sizes)
    if function and is_settled and not regions.any_held() and (state := _state()) is not None:
        key = (function, a.shape, b.shape), a.strides, b.strides
        note(_known, key, (state, product), MOST_KNOWN)
    return is_hosts if product is None else host_makes(product)


def compared(
    a: Any,
    b: Any,
    sizes: tuple[int, int, int, int],
    sent: float,
    by_loop: bool = False,
    is_new: bool = False,
    kind: BatchKind = BatchKind.OWN_B,
    element_us: float = 0.0,
) -> tuple[bool, Product | None]:
    """Return whether the host multiplies faster, and both sides' times if others' products count.

    Parameters
    ----------
    sizes : tuple of int
        m, n, k and the number of matrices.
    sent, by_loop, kind, element_us
        As for `clgemm.planning.selection.host_is_faster`.
    is_new : bool, optional
        Whether the result is a new array.
    """
    m, n, _, matrices = sizes
    is_kept = is_new and results.is_kept(matrices * m * n)
    copied = _copied(a, matrices) + _copied(b, matrices)
    is_flipped = b.ndim == 2 and b.strides[0] == b.itemsize < b.strides[1]
    # Small products are made without a transposed copy of B, if A has contiguous rows.
    is_packed = m * n * sizes[2] > UNPACKED or a.strides[-1] > a.itemsize
    is_told = is_flipped and is_packed
    how: dict[str, Any] = {"kind": kind, "is_b_transposed": is_told, "copied": copied}
    is_hosts = selection.host_is_faster(
        *sizes, sent, by_loop=by_loop, is_kept=is_kept, element_us=element_us, **how
    )
    by_blas = not by_loop and element_us == 0 and copied < selection.LEAST_BY_COPY
    if not by_blas or selection.is_mostly_result(*sizes):
        return is_hosts, None
    return is_hosts, _times(is_hosts, sizes, **how)


def _times(is_hosts: bool, sizes: tuple[int, int, int, int], **how: Any) -> Product | None:
    """Return both sides' times of a product; None unless they take cores from each other."""
    if regions.any_held() or (state := _state()) is None:
        return None
    threshold, devices, found = state
    if threshold or len(devices) > 1 or not selection.reads_in_place(devices[0]):
        return None
    times = cpu_choice.both_us(*sizes, selection.cpu_of(devices[0]), **how)
    if times is None or not may_spin():
        return None
    (m, n, k, matrices), (host_us, device_us) = sizes, times
    if found and kind_of(Work(m, n, k, matrices)) in found.least and is_hosts:
        host_us = min(host_us, device_us)  # the other was measured
    elif not is_hosts:
        device_us = min(device_us, host_us)
    traits = devices[0].traits
    waits_us = MANY_WAIT_US if traits.has_many_cores and not traits.steals_work else 0.0
    return Product(is_hosts, host_us, device_us, m * n * k >= LEAST_THREADED, waits_us)


def is_scattered(x: Any) -> bool:
    """Tell whether no axis of a matrix has neighbours in memory: NumPy copies it for its BLAS."""
    return x.ndim > 1 and 1 not in x.shape[-2:] and x.itemsize not in x.strides[-2:]


def _copied(x: Any, matrices: int) -> int:
    """Return the elements of one operand that NumPy copies for its BLAS, in as many products."""
    return matrices * x.shape[-2] * x.shape[-1] if is_scattered(x) else 0


def _state() -> State | None:
    """Return what the choice of the side depends on besides shapes; None if there is no device."""
    try:
        devices = get_devices()
        return threshold_text(), devices, measured(devices[0])
    except (RuntimeError, ValueError):  # a call that is judged handles them
        return None
