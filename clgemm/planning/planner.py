"""From a problem to its plan: chooses the kernel family and its config for a device."""

from __future__ import annotations

import functools
import math

from clgemm.core.caches import forgettable
from clgemm.core.layout import batch_levels, folded
from clgemm.core.problem import Problem
from clgemm.core.steps import Plan
from clgemm.hardware.device import Device
from clgemm.kernels.blocked.config import RegisterConfig
from clgemm.kernels.blocked.plan import is_faster_transposed
from clgemm.kernels.skinny.plan import fits_skinny
from clgemm.kernels.tensor_core.narrow import make_narrow_plan
from clgemm.kernels.tiled.config import LocalConfig
from clgemm.kernels.tiled.plan import reads_singly
from clgemm.planning.defaults import direct_config, single_loads_choice
from clgemm.planning.plan import make_plan, make_scaling_plan
from clgemm.planning.selection import choose
from clgemm.planning.tensor import choose_narrow, choose_tensor
from clgemm.planning.tensor_plan import make_tensor_plan

__all__ = ["plan_of"]


@forgettable
@functools.lru_cache(maxsize=1024)
def plan_of(device: Device, problem: Problem) -> tuple[Plan, bool]:
    """Return the plan of a product, or of a scaling, which needs no precision.

    Also whether it takes A for B and B for A.
    """
    a, b, c, precision = problem
    a, b = a.broadcast(c.batch), b.broadcast(c.batch)
    # Kernels store along rows. Column-major C = A B is row-major C' = B' A': swap the operands,
    # transpose nothing.
    swapped = c.column_stride != 1 and c.row_stride == 1
    if swapped:
        a, b, c = b.transposed(), a.transposed(), c.transposed()
    if precision is None:
        return make_scaling_plan(c, direct_config(device.limits)), swapped
    a, b, c = folded(a, b, c)
    if (narrow := choose_narrow(device, precision, a, b, c)) is not None:
        return make_narrow_plan(a, b, c, narrow, device.limits), swapped
    sizes = c.rows, c.columns, a.columns, math.prod(c.batch)
    choice = choose(device, *sizes, fits_skinny(a, b, c))
    if isinstance(choice.config, RegisterConfig) and is_faster_transposed(
        a, b, c, choice.config, device.limits
    ):
        a, b, c, swapped = b.transposed(), a.transposed(), c.transposed(), not swapped
    launches = math.prod(level.count for level in batch_levels(a, b, c)[:-1])
    tiers = choose_tensor(device, precision, *sizes, launches)
    if tiers and isinstance(choice.config, LocalConfig):
        if reads_singly(a, b, choice.config):  # a reserve packs nothing that it can read
            choice = single_loads_choice(device) or choice
        assert isinstance(choice.config, LocalConfig)
        assert choice.pack is not None
        return make_tensor_plan(a, b, c, tiers, choice.config, choice.pack, device.limits), swapped
    return make_plan(a, b, c, choice.config, choice.pack, device.limits), swapped
