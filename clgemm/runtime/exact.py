"""Kernels for other dtypes than float32 on a device: they are tried, and bound to a queue."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.core.cache import forget_plans, forgettable, warn_once
from clgemm.core.plan import Plan, expected_us
from clgemm.core.problem import Problem, Shape, shape_class
from clgemm.core.settings import chosen_precision
from clgemm.core.threads import RejectedError
from clgemm.core.traits import Limits
from clgemm.hardware.device import Device, of_queue, where
from clgemm.kernels import OTHER_DTYPES
from clgemm.kernels.common.family import Choice
from clgemm.kernels.exact.complexes import RealProduct
from clgemm.kernels.exact.family import Exact
from clgemm.kernels.exact.plan import ExactPlan, ExactTile, exact_plan, lane_work
from clgemm.kernels.exact.types import COMPLEX, DOUBLE, DTYPES, RESULTS, Types
from clgemm.kernels.mirror.plan import mirror_plan
from clgemm.planning import planner
from clgemm.planning.bounded import upper_triangle
from clgemm.records import verdicts
from clgemm.records.tuned import choice_as_dict, kernels_hash
from clgemm.records.verdicts import Verdict
from clgemm.runtime import readiness
from clgemm.runtime.execute import BoundCall, execute_matrices, least_long_work
from clgemm.runtime.operands import Layouts, Matrix, layouts_of
from clgemm.runtime.workspace import Workspace, workspace

# Sizes that try kernels: around the tiles, along each axis, and with a k that is cut.
TRIED = tuple(
    Shape(*sizes) for sizes in ((1, 1, 1), (3, 33, 65), (37, 5, 130), (70, 90, 33), (9, 40, 9000))
)
TRIED_ON_TENSORS = Shape(70, 300, 33), Shape(300, 700, 300), Shape(9, 40, 20_000)
MOST_CHECKED = 2**26  # multiply-adds of a product of which all rows are compared
HALVES_K = 3000
_FAMILIES = {family.types.c: family for family in OTHER_DTYPES.values()}
LEAST_US = 50.0  # of a complex product, below which its plan as a real one is not looked for


def types_of(a: Any, b: Any, c: Any) -> Types:
    """Return the dtypes of three arrays by NumPy's kind and size, with the precision that holds."""
    names = (f"{x.dtype.kind}{x.dtype.itemsize}" for x in (a, b, c))
    return Types(*names, *((chosen_precision(),) if c.dtype.char in "eF" else ()))


def bind_arrays(a: Any, b: Any, c: Any, is_symmetric: bool, is_alone: bool = False) -> BoundCall:
    """Return what computes C = A B of device arrays, as `bind` does."""
    place = of_queue(c.queue), workspace(c.queue)
    layouts, types = layouts_of(a, b, c), types_of(a, b, c)
    return bind(layouts, types, *place, is_symmetric=is_symmetric, is_alone=is_alone)


@forgettable
@functools.lru_cache(maxsize=256)
def about(
    device: Device, types: Types, on_tensors: bool = False, choice: Choice | None = None
) -> str:
    """Return the key of the verdict on the kernels for dtypes, or on the choice of a record."""
    if choice is not None:
        return verdicts.about_family(where(device), choice.config.family, repr(choice))
    cores = " on tensor cores" if on_tensors else ""
    kernels = kernels_hash(family_of(types).name)
    return f"{where(device)}: exact {' '.join(types[:3])}{cores}, kernels {kernels}"


def family_of(types: Types) -> Exact:
    """Return the kernels for dtypes, as the records know them."""
    return _FAMILIES[types.c.replace("u", "i")]


def computes(device: Device, types: Types) -> bool:
    """Return whether a device may compute products of these dtypes, if its kernels work."""
    if not all(each in DTYPES for each in types[:3]) or types.c not in RESULTS:
        return False
    return RESULTS[types.c][0] != DOUBLE or bool(device.cl_device.double_fp_config)


def bind(
    layouts: Layouts,
    types: Types,
    device: Device,
    space: Workspace,
    rows: int = 0,
    is_symmetric: bool = False,
    is_alone: bool = False,
) -> BoundCall:
    """Return what computes C = A B, or adds it to C if `beta` is 1, built and set up.

    Parameters
    ----------
    rows : int, optional
        Of a symmetric product, only blocks of so many rows from the diagonal on are computed. C has
        its rows one after the other then. With 0, all of C is computed.
    is_symmetric : bool, optional
        Whether B is A's transpose, so that half of C may be computed and mirrored.
    is_alone : bool, optional
        Whether nobody else uses its kernels.

    Raises
    ------
    NotReadyError
        If kernels are missing, and the product is optional.
    RejectedError
        If the device does not compute such products, or its kernels do not work.
    """
    if not computes(device, types):
        raise RejectedError(f"{device.label} does not multiply {types.a} and {types.b}")
    on_tensors = _is_on_tensors(layouts, types, device, rows, is_symmetric)
    if on_tensors and _verdict(device, types, on_tensors=True).reason:
        on_tensors = False
    if not on_tensors and (reason := _verdict(device, types).reason):
        raise RejectedError(f"{device.label} does not multiply {types.c}: {reason}")
    allowed = None if on_tensors else False
    tile = None if on_tensors else _tuned(layouts, types, device)
    how = rows, is_symmetric, allowed, None, is_alone
    return bind_untried(layouts, types, device, space, *how, tile)


def _tuned(layouts: Layouts, types: Types, device: Device) -> ExactTile | None:
    """Return the tile of the nearest record that is right here; None if there is none."""
    a, _, c = layouts
    family, (m, n) = family_of(types), (c.rows, c.columns)
    if abs(c.row_stride) < abs(c.column_stride):  # it is made as C' = B' A'
        m, n = n, m
    name = shape_class(m, n, a.columns, math.prod(c.batch))
    while (choice := planner.tuned(device, family.name, name)) is not None:
        if not _verdict(device, types, choice=choice).reason:
            return family.config_of(choice)
        forget_plans()  # the next nearest record may serve
    return None


def bind_untried(
    layouts: Layouts,
    types: Types,
    device: Device,
    space: Workspace,
    rows: int = 0,
    is_symmetric: bool = False,
    on_tensors: bool | None = False,
    is_in_place: bool | None = None,
    is_alone: bool = False,
    tile: ExactTile | None = None,
) -> BoundCall:
    """Return what `bind` does, without a look at verdicts and records."""
    a, b, c = layouts
    found = None
    if on_tensors is not False and not is_in_place and types[:3] == COMPLEX:
        found = _as_real(layouts, types, device, is_symmetric)
    if found is None:
        limits = device.limits
        found = _plan(layouts, types, limits, rows, is_symmetric, on_tensors, is_in_place, tile)
    if found is None:
        raise RejectedError(f"a product of {a.shape} and {b.shape} has too long a k")
    starts = -a.extent[0], -b.extent[0], -c.extent[0]
    work = lane_work(types, math.prod(c.shape) * a.columns)
    is_long = work >= least_long_work(device)
    bind_plan = space.bind_alone if is_alone else space.bind
    by_pages = device.kind == "GPU"
    bound = bind_plan(found.plan, device), found.swapped, starts, is_long
    return BoundCall(space, *bound, by_pages=by_pages)


def _is_on_tensors(
    layouts: Layouts, types: Types, device: Device, rows: int, is_symmetric: bool
) -> bool:
    """Return whether a product is expected to be faster on tensor cores."""
    limits = device.limits
    if not limits.matrix_products:
        return False
    if types[:3] == COMPLEX:
        if rows or types.precision == "strict" or not limits.exact_tensors:
            return False
        other = _plan(layouts, types, limits, rows, is_symmetric, False)
        if other is not None and other.us <= LEAST_US:
            return False
        found = _as_real(layouts, types, device, is_symmetric)
        return found is not None and (other is None or expected_us(found.plan, limits) < other.us)
    return _uses_tensors(layouts, types, limits, rows, is_symmetric)


def _as_real(
    layouts: Layouts, types: Types, device: Device, is_symmetric: bool
) -> ExactPlan | None:
    """Return the launches of a complex product as a real one; None if that is not possible."""
    a, b, c = layouts
    if swapped := abs(c.row_stride) < abs(c.column_stride):
        a, b, c = b.transposed(), a.transposed(), c.transposed()
    real = RealProduct(a, b, c)
    fits = max(real.sizes_bytes) <= device.limits.allocation_bytes
    if c.batch or c.column_stride != 1 or not fits:
        return None
    found = readiness.planned(device, Problem(*real.layouts, types.precision))
    is_mirrored = is_symmetric and not device.limits.has_vectors
    return _joined(real, found.plan, found.swapped, swapped, device.limits, is_mirrored)


@forgettable
@functools.lru_cache(maxsize=256)
def _joined(
    real: RealProduct,
    found: Plan,
    is_swapped: bool,
    swapped: bool,
    limits: Limits,
    is_mirrored: bool,
) -> ExactPlan:
    return ExactPlan(real.plan(found, is_swapped, limits, is_mirrored), swapped)


@forgettable
@functools.lru_cache(maxsize=256)
def _uses_tensors(
    layouts: Layouts, types: Types, limits: Limits, rows: int, is_symmetric: bool
) -> bool:
    found = _plan(layouts, types, limits, rows, is_symmetric, None)
    steps = found.plan.steps if found else ()
    return any(getattr(step.config, "tensors", False) for step in steps)


@forgettable
@functools.lru_cache(maxsize=256)
def _plan(
    layouts: Layouts,
    types: Types,
    limits: Limits,
    rows: int,
    is_symmetric: bool,
    on_tensors: bool | None,
    is_in_place: bool | None = None,
    tile: ExactTile | None = None,
) -> ExactPlan | None:
    is_mirrored = is_symmetric and not limits.has_vectors
    whole = exact_plan(*layouts, types, limits, is_mirrored, on_tensors, is_in_place, tile)
    if whole is None:
        return None
    if is_mirrored:
        mirrored = mirror_plan(layouts[2], limits, int(types.c[1:])).steps
        return whole._replace(plan=replace(whole.plan, steps=(*whole.plan.steps, *mirrored)))
    if not rows:
        return whole

    def make(part: Problem) -> Plan:
        found = exact_plan(*part.layouts, types, limits, on_tensors=on_tensors, tile=tile)
        assert found is not None  # k is that of the whole product
        return found.plan

    problem = Problem(*layouts, "strict", is_symmetric=True).broadcast()
    return ExactPlan(upper_triangle(make, problem, rows), False)


def _verdict(
    device: Device, types: Types, on_tensors: bool = False, choice: Choice | None = None
) -> Verdict:
    """Return the verdict on the kernels for dtypes, or on a choice; try them, if nothing has."""
    verdict = verdicts.known(about(device, types, on_tensors, choice))
    if verdict is None:
        if readiness.is_optional():
            raise readiness.NotReadyError(
                f"{device.label} has not been tried with {' '.join(types[:3])}"
            )
        verdict = judge(device, types, on_tensors, choice)
    return verdict


def ask(device: Device, types: Types, on_tensors: bool, choice: Choice | None) -> Verdict:
    """Return the verdict of a child process on the kernels for dtypes; it stores that."""
    asked = {"types": types, "on_tensors": on_tensors}
    if choice is not None:
        asked["choice"] = choice_as_dict(choice)
    answer = readiness.answer_of_child(device, "exact", **asked)
    if answer is None:
        return Verdict()
    if answer["outcome"] not in ("right", "failed"):
        warn_once(f"{device.label} is used unchecked: {answer['reason']}")
        return Verdict()
    verdict = Verdict(answer.get("reason", ""), answer.get("details", ""))
    verdicts.store(about(device, types, on_tensors, choice), verdict, keep=False)
    return verdict


# A worker, which is such a child process, tries them itself.
judge: Callable[[Device, Types, bool, Choice | None], Verdict] = ask


def wrong(
    device: Device,
    types: Types,
    on_tensors: bool = False,
    choice: Choice | None = None,
    sizes: Sequence[Shape] = (),
) -> str:
    """Try the kernels for dtypes; return what is wrong, "" if nothing is.

    Parameters
    ----------
    choice : Choice, optional
        The only one to try, on products of `sizes`, or around the edges of its tiles.
    """
    ways, tile = (False,) if device.limits.has_vectors else (False, True), None
    if choice is not None:
        family = family_of(types)
        ways, tile = (False,), family.config_of(choice)
        sizes = sizes or family.edge_shapes(tile)
    else:
        sizes = TRIED_ON_TENSORS if on_tensors else TRIED
    for way, (m, n, k, matrices) in product(ways, sizes):
        rng, batch = np.random.default_rng(m), (matrices,) * (matrices > 1)
        shapes = ((*batch, m, k), types.a), ((*batch, k, n), types.b)
        a, b = (random(rng, shape, each, types.c[0] in "fc") for shape, each in shapes)
        rows = slice(None) if k * n * m < MOST_CHECKED else [0, m // 2, *range(m)[-40:]]
        for x, y in ((a, b), (_by_columns(a), _by_columns(b))):
            found = run(device, types, x, y, on_tensors, way, tile)
            wanted = expected(x[..., rows, :], y, np.dtype(types.c))
            if not np.array_equal(found[..., rows, :], wanted):
                where_made = ", in place" if way else ""
                return f"wrong result of {types.a} and {types.b} at {m} x {n} x {k}{where_made}"
    if on_tensors and types.c == "f2" and any(_is_coarse(device, types, way) for way in ways):
        return "sums of float16 are less exact than in float32"
    return ""


def _by_columns(x: Any) -> Any:
    """Return matrices whose columns lie one after the other."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def _is_coarse(device: Device, types: Types, way: bool) -> bool:
    """Return whether sums of float16 are worse than those of float32."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((40, HALVES_K), (HALVES_K, 50)))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    wanted, bound = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    error = np.abs(run(device, types, a, b, True, way) - wanted)
    allowed = HALVES_K * 2.0**-24 * bound + 2.0**-11 * np.abs(wanted)
    return not (error <= allowed).all()


def run(
    device: Device,
    types: Types,
    a: Any,
    b: Any,
    on_tensors: bool = False,
    is_in_place: bool = False,
    tile: ExactTile | None = None,
) -> Any:
    """Return the product of two matrices by a device, without a look at verdicts."""
    c, space = np.ones((*a.shape[:-1], b.shape[-1]), types.c), workspace(device.queue)
    layouts = layouts_of(a, b, c)
    how = 0, False, on_tensors, is_in_place, False
    bound = bind_untried(layouts, types, device, space, *how, tile)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    hosts = [x if x.flags.c_contiguous else x.swapaxes(-1, -2) for x in (a, b, c)]
    x, y, z = (
        Matrix(cl.Buffer(device.context, flags, hostbuf=host), 0, layout)
        for host, layout in zip(hosts, layouts, strict=True)
    )
    event = execute_matrices(bound, 1.0, x, y, 0.0, z)
    cl.enqueue_copy(device.queue, c, z.buffer, wait_for=[event])
    return c


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, are_small: bool) -> Any:
    """Return random elements; small ones for sums that are exact in float32."""
    if dtype == "b1":
        return rng.random(shape) < 0.1
    if dtype[0] == "c":
        real, imaginary = (rng.integers(-4, 5, shape) for _ in range(2))
        return (real + 1j * imaginary).astype(dtype)
    if are_small or dtype[0] == "f":
        return rng.integers(0 if dtype[0] == "u" else -4, 5, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def expected(a: Any, b: Any, dtype: np.dtype[Any]) -> Any:
    """Return A B exactly, by NumPy's loops in wider types."""
    if dtype.kind == "b":
        return a.astype(np.int64) @ b.astype(np.int64) > 0
    if dtype.kind in "fc":
        wider = {"f2": np.float32, "f8": np.float64}.get(dtype.str[1:], np.complex128)
        return (a.astype(wider) @ b.astype(wider)).astype(dtype)
    with np.errstate(over="ignore"):
        return (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype)
