"""Whether a device multiplies on its tensor cores, and with which config.

The compilers of NVIDIA's drivers take the instructions that this needs without saying so anywhere.
So a child process tries them once for each device and driver: a crash is the child's.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import threading
from dataclasses import replace
from weakref import WeakKeyDictionary

from clgemm.core.cache import recall, remember
from clgemm.core.config import KernelConfig
from clgemm.core.layout import Layout
from clgemm.core.nesting import alone
from clgemm.core.shapes import LOPSIDED, shape_class
from clgemm.core.steps import ceil_div
from clgemm.hardware.device import Device, compute_capability
from clgemm.kernels.sources import sources_hash
from clgemm.kernels.tensor_core.config import (
    NARROW_COLUMNS,
    TILE_ROWS,
    AtOnceConfig,
    MmaConfig,
    NarrowConfig,
    TensorConfig,
    WgmmaConfig,
)
from clgemm.kernels.tensor_core.narrow import fits_narrow
from clgemm.planning.serving import tuned
from clgemm.records.record import TensorChoice

__all__ = [
    "assume",
    "choose_narrow",
    "choose_tensor",
    "instructions_of",
    "tensor_config",
    "tensor_families",
]

log = logging.getLogger(__name__)

# What a trial of the instructions multiplies with.
TRIED: dict[str, tuple[type[KernelConfig], ...]] = {
    "wgmma": (WgmmaConfig, AtOnceConfig, NarrowConfig),
    "mma": (MmaConfig,),
}
TRIAL_SECONDS = 120

# Smaller products are limited by launches, which splitting operands adds to.
LEAST_WORK = 640**3
# Stacks are never made in one launch: so much work of each matrix, and so much in all.
LEAST_WORK_EACH, LEAST_WORK_IN_ALL = 320**3, 770**3
LEAST_SIDE = 256
# From here on tf32 is so much faster than the plain kernel that its launches are worth their time.
LEAST_TF32_WORK = 3000**3
# From here on `"fast"` keeps its bound if low parts are in bytes: kernels/tensor_core/README.md.
LEAST_INT8_DEPTH = 2048
# Stacks whose loops do not join take launches for each part.
MOST_LAUNCHES = 256
UNITS_PER_TILE = 4  # of a deep product, at most
SLACK = 1.1  # times the default's rounds of tiles: what a record for the whole class may take

# Products of few rows or columns, whose larger operand is not packed: how many, fewer in large
# products, what there must be the other way and along k, and of the larger operand.
LEAST_NARROW, MOST_NARROW, MOST_NARROW_IF_LARGE, LARGE_WORK = 3, 256, 192, 2**31
LEAST_LENGTH, LEAST_NARROW_DEPTH, LEAST_ELEMENTS_EACH = 512, 512, 2**20
# And so many elements of all larger operands, or multiply-adds: others are over before the smaller
# operand is packed.
LEAST_ELEMENTS, LEAST_NARROW_WORK = 2**23, 3 * 2**27

# The instructions that serve a device, None if it has to do without.
_instructions: WeakKeyDictionary[Device, str | None] = WeakKeyDictionary()
_lock = threading.RLock()


def choose_tensor(
    device: Device, precision: str, m: int, n: int, k: int, matrices: int, launches: int = 1
) -> tuple[TensorConfig, ...]:
    """Return the tensor configs for a product, each in reserve for the one before.

    There are none if another family makes it.

    Parameters
    ----------
    matrices : int
        In the stack.
    launches : int, optional
        Parts of the stack that each take their own: all its loops but the innermost.
    """
    each, work = m * n * k, matrices * m * n * k
    if matrices == 1:
        small = work < LEAST_WORK
    else:
        small = each < LEAST_WORK_EACH or work < LEAST_WORK_IN_ALL
    if (
        precision == "strict"
        or small
        or min(m, n, k) < LEAST_SIDE
        or launches > MOST_LAUNCHES
        or _is_too_deep(device, m, n, k, matrices)
        or (instructions := instructions_of(device)) is None
    ):
        return ()
    guard = precision == "float32"
    default = tensor_config(instructions, device.limits.compute_units, m, n, guard, matrices)
    halves = _tuned(device, default, m, n, k, matrices)
    if guard and instructions == "wgmma" and work >= LEAST_TF32_WORK:
        return halves, replace(halves, tf32=True)
    in_bytes = not guard and instructions == "wgmma" and k >= LEAST_INT8_DEPTH
    return (replace(halves, int8=in_bytes),)


def choose_narrow(
    device: Device, precision: str, a: Layout, b: Layout, c: Layout
) -> NarrowConfig | None:
    """Return the config for a product of few rows or columns, whose larger operand is not packed.

    None if another family makes it.
    """
    k, matrices = a.columns, math.prod(c.batch)
    short, length = sorted((c.rows, c.columns))
    elements = matrices * length * k
    work = short * elements
    if (
        precision == "strict"
        or not LEAST_NARROW <= short <= (MOST_NARROW if work < LARGE_WORK else MOST_NARROW_IF_LARGE)
        or length < LEAST_LENGTH
        or not LEAST_NARROW_DEPTH <= k < LOPSIDED * length
        or length * k < LEAST_ELEMENTS_EACH
        or (elements < LEAST_ELEMENTS and work < LEAST_NARROW_WORK)
        or not fits_narrow(a, b, c)
        or instructions_of(device) != "wgmma"
    ):
        return None
    columns = next((some for some in NARROW_COLUMNS if some >= short), NARROW_COLUMNS[-1])
    return NarrowConfig(columns, parts=2, ahead=2)


def _is_too_deep(device: Device, m: int, n: int, k: int, matrices: int) -> bool:
    """Tell whether a deep product has so few tiles that most compute units would idle.

    The local family cuts k. On an H200, 256 x 256 x 8192: 22 TFLOP/s against 6; 512 x 512 x 16384:
    40 against 26.
    """
    tiles = matrices * ceil_div(m, TILE_ROWS) * ceil_div(n, TILE_ROWS)
    return k >= LOPSIDED * max(m, n) and UNITS_PER_TILE * tiles < device.limits.compute_units


def _tuned(
    device: Device, default: TensorConfig, m: int, n: int, k: int, matrices: int
) -> TensorConfig:
    """Return the config of the class's record, unless its tiles fill the device much worse here."""
    found = tuned(device, default.family, shape_class(m, n, k, matrices))
    if not isinstance(found, TensorChoice):
        return default
    config = replace(found.config, tf32=default.tf32, guard=default.guard, int8=default.int8)

    def time(config: TensorConfig) -> int:
        tiles = matrices * ceil_div(m, config.tile_m) * ceil_div(n, config.tile_columns)
        return ceil_div(tiles, device.limits.compute_units) * config.tile_columns

    return config if time(config) <= SLACK * time(default) else default


def tensor_config(
    instructions: str, compute_units: int, m: int, n: int, guard: bool, matrices: int = 1
) -> TensorConfig:
    """Return the config for one product; of wgmma's the tiles whose last round wastes least.

    A wide tile takes 2 / 1.04 times as long as a narrow one.
    """
    if instructions == "mma":
        return MmaConfig(swizzle=8, tf32=False, guard=guard)
    wide, narrow = (
        ceil_div(matrices * ceil_div(m, 128) * ceil_div(n, tile_n), compute_units)
        for tile_n in (256, 128)
    )
    tile_n, stages = (256, 2) if 2 * wide <= 1.04 * narrow else (128, 3)
    return WgmmaConfig(swizzle=16, tf32=False, guard=guard, tile_n=tile_n, stages=stages)


def tensor_families(device: Device) -> tuple[str, ...]:
    """Return the kernel family of a device's tensor cores, if it has any that serve."""
    family = {"wgmma": "tensor", "mma": "tensor_mma"}
    return tuple(family[name] for name in (instructions_of(device),) if name)


def instructions_of(device: Device) -> str | None:
    """Return ``"wgmma"``, ``"mma"``, or None if neither serves; tried out once."""
    try:
        return _instructions[device]
    except KeyError:
        pass
    return _tried(device)


@alone
def _tried(device: Device) -> str | None:
    with _lock:
        if device not in _instructions:
            tried = (name for name in _candidates(device) if _verdict(device, name))
            _instructions[device] = next(tried, None)
        return _instructions[device]


def assume(device: Device, instructions: str) -> None:
    """Take it for granted in this process: what the trial does."""
    _instructions[device] = instructions


def _candidates(device: Device) -> tuple[str, ...]:
    """Return what a device's compute capability may have, the faster first."""
    if device.kind != "GPU" or "NVIDIA" not in device.platform:
        return ()
    major, minor = compute_capability(device.cl_device)
    if (major, minor) == (9, 0):  # the only one that has wgmma
        return ("wgmma", "mma")
    # Where the minor number is not zero, graphics cards: their tensor cores are no faster than
    # their other units once each product takes three.
    return ("mma",) if major >= 8 and minor == 0 else ()


def _verdict(device: Device, instructions: str) -> bool:
    driver = device.cl_device.driver_version
    kernels = sources_hash(*TRIED[instructions])
    key = f"{device.name}, driver {driver}: {instructions}, kernels {kernels}"
    able = recall(key)
    if not isinstance(able, bool):
        able = _try_out(device, instructions)
        remember(key, able)
    return able


def _try_out(device: Device, instructions: str) -> bool:
    """Multiply in a child process and return whether the results were right."""
    log.info("trying %s on %s", instructions, device.name)
    command = [sys.executable, "-m", "clgemm.tuning.tensor_trial", device.name, instructions]
    paths = [path for path in sys.path if path]  # as this process finds its modules
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TRIAL_SECONDS, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("no %s on %s: %s", instructions, device.name, error)
        return False
    if done.returncode != 0:
        log.warning(
            "no %s on %s: the trial ended with %d: %s",
            *(instructions, device.name, done.returncode, done.stderr.strip()[-1000:]),
        )
    return done.returncode == 0
