"""Verification of the public functions: what holds for every call, on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyopencl.array as cl_array

from clgemm.blas import sgemm
from clgemm.core.precision import PRECISIONS, Precision, precision
from clgemm.core.transfer_config import TransferConfig
from clgemm.hardware.choice import device as chosen_device
from clgemm.hardware.device import Device
from clgemm.products import matmul
from clgemm.testing.assertions import assert_bitwise_repeatable, compared
from clgemm.testing.data import made, plant_special
from clgemm.testing.problems import GemmProblem
from clgemm.verify.cases import GUARD, data_for, layout_like
from clgemm.verify.tally import Tally

__all__ = ["PARTS", "verify_contract"]

LARGEST_SIDE = 200
SCALARS = ((1.0, 0.0), (2.0, -1.0), (0.0, 3.0), (-1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
THREADS = 8
# Transfers in small tiles or at once, whatever memory the device has.
LITTLE_MEMORY = TransferConfig(
    memory_bytes=300_000, threads=2, chunk_bytes=2**16, chunks=3, pool_chunks=8, tile_bytes=20_000
)

Array = npt.NDArray[Any]
Found = tuple[int, float, str]  # elements, the largest error in units of the bound, what is wrong


def _side(rng: np.random.Generator) -> int:
    """Return a size around tiles' edges, small, or anything."""
    edge = int(rng.choice([0, 1, 4, 8, 16, 32, 64, 128])) + int(rng.integers(-1, 2))
    any_size = int(rng.integers(1, LARGEST_SIDE))
    return max(0, edge) if rng.integers(2) else any_size


def problem_like(rng: np.random.Generator, mode: str, number: int, order: str = "") -> GemmProblem:
    """Return a random call of sgemm; families of data and scalars take turns."""
    m, n, k = (_side(rng) for _ in range(3))
    alpha, beta = SCALARS[number % len(SCALARS)]
    names = data_for(mode)
    data = names[number % len(names)]
    trans_a, trans_b = (int(x) for x in rng.integers(0, 2, 2))
    special = mode != "fast" and rng.integers(4) == 0

    def placed(rows: int, columns: int, guard: float = np.nan, read: bool = True) -> Any:
        values = made(data, rng, (rows, columns)) if read else np.full((rows, columns), np.nan)
        if special and read:
            values = plant_special(values.astype(np.float32), rng, 1)
        lies = layout_like(rng, 2, any_strides=not order)
        if order:
            lies = replace(lies, axes=(1, 0) if order == "F" else (0, 1))
        return lies.place(values, guard)

    a = placed(*((k, m) if trans_a else (m, k)))
    b = placed(*((n, k) if trans_b else (k, n)))
    c = placed(m, n, GUARD, beta != 0)
    return GemmProblem(alpha, beta, a, b, c, trans_a, trans_b, 1, order, (data, data))


def _checked(problem: GemmProblem, result: Any, mode: str) -> Found:
    """Return what `GemmProblem.check` finds, and the largest error."""
    a, b = problem.a.values, problem.b.values
    worst, message = compared(
        *(result, a, b, problem.alpha, problem.beta),
        None if problem.c is None else problem.c.values,
        trans_a=problem.trans_a,
        trans_b=problem.trans_b,
        precision=mode,
    )
    if not message:
        try:
            problem.check(result, mode)
        except AssertionError as error:
            message = str(error)
    return problem.expected().size, worst, message


def _layouts(_: Device, rng: np.random.Generator, mode: str, number: int) -> Found:
    problem = problem_like(rng, mode, number)
    return _checked(problem, sgemm(*problem.arguments, precision=mode), mode)


def _storage(_: Device, rng: np.random.Generator, mode: str, number: int) -> Found:
    problem = problem_like(rng, mode, number, "FC"[number % 2])
    p = problem.blas
    sgemm(
        *(p.alpha, p.a, p.b, p.beta, p.c, p.trans_a, p.trans_b, 1),
        m=p.m,
        n=p.n,
        k=p.k,
        lda=p.lda,
        ldb=p.ldb,
        ldc=p.ldc,
        order="F" if p.order == "F" else "C",
        precision=mode,
    )
    assert problem.c is not None
    return _checked(problem, problem.c.view, mode)


def _batches(_: Device, rng: np.random.Generator, mode: str, number: int) -> Found:
    m, n, k = (_side(rng) // 2 for _ in range(3))
    batch_a = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 3)))
    batch_b = tuple(1 if rng.integers(3) == 0 else x for x in batch_a[-rng.integers(1, 3) :])
    names = data_for(mode)
    values = made(names[number % len(names)], rng, (*batch_a, m, k))
    a = layout_like(rng, len(batch_a) + 2).place(values).view
    values = made(names[number % len(names)], rng, (*batch_b, k, n))
    b = layout_like(rng, len(batch_b) + 2).place(values).view
    with precision(cast("Precision", mode)):
        result = matmul(a, b)
    return (result.size, *compared(result, a, b, precision=mode))


def _device_arrays(device: Device, rng: np.random.Generator, mode: str, number: int) -> Found:
    problem = problem_like(rng, mode, number)
    a, b, c = (
        cl_array.to_device(device.queue, np.ascontiguousarray(x.view))
        for x in (problem.a, problem.b, problem.c)
        if x is not None
    )
    flags = problem.trans_a, problem.trans_b
    result = sgemm(problem.alpha, a, b, problem.beta, c, *flags, 1, precision=mode)
    on_host = result.get() if result.size else np.empty(result.shape, np.float32)
    return _checked(replace(problem, overwrite_c=0), on_host, mode)


def _threads(_: Device, rng: np.random.Generator, mode: str, __: int) -> Found:
    operands = [
        (made("integers", rng, (s, s + 3)), made("integers", rng, (s + 3, s + 1)))
        for s in (int(x) for x in rng.integers(20, 150, THREADS))
    ]

    def work(pair: tuple[Array, Array]) -> Found:
        result = sgemm(1.0, *pair, precision=mode)
        return (result.size, *compared(result, *pair, precision=mode))

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(work, operands))
    messages = [message for _, _, message in found if message]
    return sum(x[0] for x in found), max(x[1] for x in found), "".join(messages[:1])


def _repeated(_: Device, rng: np.random.Generator, mode: str, __: int) -> Found:
    m, n, k = (64 + 3 * _side(rng) for _ in range(3))
    a, b = made("normal", rng, (m, k)), made("normal", rng, (k, n))
    try:
        result = assert_bitwise_repeatable(sgemm, 1.0, a, b, precision=mode)
    except AssertionError as error:
        return m * n, 0.0, str(error)
    return (result.size, *compared(result, a, b, precision=mode))


def _little_memory(device: Device, rng: np.random.Generator, mode: str, number: int) -> Found:
    """Multiply with operands that go to the device in tiles, as if it had little memory."""
    problem = problem_like(rng, mode, number)
    with chosen_device(_with_little_memory(device)):
        return _checked(problem, sgemm(*problem.arguments, precision=mode), mode)


_little: dict[int, Device] = {}  # by the address of the device's object of OpenCL


def _with_little_memory(device: Device) -> Device:
    key = device.cl_device.int_ptr
    if key not in _little:
        _little[key] = Device(device.cl_device, device.context, LITTLE_MEMORY)
    return _little[key]


Part = Callable[[Device, np.random.Generator, str, int], Found]
PARTS: dict[str, Part] = {
    "layouts, transposes, scalars": _layouts,
    "BLAS storage": _storage,
    "batches": _batches,
    "device arrays": _device_arrays,
    "threads": _threads,
    "repeatability": _repeated,
    "little memory": _little_memory,
}


def verify_contract(
    device: Device, tally: Tally, rng: np.random.Generator, has_time: Callable[[], bool]
) -> None:
    """Run all parts in turns, in every precision, until the time is over; each runs once at least.

    Parameters
    ----------
    has_time : callable
        Whether there is time for another turn.
    """
    with chosen_device(device):
        for number, (name, part, mode) in enumerate(_turns()):
            if number >= len(PARTS) * len(PRECISIONS) and not has_time():
                return
            turn = number // len(PRECISIONS) // len(PARTS)
            try:
                found = part(device, rng, mode, turn)
            except Exception as error:  # whatever fails is what verification is there to tell
                found = 0, 0.0, f"{type(error).__name__}: {error}"
            tally.add(tally.of_part(name), f"{name}, {mode}", *found)


def _turns() -> Iterator[tuple[str, Part, str]]:
    while True:
        for name, part in PARTS.items():
            for mode in PRECISIONS:
                yield name, part, mode
