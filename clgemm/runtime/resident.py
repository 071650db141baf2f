"""`resident`: the arrays that a program wants devices to keep."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from clgemm.runtime.operands import usable_in_place
from clgemm.runtime.regions import Holding

__all__ = ["resident"]

SHARE = 0.25  # of a device's memory, for all copies together


class resident:
    """Keep copies of arrays on the device, so that products need not send them.

    A product on a device with memory of its own sends its operands there. Resident arrays are sent
    once. All functions of this package and `clgemm.accel` use the copies. They also use them for
    any array whose memory lies in a resident array, such as a transpose, a slice or matrices of a
    batch. The arrays are read-only until the ``with`` block ends or `release` is called.

    Parameters
    ----------
    *arrays : float32 array
        Each owns its memory or is its owner's only view. A read-only view is as good.
    check : bool, optional
        Whether each product makes sure that the memory it uses is what was copied. NumPy cannot
        stop those who hold a writable view or a buffer from before. Linux 6.7 and later tells which
        pages were written to, and these are compared. Elsewhere, threads compare all of the memory
        while the device works. Without the check, nobody may write to the arrays.
    share : float, optional
        The share of a device's memory that all resident arrays together may take, above 0 and at
        most 1. The largest share that living objects ask for counts. Beyond it, the copies that
        were used least recently are dropped, and made anew when they are needed.

    Raises
    ------
    TypeError
        If one of the arrays is not a `numpy.ndarray`, or not of dtype float32.
    ValueError
        If an array cannot be protected, because others could write to its memory. Either it is a
        view of a writable array that others hold, or its memory belongs to a buffer, a file or
        another library. Also if `share` is out of range, or the array's elements are not aligned.

    Notes
    -----
    The arrays are copied to the chosen device at once, and to others when a product there first
    needs them. An array that does not fit is sent with each product, and so are all arrays in a
    forked process. On a device that uses host memory in place, nothing is copied.

    If an array was changed in spite of all, the product is repeated with its new content, and there
    is a RuntimeWarning. Flags become what they were once the last `resident` of an array, its base
    and its views ends. An object that is garbage collected has released its arrays.

    Examples
    --------
    >>> with clgemm.resident(weights):
    ...     y = clgemm.matmul(x, weights)
    """

    def __init__(self, *arrays: Any, check: bool = True, share: float = SHARE) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share={share!r} is not above 0 and at most 1")
        named = [(f"array {i}", x) for i, x in enumerate(arrays)]
        for name, x in named:
            _require_float32(x, name)
        self._holding = holding = Holding(bool(check), float(share))
        self._end = weakref.finalize(self, holding.end)
        self._end.atexit = False
        try:
            for name, x in named:
                holding.add(x, name)
            holding.copy()
        except BaseException:
            self.release()
            raise

    @property
    def uses(self) -> int:
        """The number of operands of products that have used these arrays' copies."""
        return self._holding.counts()[0]

    @property
    def saved_bytes(self) -> int:
        """The size of these operands, which were not sent."""
        return self._holding.counts()[1]

    def release(self) -> None:
        """Free the copies and restore the arrays' flags; the second time, do nothing.

        Copies that a product of another thread uses live until it ends.
        """
        self._end()

    def __enter__(self) -> resident:
        if not self._end.alive:
            raise RuntimeError("these arrays have been released: make a new clgemm.resident")
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _require_float32(x: Any, name: str) -> None:
    if type(x) is not np.ndarray:
        raise TypeError(f"{name} is of type {type(x).__name__}: only a numpy.ndarray is resident")
    if x.dtype != np.float32:
        raise TypeError(f"{name} has dtype {x.dtype}: only float32 is multiplied on the device")
    if not usable_in_place(x):
        raise ValueError(f"{name} is not aligned: strides {x.strides}; pass a copy")
