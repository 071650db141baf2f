"""``python -m clgemm verify``: runs clgemm's contract on a device and writes a record of it.

Operands are random. Each kernel family multiplies with every config that it may be used with. The
contract is what holds for every call of the public functions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array

from clgemm import __version__
from clgemm.blas import gemm, sgemm
from clgemm.core.problem import Problem, Shape
from clgemm.core.settings import PRECISIONS, Precision, precision
from clgemm.core.traits import Identity
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.choice import device as chosen_device
from clgemm.hardware.choice import find_device, get_device
from clgemm.hardware.device import Device, identify
from clgemm.info import installed_version
from clgemm.kernels.common.family import Choice, Family
from clgemm.kernels.exact.types import RESULTS, Types
from clgemm.planning.planner import choice_of, families, make_plan
from clgemm.products import matmul
from clgemm.records.tuned import choice_as_dict, kernels_hash
from clgemm.records.verified import FORMAT, all_verified, file_name, own_folder
from clgemm.runtime import exact
from clgemm.runtime.operands import place
from clgemm.runtime.workspace import workspace
from clgemm.terminal import duration, meter, print_table, whole
from clgemm.testing.assertions import assert_bitwise_repeatable, compared
from clgemm.testing.problems import (
    DATA,
    ArrayLayout,
    GemmProblem,
    Operand,
    made,
    outside_unchanged,
    plant_special,
)

MOST_MESSAGES = 20


@dataclass
class Count:
    """What was verified of one thing.

    Attributes
    ----------
    worst : float
        The largest error in units of the bound.
    """

    products: int = 0
    elements: int = 0
    failures: int = 0
    worst: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        worst = float(f"{self.worst:.3g}") if math.isfinite(self.worst) else None
        return asdict(self) | {"worst": worst}


@dataclass
class Tally:
    """Counts by kernel family and precision, and by part of the contract."""

    families: dict[str, dict[str, Count]] = field(default_factory=dict)
    configs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    contract: dict[str, Count] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def of_family(self, family: str, precision: str) -> Count:
        """Return the count of a family in a precision."""
        return self.families.setdefault(family, {}).setdefault(precision, Count())

    def of_part(self, name: str) -> Count:
        """Return the count of a part of the contract."""
        return self.contract.setdefault(name, Count())

    def add(self, count: Count, where: str, elements: int, worst: float, message: str) -> None:
        """Count a product; a message that is not "" is a failure."""
        count.products += 1
        count.elements += elements
        if message:
            count.failures += 1
            if len(self.messages) < MOST_MESSAGES:
                self.messages.append(f"{where}: {message}")
        else:
            count.worst = max(count.worst, worst)

    @property
    def counts(self) -> list[Count]:
        """All counts."""
        by_family = [count for modes in self.families.values() for count in modes.values()]
        return [*by_family, *self.contract.values()]

    @property
    def failures(self) -> int:
        """Products that were wrong."""
        return sum(count.failures for count in self.counts)

    @property
    def products(self) -> int:
        """Products in all."""
        return sum(count.products for count in self.counts)


GUARD = 12345.0
# Of products by one family. Where alpha is 0, none of them runs.
FAMILY_SCALARS = ((1.0, 0.0), (2.0, -1.0), (-1.0, 0.0), (1.0, 2.0), (0.5, 1.0))
# "fast" has no guard against data of wide range.
FAST = ("ones", "integers", "normal", "full mantissa", "cancelling", "outlier", "half limits")

Array = npt.NDArray[Any]


class Operands(NamedTuple):
    """One product: A, B and C where they lie, and what they are scaled by."""

    a: Operand
    b: Operand
    c: Operand
    alpha: float
    beta: float
    data: str


def data_for(precision: str, number: int) -> str:
    """Return one of the families of data for which a precision promises anything, in turns."""
    names = FAST if precision == "fast" else tuple(DATA)
    return names[number % len(names)]


def layout_like(
    rng: np.random.Generator, ndim: int, *, any_strides: bool = True, columns: bool = True
) -> ArrayLayout:
    """Return a random layout.

    Parameters
    ----------
    any_strides : bool, optional
        Whether rows and columns may have gaps between their elements.
    columns : bool, optional
        Whether a matrix may lie column by column.
    """
    axes = list(range(ndim))
    if columns and rng.integers(2):
        axes[-2:] = axes[:-3:-1]
    steps = [1] * ndim
    if any_strides and rng.integers(2):
        steps[-2:] = (int(x) for x in rng.integers(1, 4, 2))
    before, after = (tuple(int(x) for x in rng.integers(0, 4, ndim)) for _ in range(2))
    return ArrayLayout(tuple(axes), tuple(steps), before, after)


def operands_for(
    rng: np.random.Generator,
    family: Family[Any, Any],
    shape: Shape,
    precision: str,
    number: int,
    any_strides: bool = True,
) -> Operands:
    """Return operands that a family takes; the families of data and the scalars take turns."""
    batch = (shape.matrices,) * (shape.matrices > 1)
    name = data_for(precision, number)
    alpha, beta = FAMILY_SCALARS[number % len(FAMILY_SCALARS)]

    def placed(size_2d: tuple[int, int], data: str, guard: float, columns: bool = True) -> Operand:
        size = (*batch, *size_2d)
        values = np.full(size, np.nan, np.float32) if data == "NaN" else made(data, rng, size)
        if precision != "fast" and guard != GUARD and rng.integers(8) == 0:
            values = plant_special(values, rng, 1)
        lies = layout_like(
            rng, len(size), any_strides=any_strides and family.takes_any_strides, columns=columns
        )
        return lies.place(values, guard)

    m, n, k, _ = shape
    if rng.integers(2):
        m, n = n, m
    a, b = placed((m, k), name, np.nan), placed((k, n), name, np.nan)
    c = placed((m, n), name if beta else "NaN", GUARD, family.stores_columns)
    return Operands(a, b, c, alpha, beta, name)


def on_device(device: Device, operand: Operand) -> tuple[Any, Any]:
    """Return an operand's copy on a device, and all of its base."""
    base, view = cl_array.to_device(device.queue, operand.base), operand.view
    return (
        cl_array.Array(
            device.queue,
            view.shape,
            np.float32,
            strides=view.strides,
            data=base.base_data,
            offset=operand.offset_bytes,
        ),
        base,
    )


# Shapes of products that a family makes, by whose defaults and records its configs are found.
SHAPES = (
    *(Shape(n, n, n) for n in (64, 300, 1000, 3000)),
    *(Shape(4096, few, 1024) for few in (1, 2, 4, 8, 64)),
    *(Shape(few, 4096, 1024) for few in (1, 2, 4, 8, 64)),
    *(Shape(64, 64, 50_000), Shape(128, 128, 128, 100)),
)
MOST_WORK = 2**26  # multiply-adds of one product
LEAST_PRODUCTS = 4  # of each config


def modes_of(family: Family[Any, Any]) -> tuple[str, ...]:
    """Return the precisions in which a family's kernels differ."""
    return ("float32", "fast") if family.instructions else ("strict",)


def choices_of(device: Device, family: Family[Any, Any]) -> list[Choice]:
    """Return the configs that a device may use of a family, those of its records first."""
    served = [choice_of(device, family, shape) for shape in SHAPES]
    defaults = [c for shape in SHAPES for c in family.defaults(shape, device.traits)]
    fitting = (c for c in (*served, *defaults) if not list(family.problems(c, device.limits)))
    return list(dict.fromkeys(fitting))


def cases_of(device: Device, family: Family[Any, Any]) -> Iterator[tuple[Choice, Shape, str]]:
    """Yield each config with each of its edge shapes, in each precision, round by round."""
    choices = choices_of(device, family)
    shapes = {choice: family.edge_shapes(choice.config) for choice in choices}
    for turn in range(max(map(len, shapes.values()), default=0)):
        for choice in choices:
            shape = shapes[choice][turn % len(shapes[choice])]
            if shape.work <= MOST_WORK:
                for mode in modes_of(family):
                    yield choice, shape, mode


def verify_family(
    device: Device,
    family: Family[Any, Any],
    tally: Tally,
    rng: np.random.Generator,
    has_time: Callable[[], bool],
) -> None:
    """Multiply by each config of a family on its edge shapes, until the time is over.

    Every config makes at least `LEAST_PRODUCTS`, whatever the time: building it takes longer.
    """
    assert family in families(device)
    made = dict.fromkeys((choice for choice, *_ in cases_of(device, family)), 0)
    is_over, number = not made, 0
    while not is_over:
        for choice, shape, mode in cases_of(device, family):
            if made[choice] >= LEAST_PRODUCTS and not has_time():
                continue
            if not made[choice]:
                tally.configs.setdefault(family.name, []).append(choice_as_dict(choice))
            for any_strides in (True, False):  # where a family refuses the first, the second
                case = operands_for(rng, family, shape, mode, number, any_strides)
                where = f"{family.name} {choice.config}, {shape.label}, {case.data}, {mode}"
                try:
                    found = _multiplied(device, family, choice, case, mode)
                except (cl.Error, RuntimeError, ValueError) as error:
                    found = 0.0, f"{type(error).__name__}: {error}"
                if found is not None:
                    count = tally.of_family(family.name, mode)
                    tally.add(count, where, case.c.view.size, *found)
                    break
            made[choice] += 1
            number += 1
        is_over = not has_time() and min(made.values()) >= LEAST_PRODUCTS


def _multiplied(
    device: Device, family: Family[Any, Any], choice: Choice, case: Operands, mode: str
) -> tuple[float, str] | None:
    """Return the largest error in units of the bound, and what is wrong.

    Returns
    -------
    (float, str) or None
        None if the family does not take operands that lie so.
    """
    (a, base_a), (b, base_b), (c, base_c) = (on_device(device, x) for x in case[:3])
    matrices = {"a": place(a), "b": place(b), "c": place(c)}
    x, y, z = (matrix.layout for matrix in matrices.values())
    problem = Problem(x, y, z, mode)
    if not family.fits(problem):
        return None
    plan = make_plan(device, problem, family, choice)
    space = workspace(device.queue)
    bound = space.bind(plan, device)
    scratch = space.scratch(bound)
    for slot, size in plan.scratch:  # what scratch memory holds at first must not matter
        cl.enqueue_fill_buffer(device.queue, scratch[slot], np.full(1, np.nan, "f"), 0, size)
    space.run(plan, device, matrices, case.alpha, case.beta)
    device.queue.finish()
    after = base_c.get()
    c, offset = case.c.view, case.c.offset_bytes
    view: Any = np.ndarray(c.shape, np.float32, after, offset=offset, strides=c.strides)
    if not outside_unchanged(after, case.c.before, view):
        return 0.0, "memory around C was written"
    for name, base, operand in (("A", base_a, case.a), ("B", base_b, case.b)):
        if not np.array_equal(base.get().view(np.int32), operand.before.view(np.int32)):
            return 0.0, f"{name} was modified"
    values = case.a.values, case.b.values
    return compared(view, *values, case.alpha, case.beta, case.c.values, precision=mode)


LARGEST_SIDE = 200
SCALARS = ((1.0, 0.0), (2.0, -1.0), (0.0, 3.0), (-1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
THREADS = 8
# Transfers in small tiles or at once, whatever memory the device has.
LITTLE_MEMORY = TransferConfig(
    memory_bytes=300_000, threads=2, chunk_bytes=2**16, chunks=3, pool_chunks=8, tile_bytes=20_000
)

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
    data = data_for(mode, number)
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
    sgemm(**problem.blas._asdict(), overwrite_c=1, precision=mode)
    assert problem.c is not None
    return _checked(problem, problem.c.view, mode)


def _batches(_: Device, rng: np.random.Generator, mode: str, number: int) -> Found:
    m, n, k = (_side(rng) // 2 for _ in range(3))
    batch_a = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 3)))
    batch_b = tuple(1 if rng.integers(3) == 0 else x for x in batch_a[-rng.integers(1, 3) :])
    data = data_for(mode, number)
    values = made(data, rng, (*batch_a, m, k))
    a = layout_like(rng, len(batch_a) + 2).place(values).view
    values = made(data, rng, (*batch_b, k, n))
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


def _other_dtypes(device: Device, rng: np.random.Generator, _: str, __: int) -> Found:
    """Multiply whole numbers of another dtype, whose results are exact, on the host or there."""
    able = [x for x in RESULTS if exact.computes(device, Types(x, x, x))]
    dtype = np.dtype(able[rng.integers(len(able))])
    if rng.integers(8):
        m, n, k = (_side(rng) for _ in range(3))
        a, b = (
            rng.integers(0 if dtype.kind in "bu" else -8, 2 if dtype.kind == "b" else 9, shape)
            for shape in ((m, k), (k, n))
        )
        a, b = (
            layout_like(rng, 2).place(x.astype(np.float32)).view.astype(dtype, order="K")
            for x in (a, b)
        )
    else:  # integers of the whole range, and sizes that tensor cores may take
        m, n, k = (int(side) for side in rng.integers(200, 700, 3))
        name = dtype.str[1:]
        a, b = (exact.random(rng, shape, name, dtype.kind in "fc") for shape in ((m, k), (k, n)))
    if rng.integers(2):
        there = (cl_array.to_device(device.queue, np.ascontiguousarray(x)) for x in (a, b))
        product = matmul(*there)
        found = product.get() if product.size else np.empty(product.shape, product.dtype)
    else:
        found = gemm(1, a, b, dtype=dtype)
    wrong = int((found != exact.expected(a, b, dtype)).sum())
    return (
        found.size,
        0.0,
        f"{wrong} of {found.size} elements of {dtype} are wrong" if wrong else "",
    )


Part = Callable[[Device, np.random.Generator, str, int], Found]
PARTS: dict[str, Part] = {
    "layouts, transposes, scalars": _layouts,
    "BLAS storage": _storage,
    "batches": _batches,
    "device arrays": _device_arrays,
    "threads": _threads,
    "repeatability": _repeated,
    "little memory": _little_memory,
    "other dtypes": _other_dtypes,
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
        turns = itertools.cycle(itertools.product(PARTS.items(), PRECISIONS))
        for number, ((name, part), mode) in enumerate(turns):
            if number >= len(PARTS) * len(PRECISIONS) and not has_time():
                return
            turn = number // len(PRECISIONS) // len(PARTS)
            try:
                found = part(device, rng, mode, turn)
            except Exception as error:  # whatever fails is what verification is there to tell
                found = 0, 0.0, f"{type(error).__name__}: {error}"
            tally.add(tally.of_part(name), f"{name}, {mode}", *found)


MINUTES = 3.0
FAMILIES_SHARE = 0.6  # of the time
INTERRUPTED = 130  # the shell's exit code for a press of Ctrl-C


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--device", metavar="D", help="number, kind or part of a name")
    parser.add_argument(
        "--minutes",
        type=duration("minutes"),
        default=MINUTES,
        metavar="N",
        help="about how long; every config and part runs once at least (default: %(default)g)",
    )
    parser.add_argument(
        "--seed", type=whole, metavar="S", help="of the random operands (default: the time)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="where the device's file is written (default: verified in the cache folder)",
    )


def main(args: argparse.Namespace) -> int:
    """Verify a device and write its file.

    Returns
    -------
    int
        0; 1 if a product was wrong or the file could not be written; 2 if the arguments are wrong;
        130 if interrupted, without a file.
    """
    try:
        device = find_device(args.device) if args.device else get_device()
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    seed = int(time.time()) if args.seed is None else args.seed
    print(f"{device!r}: about {args.minutes:g} minutes, seed {seed}", flush=True)
    begin = time.monotonic()
    try:
        tally = verify(device, 60 * args.minutes, seed)
    except KeyboardInterrupt:
        return INTERRUPTED
    minutes = (time.monotonic() - begin) / 60
    _print(tally)
    who = identify(device)
    path = (own_folder() if args.folder is None else args.folder) / file_name(who)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(as_dict(who, tally, minutes, seed), indent=1)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        print(f"{path} was not written: {error.strerror or error}", file=sys.stderr)
        return 1
    all_verified.cache_clear()
    print(path)
    return int(tally.failures > 0)


def verify(device: Device, seconds: float, seed: int) -> Tally:
    """Run the contract on a device: every family by itself, then the public functions.

    Parameters
    ----------
    seconds : float
        About how long. Every config and every part runs once at least.
    seed : int
        Of the operands.
    """
    tally, rng = Tally(), np.random.default_rng(seed)
    begin = time.monotonic()
    able = families(device)
    report = meter()

    def spent(text: str) -> float:
        so_far = time.monotonic() - begin
        report(so_far, f"{text}: {tally.products} products, {tally.failures} wrong")
        return so_far

    def has_time(text: str, until: float) -> Callable[[], bool]:
        return lambda: spent(text) < until

    for number, family in enumerate(able, 1):
        until = FAMILIES_SHARE * seconds * number / len(able)
        verify_family(device, family, tally, rng, has_time(family.name, until))
    verify_contract(device, tally, rng, has_time("the contract", seconds))
    return tally


def as_dict(who: Identity, tally: Tally, minutes: float, seed: int) -> dict[str, Any]:
    """Return what the device's file holds."""
    return {
        "format": FORMAT,
        "device": who._asdict(),
        "date": date.today().isoformat(),
        "clgemm": __version__,
        "pyopencl": installed_version("pyopencl"),
        "python": platform.python_version(),
        "seed": seed,
        "minutes": round(minutes, 1),
        "families": {
            name: {
                "kernels": kernels_hash(name),
                "precisions": {mode: count.as_dict() for mode, count in modes.items()},
                "configs": tally.configs.get(name, []),
            }
            for name, modes in tally.families.items()
        },
        "contract": {name: count.as_dict() for name, count in tally.contract.items()},
        "failures": tally.messages,
    }


def _print(tally: Tally) -> None:
    rows = [
        (f"family {name}", mode, *_cells(count))
        for name, modes in tally.families.items()
        for mode, count in modes.items()
    ]
    rows += [(name, "all", *_cells(count)) for name, count in tally.contract.items()]
    print_table(
        f"{tally.products:,} products, {tally.failures:,} of them wrong:",
        ("what", "precision", "products", "elements", "wrong", "largest error / bound"),
        ("left", "left", "right", "right", "right", "right"),
        rows,
    )
    for message in tally.messages:
        print(message, file=sys.stderr)


def _cells(count: Count) -> tuple[str, str, str, str]:
    return f"{count.products:,}", f"{count.elements:,}", f"{count.failures:,}", f"{count.worst:.2g}"
