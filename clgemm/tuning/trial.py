"""The child process that builds, checks and times configs on a device.

``python -m clgemm.tuning.trial DEVICE``. Configs that are compared are timed alternately. Requests
and answers go through `clgemm.core.child.serve`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyopencl.array as cl_array

from clgemm.core.child import serve
from clgemm.core.plan import Plan
from clgemm.core.problem import Layout, Problem, Shape
from clgemm.hardware.device import find
from clgemm.kernels import family_named
from clgemm.kernels.common.family import Choice
from clgemm.kernels.exact.family import Exact
from clgemm.planning.planner import trial_plan_of
from clgemm.records.tuned import choice_from
from clgemm.runtime import exact
from clgemm.runtime.execute import BoundCall, execute_matrices
from clgemm.runtime.operands import place
from clgemm.runtime.workspace import workspace
from clgemm.trials.worker import wrong_result

MARGIN = 6  # elements between rows, and rows between the matrices of a batch
WARM_SECONDS = 0.05  # a first call longer than this is timed too; others only warm the caches
MOST_BYTES = 2**28  # of operands that are kept for further calls


class Variant(NamedTuple):
    """The layouts of the operands, and their factors.

    Attributes
    ----------
    layout_a, layout_b, layout_c : str
        ``"N"``: row by row; ``"T"``: column by column; ``"S"``: every other element of every
        other row.
    """

    layout_a: str
    layout_b: str
    alpha: float
    beta: float
    layout_c: str = "N"


PLAIN = Variant("N", "N", 1.0, 0.0)
VARIANTS = (
    PLAIN,
    Variant("T", "T", 2.0, -1.0),
    Variant("S", "N", -1.0, 0.0),
    Variant("N", "T", 1.0, 2.0),
    Variant("T", "S", 1.0, 0.0),
)


class Server:
    """The requests that the child serves, one for each method. Results go through JSON."""

    def __init__(self, identified: Sequence[str]) -> None:
        self._device = find(list(identified))
        self._queue = self._device.queue
        self._raced: dict[tuple[Shape, str], list[Any]] = {}  # a, b and c of those timed last
        self._warm: set[tuple[Shape, Choice]] = set()

    def ready(self) -> bool:
        """Return True: the device is open."""
        return True

    def validate(self, choice: dict[str, Any]) -> str:
        """Build a choice and multiply on odd sizes; return what is wrong, "" if nothing is."""
        made = choice_from(**choice)
        return self._first_wrong(made, _edge_cases(made))

    def verify(self, choice: dict[str, Any], shapes: Sequence[Sequence[int]]) -> str:
        """Multiply operands of every layout, on odd sizes and those given; return what is wrong."""
        made = choice_from(**choice)
        family = family_named(made.config.family)
        wanted = [*family.edge_shapes(made.config), *(Shape(*shape) for shape in shapes)]
        variants = [v for v in reversed(VARIANTS) if family.takes_any_strides or "S" not in v]
        if family.stores_columns:
            variants = [v._replace(layout_c=v.layout_a) for v in variants]
        return self._first_wrong(made, zip(wanted, cycle(variants), strict=False))

    def race(
        self, choices: Sequence[dict[str, Any]], shape: Sequence[int], rounds: int, turn_s: float
    ) -> list[list[float]]:
        """Time choices alternately, with operands on the device.

        Returns
        -------
        list of list of float
            The seconds per call of each choice, a number per round.
        """
        of, made = Shape(*shape), [choice_from(**choice) for choice in choices]
        calls = [self._call(choice, of) for choice in made]
        for call, choice in zip(calls, made, strict=True):
            if (of, choice) not in self._warm:
                call()  # compiles
                self._warm.add((of, choice))
        found: list[list[float]] = [[] for _ in calls]
        for number in range(rounds):
            # Reverse the order each time: a choice finds the caches as the one before left them.
            order = list(zip(calls, found, strict=True))
            for call, seconds in order if number % 2 == 0 else reversed(order):
                seconds.append(_timed(call, turn_s))
        return found

    def _operands(self, shape: Shape, dtype: str) -> list[Any]:
        if (shape, dtype) in self._raced:
            return self._raced[shape, dtype]
        held = sum(x.nbytes for operands in self._raced.values() for x in operands)
        if held > MOST_BYTES:
            self._raced.clear()
        rng = np.random.default_rng(0)
        batch = (shape.matrices,) * (shape.matrices > 1)
        sizes = (shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n)
        self._raced[shape, dtype] = made = [
            cl_array.to_device(self._queue, (9 * rng.random((*batch, *size)) - 4.5).astype(dtype))
            for size in sizes
        ]
        return made

    def _call(self, choice: Choice, shape: Shape) -> Callable[[], None]:
        """Return a function that multiplies and waits."""
        family = family_named(choice.config.family)
        matrices = [place(x) for x in self._operands(shape, family.dtype)]
        a, b, c = matrices
        layouts, space = (a.layout, b.layout, c.layout), workspace(self._queue)
        if isinstance(family, Exact):
            tile = family.config_of(choice)
            bound = exact.bind_untried(layouts, family.types, self._device, space, tile=tile)
        else:
            plan = self._plan(choice, Problem(*layouts, "float32"))
            bound = BoundCall(space, space.bind(plan, self._device), False)

        def call() -> None:
            execute_matrices(bound, 1.0, a, b, 0.0, c)
            self._queue.finish()

        return call

    def _plan(self, choice: Choice, problem: Problem) -> Plan:
        if not family_named(choice.config.family).fits(problem):
            raise ValueError(f"the {choice.config.family} family does not take {problem.layouts}")
        return trial_plan_of(self._device, problem, choice)

    def _first_wrong(self, choice: Choice, cases: Iterable[tuple[Shape, Variant]]) -> str:
        """Multiply whole numbers, whose sums are exact in any order; return what is wrong."""
        family = family_named(choice.config.family)
        if isinstance(family, Exact):
            sizes = [shape for shape, _ in cases]
            return exact.wrong(self._device, family.types, choice=choice, sizes=sizes)
        for shape, variant in cases:
            batch = (shape.matrices,) * (shape.matrices > 1)
            a = _layout(variant.layout_a, (*batch, shape.m, shape.k))
            b = _layout(variant.layout_b, (*batch, shape.k, shape.n))
            c = _layout(variant.layout_c, (*batch, shape.m, shape.n))
            problem = Problem(a, b, c, "float32")
            plan = self._plan(choice, problem)
            if found := wrong_result(self._device, plan, problem, variant.alpha, variant.beta):
                layouts = variant.layout_a + variant.layout_b + variant.layout_c
                return f"wrong result at {shape.label} {layouts}: {found}"
        return ""


def _layout(name: str, shape: tuple[int, ...]) -> Layout:
    """Return a layout of `Variant`, with a margin between rows and between matrices."""
    step = 2 if name == "S" else 1
    rows, columns = shape[-2:][::-1] if name == "T" else shape[-2:]
    row = step * columns + MARGIN
    strides = [step * row, step][::-1] if name == "T" else [step * row, step]
    matrix = (step * rows + MARGIN) * row
    return Layout(shape, (*[matrix] * (len(shape) - 2), *strides))


def _edge_cases(choice: Choice) -> list[tuple[Shape, Variant]]:
    """Return the products that validate a choice before it is used."""
    family = family_named(choice.config.family)
    # Layouts that are read in place compile other kernels: `verify` checks those of the winner.
    cases = [(shape, PLAIN) for shape in family.edge_shapes(choice.config)]
    if family.stores_columns:
        # This layout packs A even where others are read in place, and stores C along its columns.
        cases.append((cases[0][0], VARIANTS[1]._replace(layout_c="T")))
    return cases


def _timed(call: Any, turn_s: float) -> float:
    """Return the median seconds of a call, which is repeated for `turn_s` seconds."""
    begin = time.perf_counter()
    call()
    times = [time.perf_counter() - begin]
    if times[0] < WARM_SECONDS:
        times.clear()
    spent = sum(times)
    while not times or spent < turn_s:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
        spent += times[-1]
    return median(times)


if __name__ == "__main__":
    serve(Server(sys.argv[1:]))
