"""The interface of a kernel family: what the planner, the tuner and the records ask of it. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar, cast

from clgemm.core.config import KernelConfig
from clgemm.core.plan import Plan
from clgemm.core.problem import Problem, Shape
from clgemm.core.traits import Limits, Traits

Config = TypeVar("Config", bound=KernelConfig)
Pack = TypeVar("Pack", bound=KernelConfig)

Fallback: TypeAlias = Callable[[Problem], Plan]
Samples: TypeAlias = Mapping[str, tuple[Shape, ...]]
Multiply: TypeAlias = Callable[[Any, Any], Any]
FLAGS = (0, 1)
# Names of parameters that are set together, and the values to set them to.
Sketch: TypeAlias = dict[tuple[str, ...], tuple[tuple[int, ...], ...]]


class Choice(NamedTuple):
    """The config of a product's kernel, and the configs that pack its operands."""

    config: KernelConfig
    pack: tuple[KernelConfig, ...] | None = None


@dataclass(frozen=True)
class SearchSpace:
    """The choices of one kernel family."""

    values: dict[str, tuple[int, ...]]  # of each parameter, in ascending order
    # Pairs of parameters that are changed together: changing one alone seldom helps.
    couples: tuple[tuple[str, str], ...]
    coarse: Sketch  # the few parameters that matter most, at a few values
    # Makes a choice from values by name. It may break constraints; None if there is none.
    make: Callable[[dict[str, int]], Choice | None]
    read: Callable[[Choice], dict[str, int]]  # returns the values of a choice by name


class Family(ABC, Generic[Config, Pack]):
    """A kernel family: one folder, whose contents are named only there and in the registry.

    The planner takes the plan with the least expected time. Where a CPU emulates lanes, such times
    do not hold: there it takes the first family of the registry that runs on the device and suits
    the product. Families have no state: the registry holds one instance of each.

    Attributes
    ----------
    config : type
        The class of its configs, which the tuner searches and records hold.
    dtype : str, optional
        That of the matrices, by NumPy's name.
    packs : tuple of type
        The classes of the configs that pack its operands, in order; empty if it packs none.
    instructions : str
        Instructions that its kernels need and OpenCL does not report, "" if none. A child process
        validates them once on each device and driver.
    for_vectors : bool, optional
        True if it is for devices whose work-items have vectors, False for those that spread
        work-items over lanes, None for both.
    takes_any_strides : bool
        Whether operands may have any strides; otherwise rows or columns must be contiguous.
    stores_columns : bool
        Whether C may have contiguous columns; otherwise the planner exchanges the operands, so that
        C has contiguous rows.
    shapes, gpu_shapes : mapping
        The shapes that represent each shape class: on CPUs, and on others; None if they are the
        same there. A class is missing if the family serves none of its products.
    """

    config: type[Config]
    dtype: str = "float32"
    packs: tuple[type[Pack], ...] = ()
    instructions: ClassVar[str] = ""
    for_vectors: ClassVar[bool | None] = None
    takes_any_strides: ClassVar[bool] = True
    stores_columns: ClassVar[bool] = False
    shapes: ClassVar[Samples] = {}
    gpu_shapes: ClassVar[Samples | None] = None

    @property
    def name(self) -> str:
        """Its name in records and messages."""
        return self.config.family

    def runs_on(self, traits: Traits) -> bool:
        """Return whether the family may be used on devices with these traits."""
        return self.for_vectors in (None, traits.has_vectors)

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Return whether to use it for a product that no earlier family of the registry suits.

        The planner asks this where expected times do not hold, and for the scaling of C. A family
        that suits few products overrides `fits` or `candidates` too: they do not ask this.
        """
        return False

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return choices for a product, of which the planner takes what it expects to be fastest.

        It is asked only where expected times hold.
        """
        return self.defaults(problem.shape, traits) if self.fits(problem) else ()

    def fits(self, problem: Problem) -> bool:
        """Return whether its kernels can read operands of these layouts."""
        return True

    @abstractmethod
    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return hand-made choices for such a device; the first is used where no record is."""

    @abstractmethod
    def plainest(self, traits: Traits) -> Choice:
        """Return a choice that every compiler and device can take, however slow."""

    def estimate(self, shape: Shape, config: Config, traits: Traits) -> float:
        """Return the expected time in the family's own unit; 0 if it has no model."""
        return 0.0

    def slack(self, shape: Shape, traits: Traits) -> float:
        """Return how many times the default's estimate a record's config may take."""
        return 1.0

    def serves(self, found: Choice, default: Choice, shape: Shape, traits: Traits) -> bool:
        """Return whether to use the best config of a shape class for this shape too.

        Tiles that are fast for the class's samples may leave most compute units idle here.
        """
        as_found, by_default = (
            self.estimate(shape, self.config_of(x), traits) for x in (found, default)
        )
        return as_found <= self.slack(shape, traits) * by_default

    def scope(self, problem: Problem, choice: Choice, traits: Traits) -> str:
        """Return what a trial of a choice, for a product, covers: the choice, for all products."""
        return repr(choice)

    def fault(self, problem: Problem, choice: Choice, multiply: Multiply) -> str:
        """Return what is wrong with a choice besides products of whole numbers, "" if nothing is.

        Parameters
        ----------
        problem : Problem
            The product that it is wanted for.
        multiply : callable
            Returns the product of two float32 matrices by this choice.
        """
        return ""

    def config_of(self, choice: Choice) -> Config:
        """Return the config of a choice of this family, with its type."""
        assert isinstance(choice.config, self.config)
        return choice.config

    def packing(self, choice: Choice) -> tuple[Pack, ...]:
        """Return the configs that pack operands in a choice of this family, with their type."""
        assert all(isinstance(pack, self.packs) for pack in choice.pack or ())
        return cast("tuple[Pack, ...]", choice.pack or ())

    def panels(self, config: Config) -> tuple[int, ...]:
        """Return the rows per panel that its kernels read, for each of `packs`."""
        return ()

    def problems(self, choice: Choice, limits: Limits | None = None) -> Iterator[str]:
        """Yield the constraints that a choice breaks, those of a device included."""
        found = [
            problem
            for config in (choice.config, *(choice.pack or ()))
            for problem in (config.problems_on(limits) if limits else config.problems())
        ]
        yield from found
        if not found and choice.pack:
            tiles = self.panels(self.config_of(choice))
            panels = tuple(getattr(pack, "panel", 0) for pack in choice.pack)
            if panels != tiles:
                yield f"panels of {panels} rows do not make tiles of {tiles}"

    @abstractmethod
    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launches of a product whose A and B have the batch of C.

        C has contiguous rows, unless the family stores columns too.

        Parameters
        ----------
        fallback : callable
            Returns the launches of a part of the product in OpenCL C alone. It serves kernels that
            may detect, on the device, that they cannot compute the product.
        """

    def fallback(self, problem: Problem, choice: Choice, traits: Traits) -> Fallback:
        """Return a function that plans the fallback for parts of a product.

        Most calls need none of its launches.
        """

        def plan(part: Problem) -> Plan:
            return self.plan(part, choice, traits, self.fallback(problem, choice, traits))

        return plan

    def trial_plan(
        self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback
    ) -> Plan:
        """Return the launches of exactly this choice, for the tuner to check and time."""
        return self.plan(problem, choice, traits, fallback)

    def is_faster_transposed(self, problem: Problem, choice: Choice, traits: Traits) -> bool:
        """Return whether ``C' = B' A'`` is faster than ``C = A B``."""
        return False

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the choices to search; no others than the default if the family is not tuned.

        Parameters
        ----------
        default : Choice
            Has the values of the fields that are not searched.
        """
        return space_of_fields(default.config, {}, (), {})

    def samples(self, kind: str) -> Samples:
        """Return the shapes that represent each shape class on a kind of device."""
        return self.shapes if kind == "CPU" or self.gpu_shapes is None else self.gpu_shapes

    @abstractmethod
    def edge_shapes(self, config: Config) -> list[Shape]:
        """Return shapes that cover every edge case of a config's kernels."""


def space_of_fields(
    config: KernelConfig,
    values: dict[str, tuple[int, ...]],
    couples: tuple[tuple[str, str], ...],
    coarse: Sketch,
) -> SearchSpace:
    """Return a space whose parameters are fields of the config; its other fields stay."""
    return SearchSpace(
        values,
        couples,
        coarse,
        make=lambda point: Choice(changed(config, point)),
        read=lambda choice: values_of(choice.config, values),
    )


def changed(config: Config, values: Mapping[str, int]) -> Config:
    """Return a config with other values; those of flags become bool."""
    known = {field.name: field.type for field in fields(config)}
    typed = {
        name: bool(value) if known[name] == "bool" else value
        for name, value in values.items()
        if name in known
    }
    return replace(config, **typed)


def values_of(config: KernelConfig, values: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return a config's values of those parameters that are its fields."""
    return {name: int(getattr(config, name)) for name in values if hasattr(config, name)}


# Small and large shapes of each class, since one record serves the whole class.
PANEL_SAMPLES = {
    "small": (Shape(96, 96, 96), Shape(224, 224, 224)),
    "medium": (Shape(512, 512, 512), Shape(1000, 1000, 1000)),
    "large": (Shape(2048, 2048, 2048),),
    "tall": (Shape(4096, 64, 1024), Shape(3000, 100, 3000), Shape(8192, 256, 256)),
    "wide": (Shape(64, 4096, 1024), Shape(100, 3000, 3000), Shape(256, 8192, 256)),
    "deep": (Shape(64, 64, 50_000), Shape(100, 100, 20_000), Shape(256, 256, 8192)),
    "batched": (Shape(64, 64, 64, 300), Shape(128, 128, 128, 100), Shape(224, 224, 224, 40)),
}
GPU_PANEL_SAMPLES = PANEL_SAMPLES | {
    "small": (Shape(128, 128, 128), Shape(224, 224, 224)),
    "large": (Shape(2048, 2048, 2048), Shape(4096, 4096, 4096)),
    "tall": (Shape(16384, 64, 1024), Shape(8192, 512, 1024)),
    "wide": (Shape(64, 16384, 1024), Shape(512, 8192, 1024)),
    "batched": (Shape(128, 128, 128, 200), Shape(224, 224, 224, 100)),
}
FEW_ROWS_SAMPLES = {
    "vector": (Shape(1, 4096, 4096), Shape(4096, 1, 4096)),
    "tall": (Shape(4096, 4, 4096), Shape(8192, 8, 1024)),
    "wide": (Shape(4, 4096, 4096), Shape(8, 8192, 1024)),
}


def tile_edges(m: int, n: int, k: int) -> list[Shape]:
    """Return sizes around a tile of m x n elements of C, k deep."""
    return [
        Shape(m + 1, 2 * n - 1, 3 * k + 1),
        Shape(2 * m - 1, n + 1, 2 * k - 1),
        Shape(2 * m, 2 * n, 4 * k),
        Shape(m - 1, n - 1, 1501),
        Shape(m + 3, n - 1, k + 5, 3),
    ]
