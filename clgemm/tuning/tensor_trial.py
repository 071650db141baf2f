"""The trial of a device's tensor cores, in a child process. Exit code 0 means that they work.

``python -m clgemm.tuning.tensor_trial NAME INSTRUCTIONS``, run by `clgemm.planning.validation`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
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
from clgemm.kernels.tensor_core.family import NARROW, WGMMA
from clgemm.planning import planner
from clgemm.planning.validation import assume
from clgemm.runtime.memory import place
from clgemm.runtime.workspace import workspace

Array = npt.NDArray[Any]

# 64 u, with u = 2**-24: far above the errors of right results, far below those of wrong ones.
ALLOWED = 64 * 2.0**-24
SMALL = Shape(700, 900, 713)
# Few tiles of a long sum, which are cut along k.
DEEP_SMALL, DEEP = Shape(300, 200, 5000), Shape(1000, 900, 5000)


def trial(name: str, instructions: str) -> bool:
    """Multiply on the device of this name with every kernel, and check the results."""
    device = next(d for d in devices() if d.name == name)
    assume(device, instructions)
    families = [family for family in planner.families(device) if family.instructions]
    narrow, others = (
        [f for f in families if (f is NARROW) == is_narrow] for is_narrow in (True, False)
    )
    of_both = [(others, SMALL), (others, DEEP_SMALL)]
    of_both += [(narrow, Shape(m, n, 713)) for m, n in ((700, 50), (20, 900))]
    cases = [(*case, spread, "float32") for case in of_both for spread in (0, 5)]
    if not all(right(device, *case) for case in cases):
        return False
    has_wgmma = WGMMA in others
    if has_wgmma and not adds_finely(device):
        return False
    if has_wgmma and not adds_finely(device, tf32=True):
        return False
    kinds = (0, "fast"), (0, "float32"), (5, "float32")  # halves, twice, and tf32
    shapes = SMALL, Shape(1700, 2100, 713)
    cases = [(others, shape, *kind) for shape in shapes for kind in kinds]
    cases += [(others, DEEP, *kind) for kind in kinds[1:]]
    if not all(right(device, *case) for case in cases):
        return False
    tensor.LEAST_INT8_DEPTH = 0
    forget_plans()
    shapes = Shape(1200, 1900, 713), Shape(1700, 2100, 713)
    return all(right(device, others, shape, 0, "fast") for shape in shapes)


def right(
    device: Device,
    families: Sequence[Family[Any, Any]],
    shape: Shape,
    spread: float,
    precision: str,
) -> bool:
    """Tell whether a product is right by all configs of these families.

    A float32 one has an infinity and a tiny element.
    """
    m, n, k, _ = shape
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(sizes) * np.exp(spread * rng.standard_normal(sizes))
        for sizes in ((m, k), (k, n))
    )
    if precision == "float32":
        a[3, 5], b[7, n // 3] = 1e-36, np.inf
    a, b = a.astype(np.float32), b.astype(np.float32)
    exact = a.astype(np.float64) @ b
    sizes = np.abs(a.astype(np.float64)) @ np.abs(b)
    finite = np.isfinite(exact)
    for family in families:
        for choice in family.defaults(shape, device.traits):
            c = made(device, family, choice, a, b, precision)
            if not np.array_equal(finite, np.isfinite(c)):
                return False
            if not (np.abs(c - exact)[finite] <= ALLOWED * sizes[finite]).all():
                return False
    return True


def adds_finely(device: Device, tf32: bool = False) -> bool:
    """Tell whether wgmma adds as finely as the bound for short k takes for granted."""
    (choice, *_) = WGMMA.defaults(SMALL, device.traits)

    def multiply(a: Array, b: Array) -> Array:
        return made(device, WGMMA, choice, a, b, "float32")

    return keeps_small_products(multiply, tf32)


def keeps_small_products(multiply: Callable[[Array, Array], Array], tf32: bool = False) -> bool:
    """Tell whether products of 2**-25 count beside one of 1.

    Parameters
    ----------
    multiply : callable
        Takes and returns matrices of float32.
    tf32 : bool, optional
        Whether other rows of A need the range of TF32.
    """
    depth = 8 if tf32 else 16  # what is added in one step
    a, b = np.full((128, depth), 2.0**-12), np.full((depth, 128), 2.0**-13)
    a[:, 0], b[0] = 1, 1
    if tf32:
        a[64:, 1::2] = 2.0**-30
    exact = 1 + (depth - 1) * 2.0**-25
    c = multiply(a.astype(np.float32), b.astype(np.float32))[:64].astype(np.float64)
    return bool((np.abs(c - exact) < 2.0**-23).all())


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
