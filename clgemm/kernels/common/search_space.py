"""The search space of a kernel family: the choices that the tuner can try. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeAlias, TypeVar

from clgemm.core.config import KernelConfig
from clgemm.kernels.common.choice import Choice

__all__ = ["FLAGS", "SearchSpace", "Sketch", "changed", "space_of_fields", "values_of"]

FLAGS = (0, 1)
# Names of parameters that are set together, and the values to set them to.
Sketch: TypeAlias = dict[tuple[str, ...], tuple[tuple[int, ...], ...]]
Config = TypeVar("Config", bound=KernelConfig)


@dataclass(frozen=True)
class SearchSpace:
    """The choices of one kernel family.

    Attributes
    ----------
    values : dict of str to tuple of int
        The values of each parameter, in ascending order.
    couples : tuple of pair of str
        Pairs of parameters that are changed together: changing one alone seldom helps.
    coarse : Sketch
        The few parameters that matter most, at a few values.
    make : callable
        Makes a choice from values by name. It may break constraints; None if there is none.
    read : callable
        Returns the values of a choice by name.
    """

    values: dict[str, tuple[int, ...]]
    couples: tuple[tuple[str, str], ...]
    coarse: Sketch
    make: Callable[[dict[str, int]], Choice | None]
    read: Callable[[Choice], dict[str, int]]


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
