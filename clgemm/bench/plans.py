"""The plan of a product in words: its kernel family, its config and its launches."""

from __future__ import annotations

from collections import Counter
from typing import Any

from clgemm.core.precision import chosen_precision
from clgemm.hardware.device import Device
from clgemm.kernels import FAMILIES
from clgemm.planning.planner import plan_of
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.operands import AnyArray, is_device, problem_of

__all__ = ["described"]

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
    configs = [step.config for step in plan.steps]
    # The fallback of another kernel comes behind the one that multiplies. A scaling is alone.
    main = next((config for config in configs if config.family in NAMES), configs[-1])
    counts = Counter(config.family for config in configs)
    return {
        "family": main.family,
        "config": ", ".join(f"{name}={int(value)}" for name, value in vars(main).items()),
        "launches": ", ".join(f"{count} {name}" for name, count in counts.items()),
    }
