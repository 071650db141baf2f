"""The trial of a device's tensor cores, in a child process. Exit code 0 means that they work.

``python -m clgemm.tuning.tensor_trial NAME INSTRUCTIONS``, run by `clgemm.planning.validation`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl.array as cl_array

from clgemm.core.caches import forget_plans
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.hardware.choice import devices
from clgemm.hardware.device import Device
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.common.family import Family
from clgemm.kernels.tensor_core import family as tensor
from clgemm.kernels.tensor_core.family import NARROW
from clgemm.planning import planner
from clgemm.planning.validation import assume
from clgemm.runtime.memory import place
from clgemm.runtime.workspace import workspace

Array = npt.NDArray[Any]

# 64 u, with u = 2**-24: far above the errors of right results, far below those of wrong ones.
ALLOWED = 64 * 2.0**-24


def trial(name: str, instructions: str) -> bool:
    """Multiply on the device of this name with every kernel, and check the results."""
    device = next(d for d in devices() if d.name == name)
    assume(device, instructions)
    families = [family for family in planner.families(device) if family.instructions]
    narrow, others = (
        [f for f in families if (f is NARROW) == is_narrow] for is_narrow in (True, False)
    )
    cases = [(others, 700, 900, spread, "float32") for spread in (0, 5)]  # in one launch
    cases += [
        (narrow, m, n, spread, "float32") for m, n in ((700, 50), (20, 900)) for spread in (0, 5)
    ]
    if not all(right(device, *case) for case in cases):
        return False
    tensor.LEAST_TF32_WORK = 0
    forget_plans()
    kinds = (0, "fast"), (0, "float32"), (5, "float32")  # halves, twice, and tf32
    sizes = (700, 900), (1700, 2100)
    cases = [(others, m, n, *kind) for m, n in sizes for kind in kinds]
    if not all(right(device, *case) for case in cases):
        return False
    tensor.LEAST_INT8_DEPTH = 0
    forget_plans()
    return all(right(device, others, m, n, 0, "fast") for m, n in ((1200, 1900), (1700, 2100)))


def right(
    device: Device,
    families: Sequence[Family[Any, Any]],
    m: int,
    n: int,
    spread: float,
    precision: str,
) -> bool:
    """Tell whether a product is right by all configs of these families.

    A float32 one has an infinity and a tiny element.
    """
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
    finite, shape = np.isfinite(exact), Shape(m, n, 713)
    for family in families:
        for choice in family.defaults(shape, device.traits):
            c = made(device, family, choice, a, b, precision)
            if not np.array_equal(finite, np.isfinite(c)):
                return False
            if not (np.abs(c - exact)[finite] <= ALLOWED * sizes[finite]).all():
                return False
    return True


def made(
    device: Device, family: Family[Any, Any], choice: Choice, a: Array, b: Array, precision: str
) -> Array:
    """Return a product by a family's choice."""
    queue = device.queue
    x, y = (cl_array.to_device(queue, each) for each in (a, b))
    z = cl_array.empty(queue, (len(a), b.shape[1]), np.float32)
    matrices = {"a": place(x), "b": place(y), "c": place(z)}
    layout_a, layout_b, layout_c = (matrix.layout for matrix in matrices.values())
    problem = Problem(layout_a, layout_b, layout_c, precision).folded()
    plan = planner.make_plan(device, problem, family, choice)
    workspace(queue).run(plan, device, matrices)
    result: Array = z.get()
    return result


if __name__ == "__main__":
    sys.exit(0 if trial(*sys.argv[1:]) else 1)
