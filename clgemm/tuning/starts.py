"""Where the search of each kernel family begins: its default, what was made by hand, the plainest.

On tensor cores too, whose configs `clgemm.planning.defaults` does not know.
"""

from __future__ import annotations

from dataclasses import replace

from clgemm.hardware.device import Device
from clgemm.kernels.tensor_core.config import MmaConfig, WgmmaConfig
from clgemm.planning import defaults
from clgemm.planning.tensor import tensor_config, tensor_families
from clgemm.records.record import FAMILIES, AnyChoice, TensorChoice

__all__ = ["default", "families", "hand_made", "plain"]

TILES = (128, 3), (256, 2)  # columns, stages


def families(device: Device) -> tuple[str, ...]:
    """Return the kernel families that a device can run: those of its kind, and on tensor cores."""
    return (*defaults.families(device.limits), *tensor_families(device))


def default(device: Device, family: str, m: int, n: int, k: int, matrices: int) -> AnyChoice:
    """Return a family's choice where there is no record."""
    if not _is_tensor(family):
        return defaults.default_choice(device, family, m, n, k, matrices)
    instructions = "wgmma" if family == "tensor" else "mma"
    return TensorChoice(tensor_config(instructions, device.limits.compute_units, m, n, True))


def hand_made(
    device: Device, family: str, m: int, n: int, k: int, matrices: int
) -> tuple[AnyChoice, ...]:
    """Return every choice of a family that was made by hand for devices like this one."""
    if not _is_tensor(family):
        return defaults.hand_made(device, family, m, n, k, matrices)
    first = default(device, family, m, n, k, matrices)
    if not isinstance(first.config, WgmmaConfig):
        return (first,)
    both = (TensorChoice(replace(first.config, tile_n=w, stages=s)) for w, s in TILES)
    return tuple(dict.fromkeys((first, *both)))


def plain(device: Device, family: str) -> AnyChoice:
    """Return a choice that every compiler and device can take, however slow."""
    if not _is_tensor(family):
        return defaults.plain_choice(device, family)
    if family == "tensor_mma":
        return TensorChoice(MmaConfig(swizzle=1, tf32=False, guard=True))
    return TensorChoice(WgmmaConfig(swizzle=1, tf32=False, guard=True, tile_n=128, stages=1))


def _is_tensor(family: str) -> bool:
    return FAMILIES[family] in (MmaConfig, WgmmaConfig)
