"""The expected times of products on tensor cores. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from clgemm.core.config import FLOAT_BYTES, Limits
from clgemm.core.steps import ceil_div

__all__ = ["STEP_COLUMNS", "Cuts", "best_cuts", "narrow_us", "split_us", "uncut"]

STEP = 64  # of k
MODELLED_ELEMENTS = 128 * 128  # of a tile, for which the costs of split-k hold
MOST_SLICES = 16
LEAST_DEPTHS = 2  # of a slice
STEP_COLUMNS = 64  # with so many columns of C or fewer, a tile of the narrow family has all
MOST_ROUNDS = 4  # of slices: each takes scratch memory


class Cuts(NamedTuple):
    """How the tiles of C are cut along k: the first `whole` not at all, the others in slices.

    Attributes
    ----------
    tiles, whole : int
        All tiles, and those that are not cut.
    slices : int
        Slices of each other tile.
    elements : int
        Elements of C of a tile.
    us : float
        Expected time in microseconds that the device is busy with all of them.
    """

    tiles: int
    whole: int
    slices: int
    elements: int
    us: float

    @property
    def parts(self) -> int:
        """What work-groups compute at a time: tiles that are not cut, and slices."""
        return self.whole + self.all_slices

    @property
    def all_slices(self) -> int:
        """The slices of all tiles that are cut."""
        return (self.tiles - self.whole) * self.slices

    @property
    def slices_bytes(self) -> int:
        """The scratch memory that all slices take."""
        return FLOAT_BYTES * self.elements * self.all_slices


@functools.lru_cache(maxsize=1024)
def best_cuts(tiles: int, depths: int, step_us: float, elements: int, limits: Limits) -> Cuts:
    """Return the cuts that leave the fewest compute units idle in the last round of tiles.

    Parameters
    ----------
    depths : int
        Steps over k of a tile that is not cut.
    step_us : float
        Time of a step.
    elements : int
        Elements of C of a tile.
    """
    found = _cuts(tiles, depths, step_us, elements, limits)
    return min((uncut(tiles, depths, step_us, elements, limits), *found), key=lambda cuts: cuts.us)


def uncut(tiles: int, depths: int, step_us: float, elements: int, limits: Limits) -> Cuts:
    """Return no cuts; the parameters are those of `best_cuts`."""
    return Cuts(tiles, tiles, 1, elements, _rounds(tiles, limits) * depths * step_us)


def _cuts(tiles: int, depths: int, step_us: float, elements: int, limits: Limits) -> Iterator[Cuts]:
    units, costs = limits.compute_units, limits.costs
    full = tiles // units
    for rounds in {max(full - 1, 0), full} - {tiles / units}:
        cut = tiles - rounds * units
        most = min(MOST_SLICES, depths // LEAST_DEPTHS, MOST_ROUNDS * units // cut)
        for slices in {ceil_div(depths, ceil_div(depths, some)) for some in range(2, most + 1)}:
            steps = rounds * depths + _rounds(cut * slices, limits) * ceil_div(depths, slices)
            adding = costs.tensor_slice_us * slices
            adding += costs.tensor_round_us * ceil_div(cut * slices, units)
            us = step_us * steps + elements / MODELLED_ELEMENTS * adding
            yield Cuts(tiles, rounds * units, slices, elements, us)


def _rounds(parts: int, limits: Limits) -> float:
    """Return how many rounds of work-groups so many parts take."""
    rounds = parts / limits.compute_units
    return rounds + limits.costs.tensor_tail * (ceil_div(parts, limits.compute_units) - rounds)


def split_us(elements: int, is_strided: bool, limits: Limits) -> float:
    """Return how long splitting so many elements of both operands takes."""
    costs = limits.costs
    slower = 1 + costs.tensor_strided * is_strided
    return 2 * FLOAT_BYTES * elements / costs.tensor_pack_bytes * slower


def narrow_us(
    groups: int, columns: int, depth: int, slices: int, packs: int, is_single: bool, limits: Limits
) -> float:
    """Return how long work-groups with so many columns keep the device busy.

    Parameters
    ----------
    depth : int
        Of a slice of k.
    packs : int
        Chunks of the smaller operand that all work-groups pack together.
    is_single : bool
        Whether loads bring single elements.
    """
    costs = limits.costs
    rounds = ceil_div(groups, limits.compute_units)
    step_us = costs.narrow_step_us + costs.narrow_column_us * columns
    if is_single:
        step_us *= costs.narrow_single
    packing = ceil_div(packs, min(groups, limits.compute_units)) * costs.narrow_pack_us
    adding = costs.narrow_fused_us + slices * costs.narrow_slice_us if slices > 1 else 0.0
    computing = rounds * (ceil_div(depth, STEP) * step_us + costs.narrow_round_us)
    return packing + computing + adding
