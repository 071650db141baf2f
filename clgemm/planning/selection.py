"""The choice of the side, host or device, and of how host arrays reach a device."""

from __future__ import annotations

import functools
import logging
import os

from clgemm.core.host_blas import blas_kernels
from clgemm.core.precision import environment_precision
from clgemm.core.settings import Variable, whole_number
from clgemm.core.transfer_config import TransferConfig
from clgemm.hardware.choice import NoDeviceError, get_device
from clgemm.hardware.device import Device
from clgemm.planning import cpu_choice, gpu_choice
from clgemm.planning.cpu_choice import Cpu
from clgemm.planning.crossovers import Work, kind_of, measured, pays, smallest
from clgemm.planning.host_times import BatchKind

__all__ = [
    "LEAST_BY_LOOP",
    "LEAST_SCATTERED",
    "cpu_of",
    "host_is_faster",
    "is_clearly_faster",
    "is_mostly_result",
    "is_small",
    "reads_in_place",
    "require_settings",
    "threshold",
    "threshold_text",
    "transfer_config",
]

log = logging.getLogger(__name__)

THRESHOLD_VARIABLE = "CLGEMM_THRESHOLD"
threshold_text = Variable(THRESHOLD_VARIABLE).get  # quicker than `threshold`: mostly it is None


def threshold() -> int | None:
    """Return the crossover that the environment sets, in multiply-adds; None if it sets none.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD is not a whole number.
    """
    text = threshold_text()
    setting = text.strip() if text else ""
    try:
        return whole_number(setting) if setting else None
    except ValueError as error:
        raise ValueError(f"{THRESHOLD_VARIABLE}={error}") from None


def require_settings() -> None:
    """Check the environment's settings before anything is computed.

    Raises
    ------
    ValueError
        If the value of CLGEMM_THRESHOLD or CLGEMM_PRECISION is wrong.
    """
    threshold()
    environment_precision()


# Rules for a device whose crossovers have not been measured on this machine. Each is a bound below
# which the host's BLAS multiplies. Where each was measured (2026-11-21, GPU: 2026-11-24):
#   GPU        an H200 against OpenBLAS on 16 Xeon cores, transfers included.
#   CPU        2 cores of an Intel Xeon (AVX-512) against OpenBLAS on the same cores.
#   many cores The 16 Xeon cores beside the H200, against OpenBLAS on them.
CROSSOVER = {  # multiply-adds (m n k, all matrices)
    "GPU": 1000**3,
    "accelerator": 1000**3,  # not measured: as a GPU
    "CPU": 768**3,
}
# Many cores wait longer for launches and packing. By estimates, Intel's get more: see `cpu_choice`.
MANY_CORES_CROSSOVER = 4096**3  # multiply-adds
LEAST_SIDE = {  # rows and columns of C
    "GPU": 8,
    "accelerator": 8,  # not measured: as a GPU
    "CPU": 384,
}
SHORT_SIDE = 8  # of m, n and k, on any device
# Where operands and results are copied, multiply-adds for each element that is copied. A product of
# n x n matrices has n / 3. In a batch, the host multiplies one matrix after the other.
LEAST_REUSE = 100
LEAST_REUSE_OF_BATCHES = 40
# NumPy's `matmul` makes a column times a row in a loop of its own, without BLAS: 2 ns an element.
# From so many elements of the result on, a device is 1.5 to 9 times as fast (two cores of an AMD
# EPYC with PoCL 3.1 and Intel's runtime, 2026-11-25). With transfers, 48 random products break even
# at 1e5 elements; from the second bound on, a GPU is 1.3 to 4 times as fast, in any layout (an H100
# beside 16 Xeon cores, 2026-11-27).
LEAST_BY_LOOP = 2**16
LEAST_BY_LOOP_IF_SENT = 2**17
# The same for a vector times a matrix of so many elements without neighbours in memory. NumPy's
# `matmul` takes 1.2 to 3.4 times as long there as a device on two cores of an Intel Xeon (PoCL 3.1
# and Intel's runtime), and 9 to 14 times on 16. With 160,000 elements, it takes 0.6 to 1.4 times as
# long (2026-11-27). Products of few multiply-adds count as small if fewer elements are copied.
LEAST_SCATTERED = 2**20
# NumPy's `dot` and `inner` sum one element of the result after the other where an operand has more
# than two axes. That takes 10 to 60 times as long as BLAS, so a CPU device pays once NumPy takes
# longer than a call: 300 random products have a mean regret of 1.02 (two cores of an AMD EPYC with
# PoCL 3.1 and Intel's runtime, 2026-11-26). For GPUs, see `gpu_choice`.
LEAST_BY_ELEMENTS = 2**11  # multiply-adds; fewer take less time than any device's call
# A result of NumPy lies in new pages from about 48 MiB on, which take longer to get than to fill.
# The package keeps memory for its results. From so many elements of a new result on, a CPU device
# of few cores is 1.0 to 4.8 times as fast, with a k of 4 to 100 (two cores of an AMD EPYC with PoCL
# 3.1 and Intel's runtime). A GPU with memory of its own is 1.8 to 9 times as fast for batches, as
# NumPy makes one matrix after the other. Single matrices are filled by many cores at once; there it
# is 0.9 to 2.1 times as fast from the second bound on (an H100 beside 16 Xeon cores, 2026-11-25).
LEAST_NEW_RESULT = 12 * 2**20
LEAST_NEW_RESULT_IF_SENT = 2**25
MOST_OPERANDS = 2  # elements of the operands of such a product, for each of its result
# A matrix without neighbours in memory, such as every other element of a larger one or a channel of
# an image, is copied for BLAS. From so many elements on, the copy lies in new pages each time: of
# 4000 x 3600 elements times 64 to 1000 columns, NumPy's `matmul` takes 2.6 to 1.3 times as long as
# a CPU device, which reads them where they lie, and `dot` 1.4 to 1.05 times (two cores of an AMD
# EPYC with PoCL 3.1, 2026-11-25). With fewer elements it takes 0.7 to 1.8 times as long.
LEAST_BY_COPY = 2**23
# The processors for which OpenBLAS has kernels with AVX-512. On two cores of an AMD EPYC (Zen 4),
# the device takes 0.96 of their time (every side 384 or more; PoCL 3.1 and Intel's runtime), but
# 1.4 times as long right after a product of the host, whose threads spin (2026-11-24).
AVX512_KERNELS = ("SkylakeX", "Cooperlake", "SapphireRapids")
# Threads that copy. More of them wait longer for the interpreter's lock than they copy: measured
# with 16 Xeon cores beside an H200, see docs/transfers.md (2026-11-23).
MOST_COPYING = 10
# Blocks per side of C, so that the GPU need not wait for all of B, and the size of B from which on
# that pays. With 4 GiB of B, products took 0.79 to 0.91 of the time, on one H100 and on two; with 1
# GiB 0.79 to 1.12 (beside 32 Xeon cores, 2026-11-25).
SQUARE, SQUARE_BYTES = 4, 2**31
SMALLEST_CROSSOVER = min(CROSSOVER.values())  # multiply-adds
CLEARLY = 4  # the factor above the bounds from which on a GPU is faster by far


def is_small(size_a: int, size_b: int, k: int) -> bool:
    """Tell quickly whether the host multiplies operands of these sizes, whatever the device is.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD is not a whole number.
    """
    if threshold_text() and (setting := threshold()) is not None:
        return size_a * size_b < k * setting
    # A product has (m k) (k n) / k multiply-adds.
    least = smallest(cpu_choice.LEAST_COUNTED)
    if min(size_a, size_b) >= 2 * k:
        least -= cpu_choice.COUNTED_A * size_a + cpu_choice.COUNTED_B * size_b
    return size_a * size_b < k * least


def host_is_faster(
    m: int,
    n: int,
    k: int,
    matrices: int,
    sent: float = 1.0,
    *,
    by_loop: bool = False,
    copied: int = 0,
    is_kept: bool = False,
    kind: BatchKind = BatchKind.OWN_B,
    is_b_transposed: bool = False,
    element_us: float = 0.0,
) -> bool:
    """Tell whether the host's BLAS should multiply host operands.

    Parameters
    ----------
    sent : float, optional
        The share of the operands' and the result's elements that a device with memory of its own
        does not hold yet. All crossovers of such a device shrink with it, see `pays`.
    by_loop : bool, optional
        Whether NumPy makes the product without its BLAS.
    copied : int, optional
        The elements of the operands that NumPy copies for its BLAS.
    is_kept : bool, optional
        Whether the result is a new array, for which the package has kept memory.
    kind : BatchKind, optional
        What the matrices of a batch have in common.
    is_b_transposed : bool, optional
        Whether B is a single matrix with contiguous columns, for which BLAS takes longer.
    element_us : float, optional
        How long NumPy takes for an element of the result, if it sums one after the other.

    Raises
    ------
    RuntimeError
        If CLGEMM_DEVICE names a device that does not work.
    ValueError
        If the value of CLGEMM_THRESHOLD or CLGEMM_DEVICE is wrong.
    """
    work = m * n * k * matrices
    if (least := threshold()) is not None:
        return work < least
    by_elements, host_us = element_us > 0, m * n * matrices * element_us
    if by_elements and host_us < cpu_choice.LEAST_CALL_US:
        return True
    how = kind, is_b_transposed, copied
    suits_cpu = cpu_choice.may_suit(m, n, k, matrices, *how)
    suits_gpu = gpu_choice.suits_batch(m, n, k, matrices, sent, kind)
    of_single = copied if matrices == 1 else 0
    suits_gpu = suits_gpu or gpu_choice.suits_copied(m, n, k, sent, of_single)
    is_large = is_kept and is_mostly_result(m, n, k, matrices)
    by_copy = of_single >= LEAST_BY_COPY
    may_pay = by_elements or suits_cpu or suits_gpu or is_large
    least_work = LEAST_BY_LOOP if by_loop else smallest(SMALLEST_CROSSOVER) * sent
    if work < least_work and not (by_copy or may_pay):
        return True
    if min(m, n, k) < SHORT_SIDE and not (by_loop or may_pay):
        return True
    try:
        device = get_device()
    except NoDeviceError as error:
        _warn_once(str(error))
        return True
    is_sent, is_gpu = transfer_config(device) is not None, device.kind != "CPU"
    if by_elements and is_gpu:
        return not gpu_choice.suits_elements(m, n, k, sent, host_us)
    if by_elements:
        return _emulates_lanes(device) or host_us < cpu_choice.call_us(
            device.traits.limits.cpu_costs
        )
    if by_loop:
        return _emulates_lanes(device) or (is_sent and work < LEAST_BY_LOOP_IF_SENT)
    if is_large and _keeps_memory_for(device, m * n * matrices, matrices):
        return False
    product, found = Work(m, n, k, matrices), measured(device)
    least_of_kinds = found.least if found else {}
    if kind_of(product) not in least_of_kinds:
        if suits_gpu and is_sent and is_gpu:
            return False
        suits_cpu = suits_cpu and reads_in_place(device)
        if suits_cpu and cpu_choice.suits(m, n, k, matrices, cpu_of(device), *how):
            return False
    if min(m, n, k) < SHORT_SIDE:
        return True
    if not is_sent:
        sent = 1.0  # nothing is sent in any case
    if (wins := pays(product, least_of_kinds, sent)) is not None:
        return not wins
    if by_copy and _is_of_few_cores(device):
        return False
    return _rules_choose_host(device, product, sent)


def is_mostly_result(m: int, n: int, k: int, matrices: int) -> bool:
    """Tell whether a product has so large a result that new memory for it takes most of the time.

    A CPU device or a GPU may make it faster if the result is a new array.
    """
    result = matrices * m * n
    if result < LEAST_NEW_RESULT or min(m, n) < SHORT_SIDE:
        return False
    return matrices * k * (m + n) <= MOST_OPERANDS * result


def _keeps_memory_for(device: Device, elements: int, matrices: int) -> bool:
    """Tell whether a device makes a large new result faster, in memory that is kept for it."""
    if transfer_config(device) is None:
        return _is_of_few_cores(device)
    return device.kind == "GPU" and (matrices > 1 or elements >= LEAST_NEW_RESULT_IF_SENT)


def is_clearly_faster(device: Device, work: Work, sent: float = 1.0) -> bool:
    """Tell whether a device that has not been measured is faster by far, as the rules have it.

    Only a GPU with memory of its own can be: others are as fast as the processor, or part of it.
    The product exceeds every bound of the rules by a factor.
    """
    if device.kind != "GPU" or device.cl_device.host_unified_memory:
        return False
    return min(work[:3]) >= SHORT_SIDE and not _rules_choose_host(device, work, CLEARLY * sent)


def _rules_choose_host(device: Device, work: Work, sent: float) -> bool:
    m, n, k, matrices, _ = work
    if device.kind == "CPU":
        many = device.traits.has_many_cores
        if not _outruns_blas(device) or (many and work.size < MANY_CORES_CROSSOVER):
            return True
    if transfer_config(device) is not None:
        least_reuse = LEAST_REUSE if matrices == 1 else LEAST_REUSE_OF_BATCHES
        if m * n * k < least_reuse * sent * (m * k + k * n + m * n):
            return True
    return work.size < CROSSOVER[device.kind] * sent or min(m, n) < LEAST_SIDE[device.kind]


@functools.cache
def _warn_once(message: str) -> None:
    log.warning("clgemm: NumPy multiplies: %s", message)


def reads_in_place(device: Device) -> bool:
    """Tell whether a device is a CPU that reads host arrays fast where they lie."""
    return device.kind == "CPU" and _uses_avx512(device) and transfer_config(device) is None


def _is_of_few_cores(device: Device) -> bool:
    """Tell whether such a CPU has few cores."""
    return reads_in_place(device) and not device.traits.has_many_cores


def cpu_of(device: Device) -> Cpu:
    """Return what the choice depends on besides the product, for a CPU device."""
    traits = device.traits
    return Cpu(traits.limits.cpu_costs, traits.is_amd, traits.limits.compute_units)


def _outruns_blas(device: Device) -> bool:
    """Tell whether a CPU device can beat the host's BLAS; measured only where it uses AVX-512."""
    if not _uses_avx512(device):
        return False
    return not (device.traits.is_amd and blas_kernels() in AVX512_KERNELS)


def _emulates_lanes(device: Device) -> bool:
    """Tell whether a CPU device runs kernels as a GPU would, work-item by work-item."""
    return device.kind == "CPU" and not device.traits.is_vector_compiler


def _uses_avx512(device: Device) -> bool:
    """Tell whether kernels on a CPU are compiled to vectors of 16 floats."""
    return device.traits.register_width == 16 and device.traits.is_vector_compiler


def transfer_config(device: Device) -> TransferConfig | None:
    """Return the limits of transfers to a device; None if it uses host arrays in place."""
    if device.transfer is not None:
        return device.transfer
    if device.shares_host_memory:
        return None
    return _default_config(device.cl_device.global_mem_size // 2)


@functools.cache
def _default_config(memory_bytes: int) -> TransferConfig:
    return TransferConfig(
        memory_bytes=memory_bytes,
        threads=max(1, min(os.cpu_count() or 1, MOST_COPYING)),
        square=SQUARE,
        square_bytes=SQUARE_BYTES,
    )
