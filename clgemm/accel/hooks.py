"""The functions that NumPy calls in place of its own products.

Small products return at once to NumPy; `clgemm.side.decision` decides about large ones. Callers
call these functions like any other, from Python or C, so that an exception is raised at the call.
NumPy repeats a product that fails on the device.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clgemm import numpy_rules
from clgemm.accel.failures import (
    DEEP,
    FAILED,
    Failures,
    RunningProducts,
    belongs_to_program,
    is_near_recursion_limit,
)
from clgemm.accel.patches import disguised
from clgemm.accel.reporting import advisor
from clgemm.core.settings import goes_by_rule, is_ruled
from clgemm.core.threads import RejectedError
from clgemm.numpy_rules import (
    FLOAT32,
    LEAST_SIZES,
    NEVER,
    Request,
    is_float32,
    of_dot,
    of_inner,
    of_matmul,
)
from clgemm.side import decision
from clgemm.side.counts import DEVICE, DTYPE, SMALL, counts
from clgemm.side.decision import Entry

UNDERFLOW = "report of underflow"
NOTHING = object()  # no argument

# Operands whose products have the floating-point errors that NumPy reports.
Operands: TypeAlias = tuple[Any, Any]
LARGE, INFINITE, ZERO = (np.full((1, 1), x, np.float32) for x in (3e38, np.inf, 0))
# Below the square of the largest float32 number, even if sums of squares in float32 lose some.
BOUND = 1e70


class Settings(NamedTuple):
    """The settings of `install` and `enabled`.

    Attributes
    ----------
    least : int or None
        Multiply-adds from which on the device multiplies; None if measured times, or the
        environment's settings, decide.
    device : Device or None
        None for the device, or devices, of `clgemm.get_devices`.
    profile : bool
        Whether to count and time every product, also small ones and those of other dtypes.
    children : bool
        Whether to accelerate Python processes too that the program starts.
    """

    least: int | None = None
    device: Any = None
    profile: bool = False
    children: bool = False


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
        settings: Settings,
        running: RunningProducts,
        failures: Failures,
        *,
        host: Callable[..., Any],
        matmul: Callable[..., Any],
        dot: Callable[..., Any],
    ) -> None:
        self._settings, self._running, self._failures = settings, running, failures
        self._host, self._host_matmul, self._host_dot = host, matmul, dot
        self._is_plain = settings.least is None and not settings.profile

    def operator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of ``ndarray.__matmul__``, whose overhead counts most."""
        host, array, is_numpys = self._host, np.ndarray, self._quick_test("matmul")
        other, least = counts.counter("matmul", DTYPE).add, LEAST_SIZES.get

        def matmul(a: Any, b: Any = NOTHING, /) -> Any:
            if type(a) is array and type(b) is array:
                dtype = a.dtype
                if dtype is b.dtype:
                    if dtype is FLOAT32:
                        if is_numpys(a, b):
                            return host(a, b)
                        return self._matmul((a, b), {}, host)
                    if dtype.isbuiltin == 1:  # not a dtype of another package
                        size = a.size * b.size
                        if size < numpy_rules.LEAST_SIZE or size < least(dtype, NEVER):
                            other()
                            return host(a, b)
                        return self._matmul((a, b), {}, host)
            return original(a) if b is NOTHING else original(a, b)

        return disguised(matmul, original)

    def matmul(self) -> Callable[..., Any]:
        """Return a replacement of np.matmul."""
        host, array, is_numpys = self._host, np.ndarray, self._quick_test("matmul")
        other, other_into = (self._timed("matmul", x) for x in (host, self._host_matmul))

        def matmul(*arguments: Any, **keywords: Any) -> Any:
            has_out = len(keywords) == 1 and "out" in keywords
            if len(arguments) == 2 and (not keywords or has_out):
                a, b = arguments
                if type(a) is array and type(b) is array and a.dtype is b.dtype:
                    if a.dtype is FLOAT32:
                        if not keywords:
                            if is_numpys(a, b):
                                return host(a, b)
                        elif is_numpys(a, b, True):
                            return self._host_matmul(a, b, **keywords)
                        else:
                            return self._matmul(arguments, keywords, self._host_matmul)
                        return self._matmul(arguments, {}, host)
                    size = a.size * b.size
                    if a.dtype.isbuiltin == 1 and (
                        size < numpy_rules.LEAST_SIZE or size < LEAST_SIZES.get(a.dtype, NEVER)
                    ):
                        return other_into(a, b, **keywords) if keywords else other(a, b)
            return self._matmul(arguments, keywords, self._host_matmul)

        return disguised(matmul, np.matmul)

    def dot(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of the implementation of np.dot."""
        is_numpys, other = self._numpys_test("dot"), self._timed("dot", original)

        def dot(a: Any, b: Any, out: Any = None) -> Any:
            if is_numpys(a, b, out):
                return other(a, b) if out is None else other(a, b, out)
            host = functools.partial(original, a, b, out)
            return self._dot(lambda: of_dot("dot", a, b, out), ("dot", a, b, out), host)

        return disguised(dot, original)

    def inner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of the implementation of np.inner."""
        is_numpys, other = self._numpys_test("inner"), self._timed("inner", original)

        def inner(*operands: Any, **keywords: Any) -> Any:
            # What is known is known of the transpose of b.
            if len(operands) != 2 or keywords or is_numpys(*operands, True):
                return other(*operands, **keywords)
            a, b = operands
            host = functools.partial(original, a, b)
            right = b.T if b.ndim == 2 else b
            return self._dot(lambda: of_inner(a, b), ("inner", a, right, None), host)

        return disguised(inner, original)

    def method(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement of ``ndarray.dot``."""
        is_numpys, other = self._numpys_test("ndarray.dot"), self._timed("ndarray.dot", original)

        def dot(*operands: Any, **keywords: Any) -> Any:
            if len(operands) == 3 and not keywords:
                keywords = {"out": operands[-1]}
                operands = operands[:-1]
            out = keywords.get("out")
            if len(operands) != 2 or keywords.keys() - {"out"} or is_numpys(*operands, out):
                return other(*operands, **keywords)
            host, call = functools.partial(original, *operands, **keywords), (*operands, out)
            request = functools.partial(of_dot, "ndarray.dot", *call)
            return self._dot(request, ("ndarray.dot", *call), host)

        return disguised(dot, original)

    def _quick_test(self, name: str) -> Callable[..., bool]:
        """Return a quick test for float32 products that NumPy computes, which also counts them."""
        least = 0 if self._settings.profile else self._settings.least  # a profile times everything
        return decision.quick_test(name, counts.counter(name, SMALL).add, least)

    def _numpys_test(self, name: str) -> Callable[..., bool]:
        """Return a quick test for dot products that NumPy computes, which also counts them."""
        array, is_numpys = np.ndarray, self._quick_test(name)
        # With a profile, `_timed` counts them.
        other = int if self._settings.profile else counts.counter(name, DTYPE).add

        def test(a: Any, b: Any, out: Any = None) -> bool:
            if type(a) is array and type(b) is array:
                if is_float32(a) and is_float32(b):
                    return not (a.ndim and b.ndim) or is_numpys(a, b, out)
                size, least = a.size * b.size, LEAST_SIZES.get
                if size >= numpy_rules.LEAST_SIZE and (
                    size >= least(a.dtype, NEVER) or size >= least(b.dtype, NEVER)
                ):
                    return False
            other()
            return True

        return test

    def _timed(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return NumPy's function for other dtypes than float32, with timing if profiled."""
        return counts.timed(name, DTYPE, original) if self._settings.profile else original

    def _matmul(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], host: Callable[..., Any]
    ) -> Any:
        """Return np.matmul(*arguments, **keywords) from the side that is decided for it."""
        known, numpys = None, functools.partial(host, *arguments, **keywords)
        if not keywords.keys() - {"out"} and len(arguments) == 2 and self._knows(*arguments):
            known = decision.find("matmul", *arguments, keywords.get("out"))
            if known is not None and not known.goes_to_device():
                return decision.on_host(known, numpys)
        return self._product(
            "matmul", known, lambda: of_matmul(arguments, keywords), numpys, self._host
        )

    def _dot(
        self,
        request: Callable[[], Request | None],
        call: tuple[str, Any, Any, Any],
        host: Callable[[], Any],
    ) -> Any:
        """Return dot(a, b, out) by any of its names, computed on the side that is decided for it.

        Parameters
        ----------
        call : tuple
            The name, a, b and out, by which what is known of the product is found.
        """
        name, a, b, out = call
        known = None
        if self._knows(a, b):
            known = decision.find(name, a, b, out)
            if known is not None and not known.goes_to_device():
                return decision.on_host(known, host)
        return self._product(name, known, request, host, self._host_dot)

    def _knows(self, a: Any, b: Any) -> bool:
        """Return whether products of these operands may have been decided before."""
        array = np.ndarray
        if not (type(a) is type(b) is array and a.dtype is b.dtype is FLOAT32):
            return False
        return self._is_plain and self._settings.device is None and not is_ruled()

    def _product(
        self,
        name: str,
        known: Entry | None,
        prepare: Callable[[], Request | None],
        host: Callable[[], Any],
        same: Callable[..., Any],
    ) -> Any:
        """Return a product, computed on the side that is decided for it.

        Parameters
        ----------
        known : Entry or None
            The product's, if it was decided that the device computes it.
        prepare : callable
            Returns the product, or None if NumPy must answer.
        host : callable
            Returns NumPy's product, also after the device has failed.
        same : callable
            NumPy's function. It repeats the device's floating-point errors, so that NumPy reports
            them.
        """
        with self._scope():
            start = time.perf_counter()
            reason: str | None = None
            request: Request | None = None
            entry, is_tried = known, False
            try:
                reason = self._running.enter()
                if reason is None and (request := prepare()) is not None:
                    heeded = np.geterr()
                    entry, reason = self._decided(known, request, heeded["under"] != "ignore")
                    if reason == DEVICE:
                        is_tried = True
                        result, errors = self._on_device(request, entry, heeded)
                        ended = time.perf_counter()
                        if entry is None:
                            counts.add(name, DEVICE, ended - start, size_bytes=request.size_bytes)
                        else:
                            entry.record_device(1e6 * (ended - start))
                        request = None
            except RejectedError:
                reason = DTYPE
                if entry is not None:
                    entry.reject()
            except BaseException as error:
                if belongs_to_program(error):
                    if request is not None and request.is_direct:
                        host()  # complete the result in the caller's memory, as NumPy does
                    raise
                reason = self._failures.add(error, is_tried, entry)
            finally:
                self._running.leave()
            if reason == DEVICE:
                for operands in errors:
                    same(*operands)
                return result
            if entry is not None and reason == entry.reason:
                return decision.on_host(entry, host)
            begun = time.perf_counter()
            result = host()
            counts.add(name, reason or DTYPE, time.perf_counter() - begun)
            return result

    def _scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return a block in which the device of the settings is chosen, unless it is broken.

        The sides are compared, and kernels built, for that device.
        """
        if self._settings.device is None:
            return contextlib.nullcontext()
        from clgemm.hardware.choice import device

        try:
            return device(self._settings.device)
        except RuntimeError:  # `_on_device` raises it again
            return contextlib.nullcontext()

    def _decided(
        self, known: Entry | None, request: Request, reports_underflow: bool
    ) -> tuple[Entry | None, str]:
        """Return a product's entry, and why NumPy computes it: `DEVICE` if it does not."""
        if is_near_recursion_limit():
            return None, DEEP
        entry = known
        if known is None:
            goes = goes_by_rule(math.prod(request.sizes), self._settings.least)
            if goes is None:
                entry = decision.describe(request)
                goes = entry.goes_to_device()
                entry.is_timed |= self._settings.profile
            if not goes or 0 in request.sizes:
                if entry is None or entry.reason == SMALL:
                    return None, SMALL  # counted by name: a profile times them, too
                return entry, entry.reason
        if self._failures.pauses():
            return None, FAILED
        return (None, UNDERFLOW) if reports_underflow else (entry, DEVICE)

    def _on_device(
        self, request: Request, entry: Entry | None, heeded: Mapping[str, object]
    ) -> tuple[Any, list[Operands]]:
        """Return a product of the device, and operands with its floating-point errors."""
        from clgemm.hardware.choice import device
        from clgemm.runtime.finite import watched
        from clgemm.runtime.readiness import optional
        from clgemm.transfer.resident import used

        before = used()
        with contextlib.ExitStack() as stack:
            if self._settings.device is not None:
                stack.enter_context(device(self._settings.device))
            if entry is not None and not entry.waits:
                stack.enter_context(optional())
            stack.enter_context(watched(not heeded["over"] == heeded["invalid"] == "ignore"))
            result, errors = request.computed(), []
            if request.dtype.char in "efdFD":
                errors = operands_that_err(request.matrices(result), *request.operands())
            delivered = request.delivered(result)
            self._failures.worked()
            if self._settings.profile:
                advisor.record((request.a, request.b), delivered)
        if (now := used()) != before:
            counts.add_moved(0, *(x - y for x, y in zip(now, before, strict=True)))
        return delivered, errors


def operands_that_err(c: Any, a: Any, b: Any) -> list[Operands]:
    """Return small operands whose products have the floating-point errors of the device's product.

    NumPy multiplies them, so that it reports the errors. They are looked for if somebody watches:
    see `clgemm.runtime.finite`.

    Parameters
    ----------
    c : ndarray, shape (..., m, n)
        The product.
    a, b : ndarray, shapes (..., m, k) and (..., k, n)
        The operands. Their batches broadcast to that of `c`.
    """
    from clgemm.hardware.choice import chosen
    from clgemm.runtime.finite import is_finite, watch

    seen = watch()
    if seen is None or not c.size or seen.elements == c.size:
        return []
    if a.size + b.size < c.size and c.dtype == np.float32 and cannot_overflow(a, b):
        return []
    if is_finite(c, chosen()[0]):
        return []
    # Finite numbers give Inf or NaN only by an overflow. Numbers give NaN only by an invalid
    # operation.
    finite = np.isfinite(a).all(-1)[..., :, None] & np.isfinite(b).all(-2)[..., None, :]
    numbers = ~np.isnan(a).any(-1)[..., :, None] & ~np.isnan(b).any(-2)[..., None, :]
    overflows, is_invalid = finite & ~np.isfinite(c), numbers & np.isnan(c)
    return [(LARGE, LARGE)] * bool(overflows.any()) + [(INFINITE, ZERO)] * bool(is_invalid.any())


def cannot_overflow(a: Any, b: Any) -> bool:
    """Return whether no sum of products of rows and columns can overflow, by the operands' norms.

    False also if an element is not finite, and for some operands where no sum overflows.
    """
    # By the Cauchy-Schwarz inequality.
    squares = (float(np.einsum("i,i->", x, x)) for x in (a.ravel("K"), b.ravel("K")))
    return math.prod(squares) < BOUND
