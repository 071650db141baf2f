"""The functions that NumPy calls in place of its own products.

Small products return at once to NumPy; the router decides about large ones. Callers call these
functions like any other, from Python or C, so that an exception is raised at the call. NumPy
repeats a product that fails on the device.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.accel.arguments import FLOAT32, Request, are_fitting, parse_matmul
from clgemm.accel.failures import belongs_to_program, is_near_recursion_limit
from clgemm.accel.inside import RunningProducts
from clgemm.accel.known_sides import Key, KnownSide, key_of
from clgemm.accel.places import disguised
from clgemm.accel.repeated import dot_of, multiply_into
from clgemm.accel.routing import DEEP, Router
from clgemm.accel.semantics import (
    FloatErrors,
    is_product_by_own_transpose,
    match_numpy,
    raise_again,
    reports,
)
from clgemm.accel.small import is_small_matmul, small_or_other, timed
from clgemm.accel.tally import DEVICE, DTYPE, Tally
from clgemm.accel.task import Task, task_of
from clgemm.contraction import Sizes, dot_sizes, fits_dot, matmul_sizes, unwrapped, without
from clgemm.hardware.device import Device
from clgemm.planning.crossovers import Work
from clgemm.runtime.finite import watched
from clgemm.runtime.loans import used
from clgemm.runtime.operands import float32_operand, overlap, transposed
from clgemm.runtime.turns import Product

__all__ = ["Hooks"]

LAYOUT = "memory layout"
UNDERFLOW = "report of underflow"


class Hooks:
    """The replacements of NumPy's functions for one group of settings.

    Parameters
    ----------
    running : RunningProducts
        The running products under all settings.
    host : callable
        A copy of NumPy's matmul, for two arrays and no `out`.
    matmul, dot : callable
        NumPy's own functions.
    """

    def __init__(
        self,
        router: Router,
        tally: Tally,
        running: RunningProducts,
        *,
        host: Callable[..., Any],
        matmul: Callable[..., Any],
        dot: Callable[..., Any],
    ) -> None:
        self._router, self._tally, self._running = router, tally, running
        self._host, self._host_matmul, self._host_dot = host, matmul, dot

    def operator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of ``ndarray.__matmul__``, whose overhead counts most."""
        is_small, host, array = is_small_matmul(self._router, self._tally), self._host, np.ndarray
        other = self._tally.quick("matmul", DTYPE).add

        def matmul(*operands: Any, **keywords: Any) -> Any:
            if len(operands) == 2 and not keywords:
                a, b = operands
                if type(a) is array and type(b) is array:
                    dtype = a.dtype
                    if dtype is b.dtype:
                        if dtype is FLOAT32:
                            if is_small(a, b):
                                return host(a, b)
                            return self._matmul(operands, {}, host)
                        if dtype.isbuiltin == 1:  # not a dtype of another package
                            other()
                            return host(a, b)
            return original(*operands, **keywords)

        return disguised(matmul, original)

    def matmul(self) -> Callable[..., Any]:
        """Return a replacement of np.matmul."""
        is_small, host, array = is_small_matmul(self._router, self._tally), self._host, np.ndarray
        other = timed(self._router, self._tally, "matmul", host)
        other_into = timed(self._router, self._tally, "matmul", self._host_matmul)

        def matmul(*arguments: Any, **keywords: Any) -> Any:
            has_out = len(keywords) == 1 and "out" in keywords
            if len(arguments) == 2 and (not keywords or has_out):
                a, b = arguments
                if type(a) is array and type(b) is array and a.dtype is b.dtype:
                    if a.dtype is FLOAT32:
                        if is_small(a, b):
                            return self._host_matmul(a, b, **keywords) if keywords else host(a, b)
                    elif a.dtype.isbuiltin == 1:
                        return other_into(a, b, **keywords) if keywords else other(a, b)
                    if not keywords:
                        return self._matmul(arguments, {}, host)
            return self._matmul(arguments, keywords, self._host_matmul)

        return disguised(matmul, np.matmul)

    def dot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of the implementation of np.dot."""
        is_small = small_or_other(self._router, self._tally, "dot")
        other = timed(self._router, self._tally, "dot", original)

        def dot(a: Any, b: Any, out: Any = None) -> Any:
            if is_small(a, b):
                return other(a, b) if out is None else other(a, b, out)
            return self._dot("dot", a, b, out, lambda: original(a, b, out))

        return disguised(dot, original)

    def inner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of the implementation of np.inner."""
        is_small = small_or_other(self._router, self._tally, "inner")
        other = timed(self._router, self._tally, "inner", original)

        def inner(*operands: Any, **keywords: Any) -> Any:
            if len(operands) != 2 or keywords or is_small(*operands):
                return other(*operands, **keywords)
            a, b = operands
            right = transposed(b) if b.ndim > 1 else b
            return self._dot("inner", a, right, None, lambda: original(a, b))

        return disguised(inner, original)

    def method(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of ``ndarray.dot``."""
        is_small = small_or_other(self._router, self._tally, "ndarray.dot")
        other = timed(self._router, self._tally, "ndarray.dot", original)

        def dot(*operands: Any, **keywords: Any) -> Any:
            if len(operands) != 2 or keywords.keys() - {"out"} or is_small(*operands):
                return other(*operands, **keywords)
            out = keywords.get("out")
            return self._dot("ndarray.dot", *operands, out, lambda: original(*operands, **keywords))

        return disguised(dot, original)

    def _matmul(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], host: Callable[..., Any]
    ) -> Any:
        """Return np.matmul(*arguments, **keywords) from the side that the router chooses."""
        key = None if keywords or len(arguments) != 2 else key_of("matmul", *arguments)

        def prepare() -> Task | None:
            if key is not None and are_fitting(*arguments):
                a, b = arguments
                return self._plain_task(a, b, matmul_sizes(a, b, (1,), True))
            request = parse_matmul(arguments, keywords, self._host)
            return None if request is None else self._matmul_task(request)

        host_product = functools.partial(host, *arguments, **keywords)
        return self._product("matmul", key, prepare, host_product, self._host)

    def _plain_task(self, a: Any, b: Any, choice: tuple[Sizes, float, dict[str, Any]]) -> Task:
        """Return the task of two matrices that have a key, as most have, for a new result."""
        work = Work(*choice[0])

        def on_device(device: Device, queue: cl.CommandQueue | None) -> tuple[Any, FloatErrors]:
            x, y = float32_operand(a, "a"), float32_operand(b, "b")
            c = dot_of(x, y, (work.m, work.n), None, queue)
            return c, match_numpy(False, c, (x, y), lambda: (x, y), device)

        return task_of(work, a, b, choice, on_device)

    def _matmul_task(self, request: Request) -> Task:
        work, out = request.work, request.out
        is_direct = out is not None and request.is_direct

        def on_device(device: Device, queue: cl.CommandQueue | None) -> tuple[Any, FloatErrors]:
            x, y = float32_operand(request.rows, "a"), float32_operand(request.columns, "b")
            c = out if is_direct else request.allocated()
            matrices = request.matrices(c)
            multiply_into(x, y, matrices, queue)
            errors = match_numpy(work.symmetric, matrices, (x, y), lambda: (x, y), device)
            if out is not None and not is_direct:
                np.copyto(out, c, casting="unsafe")  # `parse_matmul` has checked the casting
            return unwrapped(c, None) if out is None else out, errors

        a, b = request.rows, request.columns
        choice = matmul_sizes(a, b, (work.matrices,), out is None)
        return task_of(work, a, b, choice, on_device, is_direct)

    def _dot(self, name: str, x: Any, y: Any, out: Any, host: Callable[[], Any]) -> Any:
        """Return dot(x, y), computed on the side that the router chooses."""
        key = None if out is not None else key_of("dot", x, y)

        def prepare() -> Task | None:
            if key is not None and are_fitting(x, y):
                return self._plain_task(x, y, dot_sizes(x, y, True))
            return self._dot_task(x, y, out) if x.shape[-1] == y.shape[max(y.ndim - 2, 0)] else None

        return self._product(name, key, prepare, host, self._host_dot)

    def _dot_task(self, x: Any, y: Any, out: Any) -> Task:
        shape, k = x.shape[:-1] + without(y.shape, -2), x.shape[-1]
        m, n = math.prod(x.shape[:-1]), math.prod(without(y.shape, -2))
        symmetric = x.ndim == 2 and is_product_by_own_transpose(x, y)

        def on_device(device: Device, queue: cl.CommandQueue | None) -> tuple[Any, FloatErrors]:
            operands = float32_operand(x, "a"), float32_operand(y, "b")
            made = dot_of(*operands, shape, out, queue)
            result = unwrapped(made, out)
            errors = match_numpy(
                symmetric,
                np.asarray(result).reshape(m, n),
                operands,
                lambda: (x.reshape(m, k), np.moveaxis(y, max(y.ndim - 2, 0), 0).reshape(k, n)),
                device,
            )
            return result, errors

        # NumPy raises the error for an `out` that does not fit. If `out` overlapped an operand, a
        # failing device could leave NumPy without that operand.
        usable = out is None or (
            fits_dot(out, shape) and not overlap(out, x) and not overlap(out, y)
        )
        work, choice = Work(m, n, k, 1, symmetric), dot_sizes(x, y, out is None)
        return task_of(work, x, y, choice, on_device, out is not None, usable)

    def _product(
        self,
        name: str,
        key: Key | None,
        prepare: Callable[[], Task | None],
        host: Callable[[], Any],
        same: Callable[..., Any],
    ) -> Any:
        """Return a product, computed on the side that the router chooses.

        Parameters
        ----------
        key : tuple or None
            By `clgemm.accel.known_sides.key_of`.
        prepare : callable
            Returns the task for the device, or None if NumPy must make the product or raise an
            error.
        host : callable
            Returns NumPy's product, also after the device has failed.
        same : callable
            NumPy's function. It makes the device's floating-point errors again, so that NumPy
            reports them.
        """
        start = time.perf_counter()
        device: Device | str | None = None
        task: Task | None = None
        known: KnownSide | None = None
        product: Product | None = None
        try:
            known = self._router.known(key)
            if known is not None and isinstance(known.side, str):
                device = known.side
            else:
                device = self._running.enter()
            if device is None and (task := prepare()) is not None:
                reported = reports()
                device, product = self._choose(task, reported.underflow, known)
                if not isinstance(device, str):
                    queue = self._router.queue(device)
                    before, begun = used(), time.perf_counter()
                    with watched(reported.errors):
                        result, errors = task.on_device(device, queue)
                    ended = time.perf_counter()
                    spent, is_known = ended - begun, known is not None
                    self._router.succeeded(device, task.work, spent, queue is None, is_known)
                    if known is None:
                        self._router.remember(key, device, task.work, product)
                    self._tally.add(name, DEVICE, ended - start, task.size_bytes)
                    if (now := used()) != before:
                        self._tally.add_resident(*(x - y for x, y in zip(now, before, strict=True)))
                    task = None
        except BaseException as error:
            if not isinstance(error, Exception) or belongs_to_program(error):
                if task is not None and task.in_place:
                    host()  # complete the result in the caller's memory, as NumPy does
                raise
            device = self._router.failed(device if isinstance(device, Device) else None, error)
        finally:
            self._running.leave()
        if isinstance(device, Device):
            raise_again(errors, same)
            return result
        begun = time.perf_counter()  # the choice may have measured
        result = host()
        ended = time.perf_counter()
        if known is not None and device is known.side:
            self._router.stayed_again(known, ended - begun)
        elif isinstance(device, str):
            self._router.stayed(device, ended - begun, None if task is None else task.work)
            if task is not None:
                self._router.remember(key, device, task.work, product)
        self._tally.add(name, device or DTYPE, ended - start)
        return result

    def _choose(
        self, task: Task, reports_underflow: bool, known: KnownSide | None
    ) -> tuple[Device | str, Product | None]:
        """Return the device or the reason to stay, and what is to be remembered with it."""
        if is_near_recursion_limit():
            return DEEP, None
        product = None if known else self._router.product(task)
        device = known.side if known else self._router.choose(task.work, task.sent, product)
        if isinstance(device, str):
            return device, product
        if not task.usable:
            return LAYOUT, None
        return (UNDERFLOW, None) if reports_underflow else (device, product)
