"""The trial of a device's tensor cores, in a child process. Exit code 0 means that they work.

``python -m clgemm.tuning.tensor_trial NAME INSTRUCTIONS``, run by `clgemm.planning.validation`.
"""

from __future__ import annotations

import sys

import numpy as np

from clgemm.blas import sgemm
from clgemm.core.caches import forget_plans
from clgemm.hardware.choice import devices, set_device
from clgemm.kernels.tensor_core import family as tensor
from clgemm.planning.validation import assume

# 64 u, with u = 2**-24: far above the errors of right results, far below those of wrong ones.
ALLOWED = 64 * 2.0**-24


def trial(name: str, instructions: str) -> bool:
    """Multiply on the device of this name with every kernel, and check the results."""
    device = next(d for d in devices() if d.name == name)
    assume(device, instructions)
    set_device(device)
    if not all(right(700, 900, spread, "float32") for spread in (0, 5)):  # in one launch
        return False
    tensor.LEAST_TF32_WORK = tensor.LEAST_ELEMENTS = tensor.LEAST_ELEMENTS_EACH = 0
    forget_plans()
    narrow = (700, 50), (20, 900)  # where only the smaller operand is packed
    if not all(right(m, n, spread, "float32") for m, n in narrow for spread in (0, 5)):
        return False
    sizes = (700, 900), (1700, 2100)  # narrow tiles and wide ones
    kinds = (0, "fast"), (0, "float32"), (5, "float32")  # halves, twice, and tf32
    if not all(right(m, n, spread, precision) for m, n in sizes for spread, precision in kinds):
        return False
    tensor.LEAST_INT8_DEPTH = 0
    forget_plans()
    return all(right(m, n, 0, "fast") for m, n in ((1200, 1900), (1700, 2100)))


def right(m: int, n: int, spread: float, precision: str) -> bool:
    """Tell whether one product is right. A float32 one has an infinity and a tiny element."""
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(shape) * np.exp(spread * rng.standard_normal(shape))
        for shape in ((m, 713), (713, n))
    )
    if precision == "float32":
        a[3, 5], b[7, n // 3] = 1e-36, np.inf
    a, b = a.astype(np.float32), b.astype(np.float32)
    exact = a.astype(np.float64) @ b
    sizes = np.abs(a.astype(np.float64)) @ np.abs(b)
    c = sgemm(1.0, a, b, precision=precision)
    finite = np.isfinite(exact)
    if not np.array_equal(finite, np.isfinite(c)):
        return False
    return bool((np.abs(c - exact)[finite] <= ALLOWED * sizes[finite]).all())


if __name__ == "__main__":
    sys.exit(0 if trial(*sys.argv[1:]) else 1)
