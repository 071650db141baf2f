"""Which config serves a device and a shape, and from which size on a device beats the host."""

from __future__ import annotations

import functools
import logging
import math
import os

from clgemm.core.caches import forgettable
from clgemm.core.precision import environment_precision
from clgemm.core.settings import Variable, whole_number
from clgemm.core.shapes import shape_class
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.choice import NoDeviceError, get_device
from clgemm.hardware.device import Device, register_width
from clgemm.hardware.identity import MANY_CORES, is_vector_compiler
from clgemm.kernels.tiled.config import LocalConfig
from clgemm.kernels.tiled.estimate import local_spread
from clgemm.planning.crossovers import Work, measured, pays, smallest
from clgemm.planning.defaults import MOST_LANES_ROWS, default_choice, families
from clgemm.planning.serving import tuned
from clgemm.records.record import Choice

__all__ = [
    "choose",
    "host_is_faster",
    "require_settings",
    "smallest_crossover",
    "threshold",
    "transfer_config",
]

log = logging.getLogger(__name__)

THRESHOLD_VARIABLE = "CLGEMM_THRESHOLD"
_variable = Variable(THRESHOLD_VARIABLE)


def threshold() -> int | None:
    """Return the crossover that the environment sets, in multiply-adds; None if it sets none.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD is not a whole number.
    """
    setting = (_variable.get() or "").strip()
    try:
        return whole_number(setting) if setting else None
    except ValueError as error:
        raise ValueError(f"{THRESHOLD_VARIABLE}={error}") from None


def require_settings() -> None:
    """Refuse what the environment sets wrongly before anything is computed.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD or CLGEMM_PRECISION is set to what it cannot be.
    """
    threshold()
    environment_precision()


# Where nothing has been measured here: multiply-adds (m n k, all matrices) from which a device of
# this kind beats the host's BLAS, the way there and back included, and the rows and columns that it
# takes. Measured: README.md, "Speed".
CROSSOVER = {"GPU": 1150**3, "accelerator": 1150**3, "CPU": 768**3}
# Where operands and results are copied there and back, multiply-adds for each of their elements: a
# third of the size of a square matrix. The host takes the matrices of a stack one by one.
LEAST_REUSE, LEAST_REUSE_OF_STACKS = 300, 40
MANY_CORES_CROSSOVER = 4096**3  # many cores keep waiting longer for launches and packing
LEAST_SIDE = {"GPU": 8, "accelerator": 8, "CPU": 384}
SMALLEST_CROSSOVER = min(CROSSOVER.values())


def smallest_crossover() -> int:
    """Return the multiply-adds below which the host multiplies, whatever the device.

    No device is opened for that.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD is not a whole number.
    """
    least = threshold()
    return smallest(SMALLEST_CROSSOVER) if least is None else least


def host_is_faster(m: int, n: int, k: int, matrices: int) -> bool:
    """Tell whether the host's BLAS should multiply host operands.

    Raises
    ------
    RuntimeError
        If CLGEMM_DEVICE names a device that does not work.
    ValueError
        If CLGEMM_THRESHOLD or CLGEMM_DEVICE is set to what it cannot be.
    """
    work = m * n * k * matrices
    if (least := threshold()) is not None:
        return work < least
    if work < smallest(SMALLEST_CROSSOVER) or min(m, n, k) < SHORT_SIDE:
        return True
    try:
        device = get_device()
    except NoDeviceError as error:
        _warn_once(str(error))
        return True
    if (found := measured(device)) is not None:
        return not pays(Work(m, n, k, matrices), found.least)
    if device.kind == "CPU":
        many = device.limits.compute_units >= MANY_CORES
        if not _outruns_blas(device) or (many and work < MANY_CORES_CROSSOVER):
            return True
    if transfer_config(device) is not None:
        least_reuse = LEAST_REUSE if matrices == 1 else LEAST_REUSE_OF_STACKS
        if m * n * k < least_reuse * (m * k + k * n + m * n):
            return True
    return work < CROSSOVER[device.kind] or min(m, n) < LEAST_SIDE[device.kind]


@functools.cache
def _warn_once(message: str) -> None:
    log.warning("clgemm: NumPy multiplies: %s", message)


def _outruns_blas(device: Device) -> bool:
    """Tell whether a CPU device has been seen to beat the host's BLAS: with AVX-512 in full use."""
    return register_width(device) == 16 and is_vector_compiler(device)


# With fewer multiply-adds a matrix, or a side this short, packing costs more than it saves; with
# fewer than the second in a stack, whose tiles keep a GPU busy.
SMALL = {"CPU": 32**3, "GPU": 96**3, "accelerator": 96**3}
SMALL_IN_STACKS = {"CPU": 32**3, "GPU": 16**3, "accelerator": 16**3}
SHORT_SIDE = 8
SMALLEST_SKINNY = 4096
# Times the time that is expected of the default: the model is no better than that, and a little
# better for products of so many multiply-adds.
SLACK, SLACK_IF_LARGE, LARGE_WORK = 1.25, 1.15, 2**30


@forgettable
@functools.lru_cache(maxsize=1024)
def choose(
    device: Device, m: int, n: int, k: int, matrices: int, fits_skinny: bool = False
) -> Choice:
    """Return the config for a stack of `matrices` products of m x k by k x n.

    Parameters
    ----------
    fits_skinny : bool
        Whether the operands' shapes and strides are what the skinny family takes.
    """
    name, own = shape_class(m, n, k, matrices), families(device.limits)
    vectors = device.limits.vector_width > 1
    if fits_skinny and n * m * k > SMALLEST_SKINNY and (vectors or min(m, n) <= MOST_LANES_ROWS):
        family = own[1]
    else:
        most = (SMALL if matrices == 1 else SMALL_IN_STACKS)[device.kind]
        small = m * n * k <= most or (vectors and min(m, n) < SHORT_SIDE)
        family = own[2] if small else own[0]
    default = default_choice(device, family, m, n, k, matrices)
    found = tuned(device, family, name, default)
    if not isinstance(found, Choice):
        return default
    return found if _suits(found, default, (m, n, k, matrices), device) else default


def transfer_config(device: Device) -> TransferConfig | None:
    """Return how host arrays reach a device; None if it uses them where they lie."""
    if device.transfer is not None:
        return device.transfer
    if device.shares_host_memory:
        return None
    return TransferConfig(
        memory_bytes=device.cl_device.global_mem_size // 2,
        threads=max(1, min((os.cpu_count() or 1) // 2, 8)),
    )


def _suits(
    found: Choice, default: Choice, shape: tuple[int, int, int, int], device: Device
) -> bool:
    """Tell whether the best of a class should make this shape too.

    Tiles that are right for the samples may leave most compute units idle here.
    """
    if not isinstance(found.config, LocalConfig) or not isinstance(default.config, LocalConfig):
        return True
    if device.kind == "CPU":  # which the model is not for
        return True
    by_default, as_found = (
        local_spread(config, *shape, device.limits).time
        for config in (default.config, found.config)
    )
    slack = SLACK_IF_LARGE if math.prod(shape) >= LARGE_WORK else SLACK
    return as_found < slack * by_default
