"""The choice of the side, host or device, and of how host arrays reach a device."""

from __future__ import annotations

import functools
import logging
import os

from clgemm.core.precision import environment_precision
from clgemm.core.settings import Variable, whole_number
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.choice import NoDeviceError, get_device
from clgemm.hardware.device import Device
from clgemm.planning.crossovers import Work, measured, pays, smallest

__all__ = [
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
# takes. Measured: docs/performance.md.
CROSSOVER = {"GPU": 1150**3, "accelerator": 1150**3, "CPU": 768**3}
# Where operands and results are copied there and back, multiply-adds for each of their elements: a
# third of the size of a square matrix. The host takes the matrices of a stack one by one.
LEAST_REUSE, LEAST_REUSE_OF_STACKS = 300, 40
MANY_CORES_CROSSOVER = 4096**3  # many cores keep waiting longer for launches and packing
LEAST_SIDE = {"GPU": 8, "accelerator": 8, "CPU": 384}
SHORT_SIDE = 8  # of m, n and k: with a shorter one no device wins
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


def host_is_faster(m: int, n: int, k: int, matrices: int, sent: float = 1.0) -> bool:
    """Tell whether the host's BLAS should multiply host operands.

    Parameters
    ----------
    sent : float, optional
        The share of the operands' and the result's elements that a device with memory of its own
        does not hold yet. All crossovers of such a device shrink with it, see `pays`.

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
    if work < smallest(SMALLEST_CROSSOVER) * sent or min(m, n, k) < SHORT_SIDE:
        return True
    try:
        device = get_device()
    except NoDeviceError as error:
        _warn_once(str(error))
        return True
    if transfer_config(device) is None:
        sent = 1.0  # nothing is sent in any case
    if (found := measured(device)) is not None:
        return not pays(Work(m, n, k, matrices), found.least, sent)
    if device.kind == "CPU":
        many = device.traits.has_many_cores
        if not _outruns_blas(device) or (many and work < MANY_CORES_CROSSOVER):
            return True
    if transfer_config(device) is not None:
        least_reuse = LEAST_REUSE if matrices == 1 else LEAST_REUSE_OF_STACKS
        if m * n * k < least_reuse * sent * (m * k + k * n + m * n):
            return True
    return work < CROSSOVER[device.kind] * sent or min(m, n) < LEAST_SIDE[device.kind]


@functools.cache
def _warn_once(message: str) -> None:
    log.warning("clgemm: NumPy multiplies: %s", message)


def _outruns_blas(device: Device) -> bool:
    """Tell whether a CPU device has been seen to beat the host's BLAS: with AVX-512 in full use."""
    return device.traits.register_width == 16 and device.traits.is_vector_compiler


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
