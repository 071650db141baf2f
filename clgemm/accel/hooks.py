"""What NumPy calls in place of its own products: small ones pass by, large ones are routed."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from ctypes import c_ssize_t, c_void_p
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.accel.deferred import raise_later
from clgemm.accel.places import Loop
from clgemm.accel.routing import FAILED, Router
from clgemm.accel.semantics import (
    NO_ERRORS,
    FloatErrors,
    heeds_underflow,
    is_by_own_transpose,
    settle,
)
from clgemm.accel.tally import DEVICE, SMALL, Tally
from clgemm.contraction import contracted, fits_dot, unwrapped, without
from clgemm.crossovers import LEAST_WORK, Work
from clgemm.device import Device
from clgemm.launch import multiply
from clgemm.operands import float32_operand, overlap, transposed, updatable

__all__ = ["Hooks"]

FLOAT32 = np.dtype(np.float32)
DTYPE = "dtype"
LAYOUT = "memory layout"
UNDERFLOW = "heed of underflow"
INTERRUPTED = "interruption"
RESULT = 2  # of a loop's operands
# What a device that cannot go on raises; the program's own exceptions are not among it.
DEVICE_ERRORS = (cl.Error, MemoryError, OSError, RuntimeError, ValueError)
LARGE = np.full((1, 1), 3e38, FLOAT32)
INFINITE, ZERO = np.full((1, 1), np.inf, FLOAT32), np.zeros((1, 1), FLOAT32)


class Dimensions(ctypes.Structure):
    """Of a matmul loop: n products of m x k by k x p."""

    _fields_ = (("n", c_ssize_t), ("m", c_ssize_t), ("k", c_ssize_t), ("p", c_ssize_t))


class Memory:
    """An operand of a loop: NumPy makes an array of it where it lies."""

    def __init__(self, address: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": FLOAT32.str,
            "version": 3,
        }


class Hooks:
    """The replacements, for one acceleration: they share its router and its counts.

    Parameters
    ----------
    loop : Loop
        matmul's, for float32.
    host : callable
        NumPy's matmul of float32, whose loop nobody exchanges.
    dot : callable
        NumPy's dot.
    """

    def __init__(
        self,
        router: Router,
        tally: Tally,
        loop: Loop,
        host: Callable[..., Any],
        dot: Callable[..., Any],
    ) -> None:
        self._router, self._tally, self._loop = router, tally, loop
        self._host, self._host_dot = host, dot

    def operator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``ndarray.__matmul__``: small float32 products do not meet the exchanged loop."""
        router, host, matmul, array = self._router, self._host, np.matmul, np.ndarray
        small = self._tally.quick("matmul", SMALL).add
        other = self._tally.quick("matmul", DTYPE).add

        def __matmul__(self: Any, value: Any, /) -> Any:  # noqa: N807 - a method of ndarray
            if type(self) is array and type(value) is array:
                if self.dtype is FLOAT32 and value.dtype is FLOAT32:
                    sizes, least = self.size * value.size, router.least
                    # m k * k n / k: all the multiply-adds of two matrices.
                    if sizes < least or (
                        self.ndim == value.ndim == 2 and sizes < least * len(value)
                    ):
                        small()
                        return host(self, value)
                    return matmul(self, value)
                other()
            return original(self, value)

        return __matmul__

    def dot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what `np.dot` calls."""
        is_small = self._small_or_other("dot")
        other = self._timed("dot", original)

        def dot(a: Any, b: Any, out: Any = None) -> Any:
            if is_small(a, b):
                return other(a, b) if out is None else other(a, b, out)
            return self._dot("dot", a, b, out, lambda: original(a, b, out))

        return dot

    def inner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what `np.inner` calls."""
        is_small = self._small_or_other("inner")
        other = self._timed("inner", original)

        def inner(a: Any, b: Any, /) -> Any:
            if is_small(a, b):
                return other(a, b)
            turned = transposed(b) if b.ndim > 1 else b
            return self._dot("inner", a, turned, None, lambda: original(a, b))

        return inner

    def method(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``ndarray.dot``."""
        is_small = self._small_or_other("ndarray.dot")
        other = self._timed("ndarray.dot", original)

        def dot(self_: Any, *operands: Any, **keywords: Any) -> Any:
            if len(operands) != 1 or keywords.keys() - {"out"} or is_small(self_, operands[0]):
                return other(self_, *operands, **keywords)
            return self._dot(
                *("ndarray.dot", self_, operands[0], keywords.get("out")),
                lambda: original(self_, *operands, **keywords),
            )

        return dot

    def loop(self) -> Callable[[int, int, int, int], None]:
        """Return matmul's loop for float32, which whatever reaches the ufunc comes to."""
        router, original, held = self._router, self._loop.original, self._loop.original_held
        at = Dimensions.from_address
        small = self._tally.quick("matmul", SMALL).add

        def loop(args: int, dimensions: int, steps: int, data: int) -> None:
            sizes = at(dimensions)
            work = sizes.n * sizes.m * sizes.k * sizes.p
            if work < router.least:
                small()
                (held if work < LEAST_WORK else original)(args, dimensions, steps, data)
            else:
                self._run_loop(args, dimensions, steps, data)

        return loop

    def other_loop(self, original: Callable[..., Any]) -> Callable[[int, int, int, int], None]:
        """Return matmul's loop for another dtype, which is timed and NumPy's."""

        def loop(args: int, dimensions: int, steps: int, data: int) -> None:
            start = time.perf_counter()
            original(args, dimensions, steps, data)
            self._tally.add("matmul", DTYPE, time.perf_counter() - start)

        return loop

    def _timed(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return NumPy's function for what is not float32: timed, if a profile is wanted."""
        if not self._router.settings.profile:
            return original

        def call(*arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*arguments, **keywords)
            finally:
                self._tally.add(name, DTYPE, time.perf_counter() - start)

        return call

    def _small_or_other(self, name: str) -> Callable[[Any, Any], bool]:
        """Return what tells at once, and counts, that a dot product is NumPy's."""
        router, array = self._router, np.ndarray
        small = self._tally.quick(name, SMALL).add
        # A profile counts these where it times them.
        other = int if router.settings.profile else self._tally.quick(name, DTYPE).add

        def is_small(a: Any, b: Any) -> bool:
            if type(a) is array and type(b) is array and a.dtype is FLOAT32 is b.dtype:
                sizes, least = a.size * b.size, router.least
                if sizes < least or (b.ndim == 2 and sizes < least * a.shape[-1]):
                    small()
                    return True
                return not (a.ndim and b.ndim)
            other()
            return True

        return is_small

    def _dot(self, name: str, x: Any, y: Any, out: Any, host: Callable[[], Any]) -> Any:
        """Return dot(x, y) from the side that the router chooses."""
        k = x.shape[-1]
        shape = x.shape[:-1] + without(y.shape, -2)
        if k != y.shape[max(y.ndim - 2, 0)]:
            return host()  # for its error
        m, n = math.prod(x.shape[:-1]), math.prod(without(y.shape, -2))
        symmetric = x.ndim == 2 and is_by_own_transpose(x, y)
        # NumPy's error for an output that does not fit. One that overlaps would be lost if the
        # device failed.
        usable = out is None or (
            fits_dot(out, shape) and not overlap(out, x) and not overlap(out, y)
        )
        device = self._choose(Work(m, n, k, 1, symmetric), usable)
        start = time.perf_counter()
        if not isinstance(device, str):
            try:
                with self._router:
                    operands = float32_operand(x, "a"), float32_operand(y, "b")
                    made, _ = contracted(*operands, shape, out, device.queue)
                    result = unwrapped(made, out)
                    errors = settle(
                        symmetric,
                        np.asarray(result).reshape(m, n),
                        lambda: (
                            x.reshape(m, k),
                            np.moveaxis(y, max(y.ndim - 2, 0), 0).reshape(k, n),
                        ),
                        self._host,
                    )
            except DEVICE_ERRORS as error:
                self._router.failed(device, error)
                device = FAILED
            else:
                self._done(name, device, time.perf_counter() - start)
                self._raise_float_errors(errors)
                return result
        result = host()
        self._stayed(name, device, time.perf_counter() - start)
        return result

    def _raise_float_errors(self, errors: FloatErrors) -> None:
        """Let NumPy report errors, if its dot does, as `numpy.errstate` has it."""
        if errors.overflow:
            self._host_dot(LARGE, LARGE)
        if errors.invalid:
            self._host_dot(INFINITE, ZERO)

    def _run_loop(self, args: int, dimensions: int, steps: int, data: int) -> None:
        """Multiply on the side that the router chooses."""
        start = time.perf_counter()
        interruption: BaseException | None = None
        device: Device | str = INTERRUPTED
        try:
            device, errors = self._loop_on_device(args, dimensions, steps)
        except BaseException as raised:  # raised again, later
            interruption = raised
        if isinstance(device, str):
            # The result is whole before anything is raised, as NumPy's is.
            self._loop.original(args, dimensions, steps, data)
            self._stayed("matmul", device, time.perf_counter() - start)
        else:
            self._done("matmul", device, time.perf_counter() - start)
            self._set_float_errors(errors)
        if interruption is not None:
            raise_later(interruption)

    def _loop_on_device(
        self, args: int, dimensions: int, steps: int
    ) -> tuple[Device | str, FloatErrors]:
        """Return the device that multiplied, or why none did, and what went wrong in numbers."""
        sizes = Dimensions.from_address(dimensions)
        addresses = (c_void_p * 3).from_address(args)
        stride = (c_ssize_t * 9).from_address(steps)
        # A matrix by its own transpose: the same memory, rows for columns.
        symmetric = (
            addresses[0] == addresses[1]
            and sizes.m == sizes.p
            and (stride[0], stride[3], stride[4]) == (stride[1], stride[6], stride[5])
        )
        device = self._choose(Work(sizes.m, sizes.p, sizes.k, sizes.n, symmetric))
        if isinstance(device, str):
            return device, NO_ERRORS
        shapes = (sizes.m, sizes.k), (sizes.k, sizes.p), (sizes.m, sizes.p)
        a, b, c = (
            np.asarray(
                Memory(
                    addresses[i] or 0,
                    # What is broadcast is sent once.
                    (sizes.n if stride[i] or i == RESULT else 1, *shapes[i]),
                    (stride[i], stride[3 + 2 * i], stride[4 + 2 * i]),
                )
            )
            for i in range(3)
        )
        if not updatable(c):
            return LAYOUT, NO_ERRORS
        try:
            with self._router:
                x, y = float32_operand(a, "a"), float32_operand(b, "b")
                multiply(1.0, x, y, 0.0, c, queue=device.queue)
                return device, settle(symmetric, c, lambda: (a, b), self._host)
        except DEVICE_ERRORS as error:
            self._router.failed(device, error)
            return FAILED, NO_ERRORS

    def _set_float_errors(self, errors: FloatErrors) -> None:
        """Leave the processor's flags as NumPy's loop would: NumPy reads them when it is back."""
        with np.errstate(all="ignore"):
            np.add(ZERO, ZERO)  # which clears what the runtime left
        pairs = [(LARGE, LARGE)] * errors.overflow + [(INFINITE, ZERO)] * errors.invalid
        for x, y in pairs:
            z = np.empty_like(x)
            addresses = (c_void_p * 3)(*(w.ctypes.data for w in (x, y, z)))
            one, steps = (c_ssize_t * 4)(1, 1, 1, 1), (c_ssize_t * 9)(*[x.itemsize] * 9)
            self._loop.original_held(*(ctypes.addressof(w) for w in (addresses, one, steps)), None)

    def _choose(self, work: Work, usable: bool = True) -> Device | str:
        device = self._router.choose(work)
        if isinstance(device, str):
            return device
        if not usable:
            return LAYOUT
        return UNDERFLOW if heeds_underflow() else device

    def _done(self, name: str, device: Device, seconds: float) -> None:
        self._router.device_name = device.name
        self._tally.add(name, DEVICE, seconds)

    def _stayed(self, name: str, reason: str, seconds: float) -> None:
        self._router.stayed(reason, seconds)
        self._tally.add(name, reason, seconds)
