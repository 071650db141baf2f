"""The whole family: its config, what suits it, its launches, and what the tuner asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig
from clgemm.core.plan import Element, Plan, Step, ceil_div, operand_in_place
from clgemm.core.problem import Problem, Shape
from clgemm.core.traits import Traits
from clgemm.kernels.common.family import (
    Choice,
    Fallback,
    Family,
    Samples,
    SearchSpace,
    changed,
    values_of,
)

GROUPS = 1, 2, 4, 8


@dataclass(frozen=True)
class ToyConfig(KernelConfig):
    """An element of C for each work-item."""

    group: int  # work-items per work-group

    family: ClassVar[str] = "toy"
    source: ClassVar[str] = "toy/toy.cl"
    entry: ClassVar[str] = "toy_product"


class Toy(Family[ToyConfig, KernelConfig]):
    """Products of seven rows."""

    config = ToyConfig

    def runs_on(self, traits: Traits) -> bool:
        return True

    def suits(self, problem: Problem, traits: Traits) -> bool:
        return problem.m == 7 and problem.k > 0 and problem.matrices == 1

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        return self.defaults(problem.shape, traits) if self.suits(problem, traits) else ()

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        return tuple(Choice(ToyConfig(group)) for group in GROUPS[1:])

    def plainest(self, traits: Traits) -> Choice:
        return Choice(ToyConfig(1))

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        a, b, c = problem.layouts
        arguments = {
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "alpha": "alpha",
            "beta": "beta",
            **operand_in_place("a", "a", Element("a", 0), a),
            **operand_in_place("b", "b", Element("b", 0), b),
            **operand_in_place("c", "c", Element("c", 0), c),
        }
        groups = ceil_div(problem.m * problem.n, self.config_of(choice).group)
        return Plan((Step(choice.config, groups, arguments),))

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        values = {"group": GROUPS}
        return SearchSpace(
            values,
            couples=(),
            coarse={("group",): ((1,), (4,))},
            make=lambda point: Choice(changed(self.config_of(default), point)),
            read=lambda choice: values_of(choice.config, values),
        )

    def samples(self, kind: str) -> Samples:
        return {"tiny": (Shape(7, 12, 12), Shape(7, 30, 30))}

    def edge_shapes(self, config: ToyConfig) -> list[Shape]:
        return [Shape(1, 1, 1), Shape(7, config.group + 1, 5), Shape(9, 3, 2 * config.group)]


TOY = Toy()
