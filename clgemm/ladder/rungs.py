"""The list of rungs, the tutorial's names for their parameters, and their choice for a device."""

from __future__ import annotations

import operator
from dataclasses import fields

from clgemm.ladder.beyond import (
    AfterClBlas,
    AsynchronousCopies,
    RegisterPrefetch,
    SplitK,
    SwizzledOrder,
    WideLocalReads,
)
from clgemm.ladder.blocks import (
    AnySize,
    Prefetch,
    ReadOnlyShuffle,
    RegisterBlocks,
    Transposed,
    WiderLoads,
)
from clgemm.ladder.rung import Rung, Shape, Target
from clgemm.ladder.squares import MoreWork, Naive, Tiled, WiderTypes
from clgemm.ladder.tensor import Guard, SplitOperands, TensorCores, WarpGroups

__all__ = ["RUNGS", "TUTORIAL_NAMES", "configure"]

RUNGS: tuple[type[Rung], ...] = (
    Naive,
    Tiled,
    MoreWork,
    WiderTypes,
    Transposed,
    RegisterBlocks,
    WiderLoads,
    ReadOnlyShuffle,
    Prefetch,
    AnySize,
    AfterClBlas,
    WideLocalReads,
    RegisterPrefetch,
    SwizzledOrder,
    SplitK,
    AsynchronousCopies,
    TensorCores,
    WarpGroups,
    SplitOperands,
    Guard,
)

# The tutorial's names for the parameters.
TUTORIAL_NAMES = {
    "TS": "tile",
    "WPT": "work_n",
    "TSM": "tile_m",
    "TSN": "tile_n",
    "TSK": "tile_k",
    "WPTM": "work_m",
    "WPTN": "work_n",
    "TRANSPOSEX": "transpose",
    "TRANSPOSEY": "transpose",
    "PADDINGX": "pad",
    "PADDINGY": "pad",
    "USE_LDG": "read_only",
    "USE_SHUFFLE": "shuffle",
}


def configure(number: int, shape: Shape, target: Target, **parameters: int) -> Rung:
    """Return a rung with parameters that suit the device and the sizes.

    Parameters
    ----------
    number : int
        1 to 20.
    shape : Shape
        The product to compute.
    target : Target
        The device and its compiler.
    **parameters : int
        By clgemm's names or the tutorial's. The others come from the first of the rung's presets
        that fits.

    Raises
    ------
    ValueError
        If there is no such rung or parameter, or if the parameters break constraints of the rung
        or limits of the device; the message names all of them with their values.
    """
    if not 1 <= number <= len(RUNGS):
        raise ValueError(f"rung {number} is not one of 1 to {len(RUNGS)}")
    if min(shape) < 1:
        raise ValueError(f"the sizes (m, n, k) = {tuple(shape)} are not all 1 or more")
    kind = RUNGS[number - 1]
    names = [field.name for field in fields(kind)]
    given = {TUTORIAL_NAMES.get(name, name): value for name, value in parameters.items()}
    for name in given:
        if name not in names:
            raise ValueError(f"rung {number} has no parameter {name}; it has {', '.join(names)}")
    given = {name: operator.index(value) for name, value in given.items()}
    candidates = [kind(**{**preset, **given}) for preset in kind.presets]
    for candidate in candidates:
        if not any(candidate.problems_on(target, shape)):
            return candidate
    closest = min(candidates, key=lambda rung: len(list(rung.problems_on(target, shape))))
    raise ValueError(f"{closest}: " + "; ".join(closest.problems_on(target, shape)))
