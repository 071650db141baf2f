"""Measure how long the plans of random products take, and fit the constants of expected times.

    python docs/family_costs.py measure [--products N] [--seed S] [--minutes M] ... --out FILE
    python docs/family_costs.py fit FILE [FILE ...] [--constants NAME ...] [--percents] ...

`measure` draws random products, as ``bench --survey`` does, and times the plans that each kernel
family has for them on the device at hand: every config, with and without packing, and with several
numbers of slices. The peer is PyTorch's product by cuBLAS, where PyTorch has a GPU.

`fit` finds the values of `clgemm.core.costs.Costs`, or for CPUs of
`clgemm.core.costs.CpuCosts`, with the least squares of the logarithms of expected over measured
times, and prints them. It also prints by how much the plans with the least expected times are
slower than those that were measured as the fastest: in the same data, or in those of ``--check``.
It needs no device.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gzip
import itertools
import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from clgemm.bench.cases import Bounds, Case, random_cases, stored_shape, viewed
from clgemm.core.costs import H200, POCL, Costs, CpuCosts
from clgemm.core.plan import Plan
from clgemm.core.problem import Layout, Problem
from clgemm.core.traits import Limits, Traits, Unit
from clgemm.kernels import FAMILIES
from clgemm.kernels.common.family import Choice, Family
from clgemm.kernels.tiled import plan as tiled_plan
from clgemm.kernels.tiled.plan import TiledConfig, in_place_us, is_fused, launch_us, tiled_estimate
from clgemm.planning.bounded import bounded
from clgemm.planning.planner import oriented
from clgemm.trials.calibration import Contender, bursts_us, expected_times, plan_us

SLICES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48)
COMPARED_WITH_SLICES = 3  # configs for which numbers of slices are measured
MOST_GROUPS = 16  # work-groups per compute unit, where k is cut
FAR = 2.2  # configs with longer times than this, over the best, are left out
SIGMA = 4.0  # of the logarithms of wide data
CLOSENESS = 2.0  # the power of a plan's weight
OUTLIER = 0.15  # of logarithms, from which on a residual counts less
PERCENTS = 0.03  # how much less certain than all times the percents of configs are
CLOSE, MOVING, MOVES = 0.015, 0.01, (-0.02, 0.02, -0.01, 0.01)  # logarithms, see `of_choice`


class Alternative(NamedTuple):
    """A plan of a product, with a name that tells it from the others."""

    label: str
    make: Callable[[], Plan]
    is_turned: bool = False  # a plan of the transposed product, C' = B' A'


def problem_of(case: Case, precision: str) -> Problem:
    """Return the problem of a case, with the strides that its views have."""
    layouts = [Layout(shape, strides, alignment) for shape, strides, _, alignment, _ in views(case)]
    return Problem(*layouts, precision).broadcast().folded()


def views(case: Case) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, int, int]]:
    """Yield shape, strides, first element, alignment and stored elements of A, B and C."""
    sides = (
        (case.m, case.k, case.layout_a, True),
        (case.k, case.n, case.layout_b, not case.shared_b),
        (case.m, case.n, "N", True),
    )
    for rows, columns, layout, has_batch in sides:
        batch = (case.batch,) * (case.batch > 1 and has_batch)
        shape = (*batch, *stored_shape(rows, columns, layout))
        strides = tuple(4 * math.prod(shape[i + 1 :]) for i in range(len(shape)))
        whole = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), shape, strides)
        view = viewed(whole, layout)
        first = (view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]) // 4
        alignment = min(256, (4 * first) & -(4 * first)) if first else 256
        inner = tuple(stride // 4 for stride in view.strides)
        yield view.shape, inner, first, alignment, math.prod(shape)


def alternatives(case: Case, traits: Traits, families: Sequence[str] = ()) -> Iterator[Alternative]:
    """Yield the plans of a product that are worth measuring; of some families alone, if named."""
    for precision in ("strict", "float32"):
        problem = problem_of(case, precision)
        for family in FAMILIES:
            if families and family.name not in families:
                continue
            if not family.runs_on(traits) or bool(family.instructions) != (precision != "strict"):
                continue
            if family.name == "tiled":
                yield from tiled_alternatives(family, problem, traits)
                continue
            for number, choice in enumerate(family.candidates(problem, traits)):
                part, is_turned = oriented(problem, family, choice, traits)
                make = functools.partial(plan_of, family, part, choice, traits)
                yield Alternative(f"{family.name} {number}", make, is_turned)


def plan_of(family: Family[Any, Any], problem: Problem, choice: Choice, traits: Traits) -> Plan:
    """Return the plan of a family. A fallback is made by the tiled family's first choice."""
    strict = problem._replace(precision="strict")

    def fallback(part: Problem) -> Plan:
        tiled = next(each for each in FAMILIES if each.name == "tiled")
        default = tiled.defaults(strict.shape, traits)[0]
        return bounded(tiled.fallback(strict, default, traits), part, traits.limits)

    return bounded(lambda part: family.plan(part, choice, traits, fallback), problem, traits.limits)


def tiled_alternatives(
    family: Family[Any, Any], problem: Problem, traits: Traits
) -> Iterator[Alternative]:
    """Yield plans of each config: in place, packed, and with other numbers of slices."""
    limits, shape = traits.limits, problem.shape
    problems = problem, problem.transposed()
    expected = {
        (choice, turned): in_place_us(*problems[turned].layouts, choice.config, limits)
        for choice in family.defaults(shape, traits)
        for turned in (False, True)
        if not (turned and choice.config.is_square)
    }
    most = FAR * min(expected.values()) + limits.costs.start_us
    near = [
        found for found in sorted(expected, key=expected.__getitem__) if expected[found] <= most
    ]
    for number, (choice, turned) in enumerate(near):
        config, part = choice.config, problems[turned]
        name = "turned " * turned + name_of(config)
        for mode, most_reads in (("place", math.inf), ("pack", 0.0)):
            make = functools.partial(tiled_plan_of, part, choice, limits, most_reads, None)
            yield Alternative(f"{name} {mode}", make, turned)
        if number >= COMPARED_WITH_SLICES:
            continue
        tiles = -(-part.shape.m // config.tile_m) * -(-part.shape.n // config.tile_n)
        tiles *= shape.matrices
        own = tiled_estimate(config.tiles, *part.shape, limits).slices
        for slices in SLICES:
            fits = tiles * slices <= MOST_GROUPS * limits.compute_units or slices == 1
            if fits and slices != own and shape.k >= 64 * slices:
                make = functools.partial(tiled_plan_of, part, choice, limits, math.inf, slices)
                yield Alternative(f"{name} place {slices} slices", make, turned)


def name_of(config: TiledConfig) -> str:
    """Return a name that tells a default config of tiles from the others."""
    return (
        f"tiled {config.tile_m}x{config.tile_n}x{config.tile_k}"
        f"/{config.work_m}x{config.work_n}/{config.parts}/{config.buffers}"
        + f"/g{config.grid_n}/r{config.registers}" * (config.registers > 0)
        + "/asynchronous" * config.asynchronous
    )


def tiled_plan_of(
    problem: Problem, choice: Choice, limits: Limits, most_reads: float, slices: int | None
) -> Plan:
    """Return a plan of the tiled family, with a number of slices if one is given."""

    def forced(tiles: Any, m: int, n: int, k: int, matrices: int, _: Limits) -> Any:
        assert slices is not None
        found = tiled_estimate(tiles, m, n, k, matrices, limits)
        fused = is_fused(tiles, slices, limits)
        time_us = launch_us(tiles, m, n, k, matrices, slices, fused, limits)
        return found._replace(slices=slices, time=time_us, fused_split_k=fused)

    patch = mock.patch.object(tiled_plan, "tiled_estimate", forced)
    with patch if slices is not None else contextlib.nullcontext():
        return bounded(
            lambda part: tiled_plan.make_tiled_plan(
                *part.layouts, choice.config, choice.pack or (), limits, most_reads
            ),
            *(problem, limits),
        )


def distinct(
    case: Case, traits: Traits, families: Sequence[str] = ()
) -> Iterator[tuple[list[str], Plan, bool]]:
    """Yield the plans of a case that differ, each with all its names, and whether it is turned."""
    found: dict[Any, tuple[list[str], Plan, bool]] = {}
    for label, make, is_turned in alternatives(case, traits, families):
        plan = make()
        key = tuple((s.config, s.groups, s.conditional, str(s.arguments)) for s in plan.steps)
        found.setdefault(key, ([], plan, is_turned))[0].append(label)
    yield from found.values()


# Measuring


def traits_here() -> Traits:
    """Return the traits of the chosen device."""
    import clgemm

    return clgemm.get_device().traits


def programs_of(cases: Sequence[Case], calls: bool, families: Sequence[str]) -> set[Any]:
    """Return the programs that the plans of some cases need, and whole calls."""
    traits = traits_here()
    plans = itertools.chain.from_iterable(map(chosen, cases))
    if not calls:
        found = (plan for case in cases for _, plan, _ in distinct(case, traits, families))
        plans = itertools.chain(plans, found)
    return {(step.config, step.conditional) for plan in plans for step in plan.steps}


def chosen(case: Case) -> Iterator[Plan]:
    """Yield the plans that calls have in both modes."""
    import clgemm
    from clgemm.planning.planner import plan_of

    for precision in ("strict", "float32"):
        yield plan_of(clgemm.get_device(), problem_of(case, precision))[0]


def build(programs: Sequence[Any]) -> int:
    """Build some programs, so that the cache folder has them."""
    import clgemm
    from clgemm.runtime.programs import kernel

    for config, conditional in programs:
        kernel(clgemm.get_device(), config, conditional)
    return len(programs)


def build_all(cases: Sequence[Case], calls: bool, families: Sequence[str]) -> int:
    """Build all programs by several processes; return their number."""
    count = max(1, min(16, multiprocessing.cpu_count() - 1))
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        found = functools.partial(programs_of, calls=calls, families=families)
        parts = pool.map(found, [cases[i::count] for i in range(count)])
        programs = list(set().union(*parts))
        return sum(pool.map(build, [programs[i::count] for i in range(count)]))


class Bench:
    """Flat arrays on the device, large enough for all cases, and what multiplies views of them."""

    def __init__(self, cases: Sequence[Case]) -> None:
        import pyopencl.array as cl_array

        import clgemm

        self.device = clgemm.get_device()
        self.queue = self.device.queue
        sizes = [
            max(sizes) for sizes in zip(*([v[4] for v in views(c)] for c in cases), strict=True)
        ]
        rng = np.random.default_rng(0)
        random = rng.standard_normal(1 << 20, np.float32)
        wide = random * np.exp(SIGMA * rng.standard_normal(1 << 20, np.float32))
        self.flat = [cl_array.to_device(self.queue, np.resize(random, size)) for size in sizes]
        self.wide = [
            *(cl_array.to_device(self.queue, np.resize(wide, size)) for size in sizes[:2]),
            self.flat[2],
        ]
        self.torch: Any = None
        with contextlib.suppress(ImportError):
            import torch

            if torch.cuda.is_available():
                torch.backends.cuda.matmul.allow_tf32 = False
                self.torch = torch
                self.tensors = [torch.empty(size, device="cuda").normal_() for size in sizes]

    def plan_us(self, case: Case, plan: Plan, is_turned: bool) -> float:
        """Return the time of a plan."""
        from clgemm.runtime.operands import Matrix

        matrices = {
            side: Matrix(flat.base_data, first, Layout(shape, strides))
            for side, flat, (shape, strides, first, _, _) in zip(
                "abc", self.flat, views(case), strict=True
            )
        }
        return plan_us(self.device, plan, matrices, is_turned)

    def calls_us(self, case: Case) -> dict[str, float]:
        """Return the times of whole calls of clgemm in its modes, and of the peer, in turns."""
        import pyopencl.array as cl_array

        import clgemm

        found: dict[str, Contender] = {}
        modes = ("strict", "strict", self.flat), ("float32", "float32", self.flat)
        for name, mode, flats in (*modes, ("float32, wide data", "float32", self.wide)):
            a, b, c = (
                cl_array.Array(
                    self.queue,
                    shape,
                    np.float32,
                    data=flat.base_data,
                    strides=tuple(4 * stride for stride in strides),
                    offset=4 * first,
                )
                for flat, (shape, strides, first, _, _) in zip(flats, views(case), strict=True)
            )
            call = functools.partial(clgemm.matmul, a, b, out=c)
            context = functools.partial(clgemm.precision, mode)
            found[name] = Contender(call, self.queue.finish, context)
        if self.torch is not None:
            x, y, z = (
                tensor.as_strided(shape, strides, first)
                for tensor, (shape, strides, first, _, _) in zip(
                    self.tensors, views(case), strict=True
                )
            )
            matmul = functools.partial(self.torch.matmul, x, y, out=z)
            found["cuBLAS"] = Contender(matmul, self.torch.cuda.synchronize)
        return dict(zip(found, bursts_us(list(found.values())), strict=True))


def measure(arguments: argparse.Namespace) -> int:
    """Measure random products and write their times."""
    end = time.monotonic() + 60 * arguments.minutes
    bounds = Bounds(work=(round(arguments.least), round(arguments.most)))
    drawn = random_cases(arguments.products, arguments.seed, bounds)
    cases = [case for case in drawn if case.k <= arguments.deepest]
    random.Random(arguments.seed).shuffle(cases)  # so that too little time favours none
    traits, families = traits_here(), arguments.families
    print(f"built {build_all(cases, arguments.calls, families)} programs", flush=True)
    bench, rows = Bench(cases), []
    for case in cases:
        if time.monotonic() > end:
            break
        times: dict[str, float] = {}
        groups: dict[str, list[int]] = {}
        for labels, plan, is_turned in () if arguments.calls else distinct(case, traits, families):
            taken = round(bench.plan_us(case, plan, is_turned), 2)
            times |= dict.fromkeys(labels, taken)
            groups |= dict.fromkeys(labels, groups_of(plan))
        calls = {name: round(taken, 2) for name, taken in bench.calls_us(case).items()}
        row = {"case": case.as_dict(), "plans_us": times, "groups": groups, "calls_us": calls}
        rows.append(row)
    limits = dataclasses.asdict(traits.limits)
    del limits["costs"], limits["cpu_costs"]
    others = {k: v for k, v in dataclasses.asdict(traits).items() if k != "limits"}
    report = {
        "device": bench.device.name,
        "driver": bench.device.cl_device.driver_version,
        "limits": limits,
        "traits": others,
        "seed": arguments.seed,
        "rows": rows,
    }
    write(arguments.out, report)
    print(f"{len(rows)} of {len(cases)} products, {arguments.out}")
    summarise(rows)
    return 0


def groups_of(plan: Plan) -> list[int]:
    """Return the work-groups of each launch, which tell plans of the same name apart."""
    return [step.groups for step in plan.steps]


def summarise(rows: Sequence[dict[str, Any]]) -> None:
    """Print the peer's time over ours, by the work."""
    bounds = (1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e15)
    for mode in ("strict", "float32", "float32, wide data"):
        for low, high in (*itertools.pairwise(bounds), (bounds[0], bounds[-1])):
            ratios = sorted(
                row["calls_us"]["cuBLAS"] / row["calls_us"][mode]
                for row in rows
                if "cuBLAS" in row["calls_us"] and low <= Case.from_dict(row["case"]).work < high
            )
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                fifth = ratios[len(ratios) // 20]
                print(
                    f"{mode:18} {low:.0e} {len(ratios):4} mean {mean:.3f} 5 % {fifth:.3f} "
                    f"least {ratios[0]:.3f}"
                )


# Fitting


def read(path: Path) -> dict[str, Any]:
    """Return what `measure` wrote."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return dict(json.load(file))


def write(path: Path, report: dict[str, Any]) -> None:
    """Write a report, compressed if the path ends so."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        json.dump(report, file, separators=(",", ":"))


class Timed(NamedTuple):
    """A plan that was measured."""

    product: int
    label: str
    plan: Plan
    taken_us: float


class Data(NamedTuple):
    """The plans of a report, and of its device the limits and its memory's share of an H200's."""

    limits: Limits
    memory_share: float
    timed: list[Timed]

    def expected(self, costs: Costs | CpuCosts) -> np.ndarray:
        """Return the expected times of the plans, by the constants of a device like an H200."""
        if isinstance(costs, Costs):
            bandwidth = costs.memory_bytes * self.memory_share
            costs = dataclasses.replace(costs, memory_bytes=bandwidth)
        return expected_times([each.plan for each in self.timed], self.limits, costs)


def data_of(report: dict[str, Any]) -> Data:
    """Return the plans of a report that are still made as then.

    A plan whose name has no number of slices may be cut otherwise today.
    """
    traits = traits_of(report)
    found = []
    for number, row in enumerate(report["rows"]):
        case, times = Case.from_dict(row["case"]), row["plans_us"]
        for label, make, _ in alternatives(case, traits):
            if label in times and groups_of(plan := make()) == row["groups"].get(label):
                found.append(Timed(number, label, plan, times[label]))
    return Data(traits.limits, report.get("memory_share", 1.0), found)


def traits_of(report: dict[str, Any]) -> Traits:
    """Return the traits of a report's device; older files have those of a GPU."""
    limits = Limits(**_known(Limits, report["limits"]))
    limits = dataclasses.replace(limits, unit=Unit(*limits.unit))
    if "traits" in report:
        return Traits(limits, **_known(Traits, report["traits"]))
    capability = tuple(report["capability"])
    return Traits(limits, "GPU", is_nvidia=capability > (0, 0), capability=capability)


def _known(kind: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of those fields that a class has today, as they can be hashed."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if name in names
    }


def tiles_of(plan: Plan) -> str:
    """Return the config that multiplies and its percent, if its family is "tiled"."""
    configs = (step.config for step in plan.steps)
    tiles = (config for config in configs if isinstance(config, TiledConfig))
    return next((f"{name_of(each)}, now {each.percent} %" for each in tiles), "")


def regret(timed: Sequence[Timed], times: np.ndarray) -> list[float]:
    """Return for each product the time of the plan expected to be fastest over the fastest."""
    by_product: dict[int, list[tuple[float, float]]] = {}
    for each, time_us in zip(timed, times, strict=True):
        by_product.setdefault(each.product, []).append((float(time_us), each.taken_us))
    return sorted(min(plans)[1] / min(taken for _, taken in plans) for plans in by_product.values())


def closeness(timed: Sequence[Timed]) -> np.ndarray:
    """Return for each plan the time of its product's fastest plan over its own, to a power.

    That is its weight in a fit: where a plan is far from the fastest, its exact time is not needed.
    """
    fastest: dict[int, float] = {}
    for each in timed:
        fastest[each.product] = min(each.taken_us, fastest.get(each.product, math.inf))
    return np.array([(fastest[each.product] / each.taken_us) ** CLOSENESS for each in timed])


def of_choice(
    expected: np.ndarray,
    taken: np.ndarray,
    products: Sequence[tuple[int, int]],
    belongs: np.ndarray,
    percents: np.ndarray,
) -> np.ndarray:
    """Return percents of configs by which the plans expected to be fastest take the least time.

    All are logarithms. The percents are moved a little at a time. Times as close as `CLOSE` count
    as equal, and large moves count against the choice.
    """
    plans: dict[tuple[int, int], list[int]] = {}
    for index, product in enumerate(products):
        plans.setdefault(product, []).append(index)

    def cost(moved: np.ndarray) -> float:
        times, lost = expected + belongs @ moved, 0.0
        for each in plans.values():
            weights = np.exp((times[each].min() - times[each]) / CLOSE)
            lost += float(weights @ (taken[each] - taken[each].min()) / weights.sum())
        return lost / len(plans) + MOVING * float(np.sum((moved - percents) ** 2))

    best, least, before = percents, cost(percents), math.inf
    while least < before:
        before = least
        for index, move in itertools.product(range(len(percents)), MOVES):
            moved = best.copy()
            moved[index] += move
            if (found := cost(moved)) < least:
                best, least = moved, found
    return best


def fit(arguments: argparse.Namespace) -> int:
    """Fit the constants and print them."""
    from scipy.optimize import least_squares

    data = [data_of(read(path)) for path in arguments.files]
    known: Any = POCL if data[0].limits.has_vectors else H200
    names = arguments.constants or [field.name for field in dataclasses.fields(known)]
    start = np.log([getattr(known, name) for name in names])
    taken = np.log(np.concatenate([[each.taken_us for each in part.timed] for part in data]))
    weights = np.concatenate([closeness(part.timed) for part in data])
    tiles = [tiles_of(each.plan) for part in data for each in part.timed]
    kinds = sorted({*tiles} - {""}) if arguments.percents else []
    belongs = np.array([[kind == each for kind in kinds] for each in tiles], float)
    start = np.concatenate([start, np.zeros(len(kinds))])

    def residuals(logarithms: np.ndarray) -> np.ndarray:
        constants, percents = logarithms[: len(names)], logarithms[len(names) :]
        found = dict(zip(names, map(float, np.exp(constants)), strict=True))
        costs = dataclasses.replace(known, **found)
        times = np.log(np.concatenate([part.expected(costs) for part in data]))
        certain = PERCENTS * math.sqrt(len(taken)) * percents
        return np.concatenate([weights * (times + belongs @ percents - taken), certain])

    found = least_squares(
        residuals, start, loss="soft_l1", f_scale=OUTLIER, max_nfev=arguments.steps, verbose=0
    )
    values = zip(names, np.exp(found.x[: len(names)]), strict=True)
    costs = dataclasses.replace(known, **{name: float(f"{value:.3g}") for name, value in values})
    for name in names:
        print(f"    {name}: float = {getattr(costs, name)}")
    percents = found.x[len(names) :]
    if arguments.choice:
        times = np.concatenate([part.expected(costs) for part in data])
        products = [(part, each.product) for part in range(len(data)) for each in data[part].timed]
        percents = of_choice(np.log(times), taken, products, belongs, percents)
    for kind, factor in zip(kinds, np.exp(percents), strict=True):
        print(f"    times {factor:.3f}: {kind}")
    print(f"root mean square of {len(taken)} logarithms: {np.sqrt(np.mean(found.fun**2)):.3f}")
    for path in (*arguments.files, *arguments.check):
        part = data_of(read(path))
        for label, used in (("before", known), ("fitted", costs)):
            ratios = regret(part.timed, part.expected(used))
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(
                f"{path.name}, {label}: {len(ratios)} products, slower than the fastest plan by "
                f"{mean:.3f} (mean), {ratios[int(0.95 * len(ratios))]:.2f} (95 %), "
                f"{ratios[-1]:.2f} (worst)"
            )
    return 0


def main() -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.set_defaults(run=measure)
    measuring.add_argument("--products", type=int, default=300)
    measuring.add_argument("--seed", type=int, default=0)
    measuring.add_argument("--least", type=float, default=1e5, help="multiply-adds")
    measuring.add_argument("--most", type=float, default=Bounds().work[1], help="multiply-adds")
    measuring.add_argument("--deepest", type=float, default=math.inf, help="the most of k")
    measuring.add_argument(
        "--families", nargs="*", default=[], metavar="NAME", help="the plans of these alone"
    )
    measuring.add_argument("--minutes", type=float, default=5.0)
    measuring.add_argument("--calls", action="store_true", help="time whole calls only")
    measuring.add_argument("--out", type=Path, required=True)
    fitting = commands.add_parser("fit")
    fitting.set_defaults(run=fit)
    fitting.add_argument("files", type=Path, nargs="+")
    fitting.add_argument("--check", type=Path, nargs="*", default=[])
    fitting.add_argument("--constants", nargs="*", metavar="NAME", help="the others stay")
    fitting.add_argument(
        "--percents", action="store_true", help="also of the configs of tiles, as factors"
    )
    fitting.add_argument(
        "--choice", action="store_true", help="then move the percents to where the choice is best"
    )
    fitting.add_argument("--steps", type=int, default=200, help="the most steps of the fit")
    arguments = parser.parse_args()
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
