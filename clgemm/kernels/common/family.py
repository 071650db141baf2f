"""The interface of a kernel family: what the planner, the tuner and the records ask of it. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Generic, TypeAlias, TypeVar, cast

from clgemm.core.config import KernelConfig, Limits
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan
from clgemm.core.traits import Traits
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.common.search_space import SearchSpace

__all__ = ["Fallback", "Family", "Samples"]

Config = TypeVar("Config", bound=KernelConfig)
Pack = TypeVar("Pack", bound=KernelConfig)

Fallback: TypeAlias = Callable[[Problem], Plan]
Samples: TypeAlias = Mapping[str, tuple[Shape, ...]]


class Family(ABC, Generic[Config, Pack]):
    """A way to make products: one folder, of which nothing outside names anything.

    The planner takes the first family of the registry that runs on the device and suits the
    product. Families without state: one instance of each stands in the registry.

    Attributes
    ----------
    config : type
        Of its configs: what the tuner searches and records hold.
    packs : tuple of type
        Of the configs by which A and B are packed for it, if they are.
    kernels : tuple of type
        Configs of the kernels that its products begin with, besides `config`.
    instructions : str
        What its kernels need that OpenCL does not tell of, "" if nothing. A child process tries
        it once on each device and driver.
    takes_any_strides : bool
        Whether operands may lie anyhow; else rows or columns are neighbours in memory.
    stores_columns : bool
        Whether its kernels store along the columns of C too; else the planner has C along rows.
    """

    config: type[Config]
    packs: tuple[type[Pack], ...] = ()
    kernels: tuple[type[KernelConfig], ...] = ()
    instructions: ClassVar[str] = ""
    takes_any_strides: ClassVar[bool] = True
    stores_columns: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What records and messages call it."""
        return self.config.family

    @abstractmethod
    def runs_on(self, traits: Traits) -> bool:
        """Tell whether devices like this one are given it at all."""

    @abstractmethod
    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Tell whether it should make a product, if no family before it in the registry does."""

    def fits(self, problem: Problem) -> bool:
        """Tell whether its kernels take operands that lie so."""
        return True

    @abstractmethod
    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return the choices made by hand for such devices; the first serves without a record."""

    @abstractmethod
    def plainest(self, traits: Traits) -> Choice:
        """Return a choice that every compiler and device can take, however slow."""

    def estimate(self, shape: Shape, config: Config, traits: Traits) -> float:
        """Return the expected time, in a unit of the family's own; 0 if it has no model."""
        return 0.0

    def slack(self, shape: Shape, traits: Traits) -> float:
        """Return how many times the default's estimate the config of a record may take."""
        return 1.0

    def serves(self, found: Choice, default: Choice, shape: Shape, traits: Traits) -> bool:
        """Tell whether the best config of a shape class should make this shape too.

        Tiles that are right for the samples may leave most compute units idle here.
        """
        times = (self.estimate(shape, self.own(x), traits) for x in (found, default))
        as_found, by_default = times
        return as_found <= self.slack(shape, traits) * by_default

    def own(self, choice: Choice) -> Config:
        """Return the config of a choice of this family."""
        assert isinstance(choice.config, self.config)
        return choice.config

    def packing(self, choice: Choice) -> tuple[Pack, ...]:
        """Return the configs by which operands are packed in a choice of this family."""
        assert all(isinstance(pack, self.packs) for pack in choice.pack or ())
        return cast("tuple[Pack, ...]", choice.pack or ())

    def panels(self, config: Config) -> tuple[int, ...]:
        """Return the rows of the panels that its kernels read, for each of `packs`."""
        return ()

    def problems(self, choice: Choice, limits: Limits | None = None) -> Iterator[str]:
        """Yield what speaks against a choice: broken constraints, those of a device included."""
        found = [
            problem
            for config in (choice.config, *(choice.pack or ()))
            for problem in (config.problems_on(limits) if limits else config.problems())
        ]
        yield from found
        if not found and choice.pack:
            tiles = self.panels(self.own(choice))
            panels = tuple(getattr(pack, "panel", 0) for pack in choice.pack)
            if panels != tiles:
                yield f"panels of {panels} rows do not make tiles of {tiles}"

    @abstractmethod
    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launches of a product, C along rows, A and B of the batch of C.

        Parameters
        ----------
        fallback : callable
            Returns the launches of a part of the product by OpenCL C alone. It is for kernels that
            may find, on the device, that they cannot make the product.
        """

    def fallback(self, problem: Problem, choice: Choice, traits: Traits) -> Fallback:
        """Return what plans parts of a product that most calls need no launch of."""

        def plan(part: Problem) -> Plan:
            return self.plan(part, choice, traits, self.fallback(problem, choice, traits))

        return plan

    def trial_plan(
        self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback
    ) -> Plan:
        """Return the launches by exactly this choice, which the tuner checks and times."""
        return self.plan(problem, choice, traits, fallback)

    def is_faster_transposed(
        self,
        problem: Problem,
        choice: Choice,
        traits: Traits,
    ) -> bool:
        """Tell whether to make C' = B' A' instead."""
        return False

    @abstractmethod
    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return what its choices can be; `default` has the values of what is not searched."""

    @abstractmethod
    def samples(self, kind: str) -> Samples:
        """Return the shapes that stand for each shape class on a kind of device.

        A class is missing if none of its products falls to the family.
        """

    @abstractmethod
    def edge_shapes(self, config: Config) -> list[Shape]:
        """Return sizes at which a config's kernels meet every edge that they have."""
