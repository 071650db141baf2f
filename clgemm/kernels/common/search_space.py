"""What the choices of a kernel family can be, as the tuner walks through them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeAlias, TypeVar

from clgemm.core.config import KernelConfig
from clgemm.kernels.common.choice import Choice

__all__ = ["FLAGS", "SearchSpace", "Sketch", "changed", "values_of"]

FLAGS = (0, 1)
# Of parameters that are changed together: what they can be together.
Sketch: TypeAlias = dict[tuple[str, ...], tuple[tuple[int, ...], ...]]
Config = TypeVar("Config", bound=KernelConfig)


@dataclass(frozen=True)
class SearchSpace:
    """The choices of one kernel family.

    Attributes
    ----------
    values : dict of str to tuple of int
        What each parameter can be, in order.
    couples : tuple of pair of str
        Parameters of which one is seldom better changed alone.
    coarse : Sketch
        The few parameters that matter most, at a few values.
    make : callable
        From values by name to a choice, constraints or not; None where there is none.
    read : callable
        From a choice to values by name.
    """

    values: dict[str, tuple[int, ...]]
    couples: tuple[tuple[str, str], ...]
    coarse: Sketch
    make: Callable[[dict[str, int]], Choice | None]
    read: Callable[[Choice], dict[str, int]]


def changed(config: Config, values: Mapping[str, int]) -> Config:
    """Return a config with other values, flags as flags."""
    known = {field.name: field.type for field in fields(config)}
    own = {
        name: bool(value) if known[name] == "bool" else value
        for name, value in values.items()
        if name in known
    }
    return replace(config, **own)


def values_of(config: KernelConfig, values: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the values that a config has of a space's parameters."""
    return {name: int(getattr(config, name)) for name in values if hasattr(config, name)}
