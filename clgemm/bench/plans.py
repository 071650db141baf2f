"""The plan of a product in words: its kernel family, its config and its launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from clgemm.core.config import KernelConfig
from clgemm.core.plan import Step
from clgemm.core.precision import chosen_precision
from clgemm.hardware.device import Device
from clgemm.kernels import FAMILIES
from clgemm.planning.planner import plan_of
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.operands import AnyArray, is_device, problem_of

__all__ = ["described", "main_step"]

NAMES = {family.name for family in FAMILIES}


def described(a: AnyArray, b: AnyArray, c: AnyArray, device: Device) -> dict[str, Any]:
    """Return what clgemm runs for C = A B in the chosen precision.

    Returns
    -------
    dict
        ``family`` and ``config``: those of the kernel that multiplies. ``launches``: the families
        of all launches with their numbers. Products of host arrays that reach the device through
        transfers are cut into tiles and have no single plan.
    """
    if not is_device(c) and transfer_config(device) is not None:
        return {"family": "", "config": "", "launches": "tiles, with transfers"}
    problem, _ = problem_of(a, b, c, chosen_precision())
    plan = plan_of(device, problem).plan
    main = main_step(plan.steps).config
    counts = Counter(step.config.family for step in plan.steps)
    return {
        "family": main.family,
        "config": _text(main),
        "launches": ", ".join(f"{count} {name}" for name, count in counts.items()),
    }


def main_step(steps: Sequence[Step]) -> Step:
    """Return the launch that multiplies: the first one of a family that makes products.

    The fallback of another kernel comes behind it. A scaling has the only launch.
    """
    return next((step for step in steps if step.config.family in NAMES), steps[-1])


def _text(config: KernelConfig) -> str:
    return ", ".join(f"{name}={int(value)}" for name, value in vars(config).items())
