"""The planner: it chooses a kernel family and a config for a problem, and makes the plan."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from clgemm.core.cache import forgettable
from clgemm.core.plan import Plan, expected_us, least_us, round_up
from clgemm.core.problem import FLOAT_BYTES, SHAPE_CLASSES, Layout, Problem, Shape, shape_class
from clgemm.core.traits import Traits
from clgemm.hardware.device import Device, identify, where
from clgemm.kernels import FAMILIES, family_named
from clgemm.kernels.common.family import Choice, Fallback, Family
from clgemm.kernels.mirror.plan import mirror_plan
from clgemm.planning.bounded import SCRATCH_ALIGNMENT, bounded, by_way_of_scratch, upper_triangle
from clgemm.records.tuned import Record, Served, candidates
from clgemm.records.verdicts import (
    about_device,
    about_family,
    about_instructions,
    has_rejected,
    is_rejected,
    known,
)

# How many times faster than its expected time a record's config may be: the model is not more
# accurate than that.
LEAST_ADVANTAGE = 1.1
# The share of products, as the choice sees it, whose data need the fallback of tensor cores. At 0,
# one percent for most data would outweigh half the speed for the others.
NEEDS_FALLBACK = 0.15
# A plan that takes no longer than this many times an empty launch is taken at once.
NEGLIGIBLE = 1.02
# A family so many of whose choices have failed is left with the plainest, if that works.
MOST_FAILED = 4
# Products of a matrix by its own transpose: see `triangle_rows`.
PACKED_ROWS, TRIANGLE_GRAIN, TRIANGLE_DEPTH = 32, 256, 256


class Planned(NamedTuple):
    """The plan of a product, and what was decided for it.

    Attributes
    ----------
    swapped : bool
        Whether the plan takes A for B and B for A.
    problem : Problem
        The product as the family has planned it.
    scope : str
        What a trial of the choice covers: see `Family.scope`.
    is_last : bool
        Whether the device does not work if these kernels fail: the family's plainest, if others
        have failed, or others, if the plainest have.
    """

    plan: Plan
    swapped: bool
    problem: Problem
    family: Family[Any, Any]
    choice: Choice
    scope: str
    is_last: bool = False

    def about(self, where: str) -> str:
        """Return the key of the verdict on its kernels, on a device by its name for verdicts."""
        return about_family(where, self.family.name, self.scope)

    def doomed(self, where: str) -> tuple[str, ...]:
        """Return the keys of all that is not used any more if its kernels fail."""
        keys = [self.about(where)]
        if self.family.instructions:
            keys.append(about_instructions(where, self.family.instructions))
        if self.is_last:
            keys.append(about_device(where))
        return tuple(keys)


@forgettable
@functools.lru_cache(maxsize=1024)
def tuned(device: Device, family: str, name: str, default: Choice | None = None) -> Choice | None:
    """Return the choice of the nearest record that no trial has rejected, or None.

    The choice of a record from another device is tried before its first use.
    """
    for record, *_ in candidates(identify(device), device.limits, family, name):
        if record.choice == default or not is_rejected(_about(device, record)):
            return record.choice
    return None


@forgettable
@functools.lru_cache(maxsize=1024)
def plan_of(device: Device, problem: Problem) -> Planned:
    """Return the plan of a product.

    It takes for granted what has not been tried yet: `clgemm.runtime.readiness` has that tried. A
    problem without a precision is a scaling of C.
    """
    problem, traits, c = problem.broadcast(), device.traits, problem.c
    # Kernels store along rows. Column-major C = A B is row-major C' = B' A': swap the operands,
    # transpose nothing.
    swapped = c.column_stride != 1 and c.row_stride == 1
    if swapped:
        problem = problem.transposed()
    problem = problem.scaling() if problem.precision is None else problem.folded()
    if problem.triangles == "lower" and not traits.has_vectors:  # C' has the same elements
        problem, swapped = problem.transposed(), not swapped
    rows = triangle_rows(problem, traits)
    updated = problem.c if problem.triangles and rows else None
    if updated is not None:
        n = problem.n
        problem = problem._replace(c=Layout((n, n), (n, 1), SCRATCH_ALIGNMENT))
    # On lanes, kernels leave out what is mirrored, or what is no part of the triangle.
    steps_of_c = abs(problem.c.row_stride), abs(problem.c.column_stride)
    is_upper = problem.is_symmetric and steps_of_c[0] >= steps_of_c[1]
    is_upper |= updated is not None and rows == problem.n
    if is_upper and problem.m == problem.n and not traits.has_vectors:
        problem = problem._replace(is_half=True)
    if problem.precision is None:
        family = family_for(device, problem)
        choice = defaults_of(device, family, problem.shape)[0]
    else:
        family, choice = choose(device, problem)
    problem, turned = oriented(problem, family, choice, traits, may_turn=not rows)
    swapped ^= turned

    def make(part: Problem) -> Plan:
        return make_plan(device, part, family, choice)

    if updated is not None:
        plan = by_way_of_scratch(make, problem._replace(c=updated), rows, traits.limits)
    else:
        plan = upper_triangle(make, problem, rows) if rows else make(problem)
    # On lanes, kernels may take A otherwise than B, as those of tensor cores do.
    if problem.is_symmetric and (rows or not traits.has_vectors):
        # C may have been joined into one taller matrix.
        whole = problem.c if rows or problem.is_half else c
        steps = (*plan.steps, *mirror_plan(whole, traits.limits).steps)
        plan = replace(plan, steps=steps)
    scope = family.scope(problem, choice, traits)
    is_last = _is_last(device, family, choice, problem.shape)
    return Planned(plan, swapped, problem, family, choice, scope, is_last)


def _is_last(device: Device, family: Family[Any, Any], choice: Choice, shape: Shape) -> bool:
    """Return whether nothing replaces a choice if its kernels fail: see `Planned`."""
    plain = family.plainest(device.traits)
    if family.instructions:  # kernels without them do
        return False
    if choice == plain:
        return defaults_of(device, family, shape) == (plain,)
    # If it is no default, the defaults replace it.
    has_failed = bool(_failed(device, family, (plain,)))
    return has_failed and choice in family.defaults(shape, device.traits)


def plainest_of(device: Device, found: Planned) -> Planned | None:
    """Return a product by the plainest choice, which is tried next where a default has failed.

    So a device that fails in every way is soon known. None if no default has failed.
    """
    family, traits = found.family, device.traits
    plain, defaults = family.plainest(traits), family.defaults(found.problem.shape, traits)
    if found.choice == plain or not _failed(device, family, defaults):
        return None
    plan, scope = make_plan(device, found.problem, family, plain), repr(plain)
    return found._replace(plan=plan, choice=plain, scope=scope, is_last=True)


def _failed(device: Device, family: Family[Any, Any], choices: tuple[Choice, ...]) -> set[Choice]:
    """Return those of a family's choices that a trial has rejected, as this process knows."""
    name = family.name
    if family.instructions or not has_rejected(name):
        return set()
    here = where(device)
    return {x for x in choices if is_rejected(about_family(here, name, repr(x)))}


def left(
    device: Device, family: Family[Any, Any], choices: tuple[Choice, ...]
) -> tuple[Choice, ...]:
    """Return those of a family's choices that no trial has rejected; the plainest if none is."""
    plain = family.plainest(device.traits)
    failed = _failed(device, family, (*choices, plain))
    if not (failed and choices):
        return choices
    kept = tuple(x for x in choices if x not in failed)
    does_work = len(failed) < (2 if plain in failed else MOST_FAILED)
    return kept if kept and does_work else (plain,)


def defaults_of(device: Device, family: Family[Any, Any], shape: Shape) -> tuple[Choice, ...]:
    """Return a family's defaults for a shape, without those that have failed on the device."""
    return left(device, family, family.defaults(shape, device.traits))


def triangle_rows(problem: Problem, traits: Traits) -> int:
    """Return the rows of blocks in which a triangle of C is computed; 0 for all of C.

    On a CPU, a block takes half of its rows' square for nothing, and packing B about as long as
    `PACKED_ROWS` more rows. On lanes, kernels leave out what is below the diagonal, so that only
    triangles that are updated have blocks: one, if its memory can be allocated.
    """
    is_one = problem.triangles in ("upper", "lower")
    n, c, on_lanes = problem.n, problem.c, not traits.has_vectors
    is_wanted = (problem.is_symmetric and not on_lanes) or (problem.triangles and not c.batch)
    if not is_wanted or problem.m != n:
        return 0
    rows = round_up(math.isqrt(PACKED_ROWS * n), TRIANGLE_GRAIN)
    if on_lanes:
        rows = traits.limits.allocation_bytes // (FLOAT_BYTES * n) // TRIANGLE_GRAIN
        rows = max(1, rows) * TRIANGLE_GRAIN
    if is_one:
        return min(n, rows)
    if problem.triangles:  # all of C is read and written besides
        pays = problem.k >= 2 * TRIANGLE_DEPTH
    else:
        pays = problem.k >= TRIANGLE_DEPTH and abs(c.row_stride) >= abs(c.column_stride)
    if on_lanes:
        return n if pays and n <= rows else 0
    return rows if pays and n >= 3 * rows else 0


def oriented(
    problem: Problem,
    family: Family[Any, Any],
    choice: Choice,
    traits: Traits,
    may_turn: bool = True,
) -> tuple[Problem, bool]:
    """Return a product as a family plans it, and whether that is the transpose, if it is faster."""
    if not family.instructions:  # OpenCL C alone: IEEE multiply-adds in every precision
        problem = problem._replace(precision="strict")
    may_turn &= not problem.is_half
    turned = may_turn and family.is_faster_transposed(problem, choice, traits)
    return problem.transposed() if turned else problem, turned


@forgettable
@functools.lru_cache(maxsize=1024)
def make_plan(device: Device, problem: Problem, family: Family[Any, Any], choice: Choice) -> Plan:
    """Return the plan of a product with row-major C, by a family and its choice of config."""
    fallback = fallback_of(device, problem)
    return bounded(
        lambda part: family.plan(part, choice, device.traits, fallback), problem, device.limits
    )


def fallback_of(device: Device, problem: Problem) -> Fallback:
    """Return a function that plans parts of a product for families that use only OpenCL C.

    All parts use the same family and choice.
    """
    chosen: list[Fallback] = []
    made: dict[Problem, Plan] = {}  # most blocks of a product have the same problem

    def plan(part: Problem) -> Plan:
        if not chosen:
            plain = problem._replace(precision="strict")
            family, choice = choose(device, plain)
            chosen.append(family.fallback(plain, choice, device.traits))
        if part not in made:
            made[part] = bounded(chosen[0], part, device.limits)
        return made[part]

    return plan


@forgettable
@functools.lru_cache(maxsize=1024)
def choose(device: Device, problem: Problem) -> tuple[Family[Any, Any], Choice]:
    """Return the family for a product, and its choice of config: those expected to be fastest."""
    traits = device.traits
    expected: dict[tuple[Family[Any, Any], Choice], float] = {}
    if traits.has_cost_model:
        for family in families(device):
            for choice, advantage in candidates_of(device, family, problem):
                turned, _ = oriented(problem, family, choice, traits)
                plan = make_plan(device, turned, family, choice)
                taken = expected_us(plan, traits.limits, NEEDS_FALLBACK) / advantage
                expected[family, choice] = taken
                if taken <= NEGLIGIBLE * least_us(traits.limits):
                    return family, choice
    if expected:
        return min(expected, key=lambda found: expected[found])
    family = family_for(device, problem)
    return family, choice_of(device, family, problem.shape)


def candidates_of(
    device: Device, family: Family[Any, Any], problem: Problem
) -> Iterator[tuple[Choice, float]]:
    """Yield a family's choices for a product, each with its advantage over its expected time.

    The tuner has measured that a record's choice is the fastest, on shapes of the same class. On
    CPUs, where expected times compare families but not configs, a family has one choice.
    """
    traits, shape = device.traits, problem.shape
    own = left(device, family, family.candidates(problem, traits))
    if own and traits.has_vectors:
        yield choice_of(device, family, shape), 1.0
    elif own:
        found = tuned(device, family.name, shape_class(*shape), own[0])
        if found is not None:
            yield found, max(LEAST_ADVANTAGE, family.slack(shape, traits))
        yield from ((choice, 1.0) for choice in own if choice != found)


def family_for(device: Device, problem: Problem) -> Family[Any, Any]:
    """Return the first family that runs on a device and suits a product."""
    traits = device.traits
    return next(
        family
        for family in FAMILIES
        if family.runs_on(traits) and family.suits(problem, traits) and _works(device, family)
    )


@forgettable
@functools.lru_cache(maxsize=1024)
def choice_of(device: Device, family: Family[Any, Any], shape: Shape) -> Choice:
    """Return a family's choice for a shape: a record's if one serves it, or the default."""
    default: Choice = defaults_of(device, family, shape)[0]
    found = tuned(device, family.name, shape_class(*shape), default)
    if found is None or not family.serves(found, default, shape, device.traits):
        return default
    return found


def families(device: Device) -> tuple[Family[Any, Any], ...]:
    """Return the families that a device can run, in the order of the registry."""
    return tuple(
        family for family in FAMILIES if family.runs_on(device.traits) and _works(device, family)
    )


def _works(device: Device, family: Family[Any, Any]) -> bool:
    """Tell whether a family needs no instructions, or the fastest that the device has."""
    return not family.instructions or family.instructions == instructions_of(device)


def _about(device: Device, record: Record) -> str:
    """Return the key of the verdict on a record's choice."""
    return about_family(where(device), record.family, repr(record.choice))


def serving(device: Device, families: Iterable[Family[Any, Any]]) -> dict[str, dict[str, str]]:
    """Return the origin of a device's configs, by shape class and kernel family."""
    who = identify(device)
    found: dict[str, dict[str, str]] = {}
    for name in SHAPE_CLASSES:
        for family in families:
            if name in family.samples(device.kind):
                best = next(candidates(who, device.limits, family.name, name), None)
                found.setdefault(name, {})[family.name] = _origin(device, best)
    return found


def _origin(device: Device, served: Served | None) -> str:
    if served is None:
        return "default"
    record = served.record
    family = family_named(record.family)
    defaults = (family.defaults(shape, device.traits)[0] for shape in record.shapes)
    is_default = all(default == record.choice for default in defaults)
    doubt = ""
    if not (served.validated or is_default):
        verdict = known(_about(device, record))
        if verdict is None:
            doubt = "; not validated yet"
        elif verdict.reason:
            doubt = "; wrong results here, so the next nearest record is used"
    speeds = ", ".join(f"{gflops:.4g}" for gflops in served.record.gflops)
    return f"{served.origin}, {speeds} GFLOP/s{doubt}"


@forgettable
@functools.lru_cache(maxsize=64)
def instructions_of(device: Device) -> str | None:
    """Return the instructions beyond OpenCL C that a device has, such as ``"wgmma"``, or None.

    The compilers of NVIDIA's drivers accept the instructions of tensor cores, but no query reports
    this. So a device has them by its traits until a trial has rejected a kernel that needs them.
    """
    able = (family for family in FAMILIES if family.runs_on(device.traits))
    names = dict.fromkeys(family.instructions for family in able if family.instructions)
    return next((n for n in names if not is_rejected(about_instructions(where(device), n))), None)


def trial_plan_of(device: Device, problem: Problem, choice: Choice) -> Plan:
    """Return the launches of exactly this choice, without records: for the tuner."""
    traits, family = device.traits, family_named(choice.config.family)
    plain = problem._replace(precision="strict")

    def fallback(part: Problem) -> Plan:
        other, _ = choose(device, plain)
        default = other.defaults(plain.shape, traits)[0]
        return bounded(other.fallback(plain, default, traits), part, device.limits)

    return bounded(
        lambda part: family.trial_plan(part, choice, traits, fallback), problem, device.limits
    )
