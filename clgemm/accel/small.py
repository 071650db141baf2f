"""Quick tests for products that NumPy makes: small ones, and those of other dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from clgemm.accel.arguments import is_float32
from clgemm.accel.routing import Router
from clgemm.accel.tally import DTYPE, SMALL, Tally
from clgemm.runtime.turns import LEAST_THREADED, host_makes_small

__all__ = ["is_small_matmul", "small_or_other", "timed"]


def timed(
    router: Router, tally: Tally, name: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    """Return NumPy's function for other dtypes than float32, with timing if profiled."""
    is_profiled = router.settings.profile
    return tally.timed(name, DTYPE, original) if is_profiled else original


def is_small_matmul(router: Router, tally: Tally) -> Callable[[Any, Any], bool]:
    """Return a quick test for products too small for the device, which also counts them."""
    small = tally.quick("matmul", SMALL).add

    def is_small(a: Any, b: Any) -> bool:
        sizes, least = a.size * b.size, router.least
        if sizes >= least or sizes >= LEAST_THREADED:
            # A product of two matrices has m k * k n / k multiply-adds.
            is_single = a.ndim == b.ndim == 2
            k = len(b) if is_single else 1
            if sizes >= least * k:
                return False
            if is_single and sizes >= LEAST_THREADED * k and not host_makes_small():
                return False
        small()
        return True

    return is_small


def small_or_other(router: Router, tally: Tally, name: str) -> Callable[[Any, Any], bool]:
    """Return a quick test for dot products that NumPy makes, which also counts them."""
    array = np.ndarray
    small = tally.quick(name, SMALL).add
    # With a profile, `timed` counts them.
    other = int if router.settings.profile else tally.quick(name, DTYPE).add

    def is_small(a: Any, b: Any) -> bool:
        if type(a) is array and type(b) is array and is_float32(a) and is_float32(b):
            sizes, least = a.size * b.size, router.least
            if sizes >= least or sizes >= LEAST_THREADED:
                if not (a.ndim and b.ndim):
                    return True
                k = a.shape[-1] if b.ndim == 2 else 1
                if sizes >= least * k:
                    return False
                if sizes >= LEAST_THREADED * k and not host_makes_small():
                    return False
            small()
            return True
        other()
        return True

    return is_small
