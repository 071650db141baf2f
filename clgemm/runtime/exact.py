"""Products of integers, booleans and float16 in host memory, on devices that use it in place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from clgemm.core.cache import forgettable
from clgemm.core.plan import Plan
from clgemm.core.problem import Problem
from clgemm.core.threads import RejectedError
from clgemm.hardware.choice import chosen
from clgemm.hardware.device import Device, where
from clgemm.kernels.exact.plan import Types, exact_plan, kernels
from clgemm.planning.bounded import upper_triangle
from clgemm.planning.planner import triangle_rows
from clgemm.planning.transfers import transfer_config
from clgemm.records import verdicts
from clgemm.records.verdicts import Verdict
from clgemm.runtime import readiness
from clgemm.runtime.execute import LONG_WORK, HostMemory, run_in_place
from clgemm.runtime.operands import layout_of, own_transpose
from clgemm.runtime.workspace import workspace

__all__ = ["about", "expected", "multiply", "types_of", "wrong"]

# Sizes that try kernels: around the tiles, along each axis, and with a k that is cut.
TRIED = ((1, 1, 1), (3, 33, 65), (37, 5, 130), (70, 90, 33), (9, 40, 9000))


def types_of(a: Any, b: Any, c: Any) -> Types:
    """Return the dtypes of three arrays by NumPy's kind and size."""
    return Types(*(f"{x.dtype.kind}{x.dtype.itemsize}" for x in (a, b, c)))


@forgettable
@functools.lru_cache(maxsize=256)
def about(device: Device, types: Types) -> str:
    """Return the key of the verdict on the kernels for dtypes."""
    return f"{where(device)}: exact {' '.join(types)}, kernels {kernels()}"


def multiply(a: Any, b: Any, c: Any, device: Device | None = None) -> None:
    """Write A B to C, modulo 2^N for integers, by the device that is chosen or by this one.

    Parameters
    ----------
    a, b : array, shapes (..., m, k) and (..., k, n)
        Batches broadcast to that of `c`.
    c : array, shape (..., m, n)
        It overlaps neither, and no two of its elements share memory.

    Raises
    ------
    NotReadyError
        If kernels are missing, and the product is optional.
    RejectedError
        If the device has memory of its own, or its kernels do not work.
    """
    device = chosen()[0] if device is None else device
    if not device.limits.has_vectors or transfer_config(device) is not None:
        raise RejectedError(f"{device.label} multiplies float32 only")
    a, b = (_in_place(x) for x in (a, b))
    types = types_of(a, b, c)
    is_symmetric = types.a == types.b != "b1" and own_transpose(a, b)
    problem = Problem(layout_of(a), layout_of(b), layout_of(c), "strict", is_symmetric)
    plan, rows = plan_of(device, problem, types)
    if plan is None:
        raise RejectedError(f"a product of {a.shape} and {b.shape} has too long a k")
    _require(device, types)
    run(device, plan, a, b, c)
    if rows:
        for start in range(rows, c.shape[-1], rows):
            end = start + rows
            c[..., start:end, :start] = c[..., :start, start:end].swapaxes(-1, -2)


@forgettable
@functools.lru_cache(maxsize=256)
def plan_of(device: Device, problem: Problem, types: Types) -> tuple[Plan | None, int]:
    """Return the plan of a product, as `exact_plan`, and the rows of the blocks of a triangle.

    Of a symmetric product, only blocks of so many rows from the diagonal on are computed. With 0,
    all of C is. Products of booleans take no less time in blocks.
    """
    problem = problem.broadcast()

    def make(part: Problem) -> Plan:
        plan = exact_plan(*part.layouts, types, device.limits)
        assert plan is not None  # k is that of the whole product
        return plan

    whole = exact_plan(*problem.layouts, types, device.limits)
    rows = triangle_rows(problem, device.traits) if whole is not None else 0
    return (upper_triangle(make, problem, rows), rows) if rows else (whole, 0)


def run(device: Device, plan: Plan, a: Any, b: Any, c: Any) -> None:
    """Run a plan with host arrays; the result is in C on return."""
    space = workspace(device.queue)
    bound = space.bind(plan, device)
    memory = HostMemory(space.queue.context, {"a": a, "b": b, "c": c}, are_addresses=False)
    starts = (-layout_of(x).extent[0] for x in (a, b, c))
    is_long = c.size * a.shape[-1] >= LONG_WORK * device.limits.compute_units
    run_in_place(space, bound, memory, (1.0, 0.0, *starts), is_long)


def _in_place(x: Any) -> Any:
    """Return an array whose elements kernels can read, mostly itself."""
    if x.flags.aligned and all(stride % x.itemsize == 0 for stride in x.strides):
        return x
    return x.copy()


def _require(device: Device, types: Types) -> None:
    """See to it that the kernels for dtypes have been tried."""
    key = about(device, types)
    verdict = verdicts.known(key)
    if verdict is None:
        if readiness.is_optional():
            raise readiness.NotReadyError(
                f"{device.label} has not been tried with {' '.join(types)}"
            )
        verdict = judge(device, types)
    if verdict.reason:
        raise RejectedError(f"{device.label} does not multiply {types.c}: {verdict.reason}")


def ask(device: Device, types: Types) -> Verdict:
    """Return the verdict of a child process on the kernels for dtypes; it stores that."""
    answer = readiness.answer_of_child(device, "exact", types=types)
    if answer is None:
        return Verdict()
    verdict = Verdict(answer.get("reason", ""), answer.get("details", ""))
    if answer["outcome"] in ("right", "failed"):
        verdicts.store(about(device, types), verdict, keep=False)
    return verdict


# A worker, which is such a child process, tries them itself.
judge: Callable[[Device, Types], Verdict] = ask


def wrong(device: Device, types: Types) -> str:
    """Try the kernels for dtypes on small sizes; return what is wrong, "" if nothing is."""
    rng = np.random.default_rng(0)
    for m, n, k in TRIED:
        a, b = (_random(rng, shape, each) for shape, each in (((m, k), types.a), ((k, n), types.b)))
        c = np.zeros((m, n), types.c)
        for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
            plan = exact_plan(*map(layout_of, (x, y, c)), types, device.limits)
            assert plan is not None
            run(device, plan, x, y, c)
            if not np.array_equal(c, expected(x, y, c.dtype)):
                return f"wrong result of {types.a} and {types.b} at {m} x {n} x {k}"
    return ""


def _random(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> Any:
    if dtype == "f2":  # sums of up to 9000 such products are exact in float32
        return rng.integers(-4, 5, shape).astype(np.float16)
    if dtype == "b1":
        return rng.random(shape) < 0.1
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def expected(a: Any, b: Any, dtype: np.dtype[Any]) -> Any:
    """Return A B exactly, by NumPy's loops in wider types."""
    if dtype.kind == "b":
        return a.astype(np.int64) @ b.astype(np.int64) > 0
    if dtype.kind == "f":
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype)
    with np.errstate(over="ignore"):
        return (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype)
