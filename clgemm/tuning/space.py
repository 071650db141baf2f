"""Search spaces: parameters, their values, and the neighbours of a point. Pure.

A point has one value for each parameter. `SearchSpace.make` adjusts values that do not fit
together. So several points can give the same choice, and some give none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

from clgemm.core.config import Limits
from clgemm.core.traits import Traits
from clgemm.kernels import family_named
from clgemm.kernels.common.family import Choice, SearchSpace
from clgemm.records.record import problems_of

__all__ = ["Point", "Space", "space_of"]

Point = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """The choices of one kernel family that a device can run."""

    search: SearchSpace
    limits: Limits

    @property
    def values(self) -> dict[str, tuple[int, ...]]:
        """The values of each parameter, in ascending order."""
        return self.search.values

    def choice(self, point: Point) -> Choice | None:
        """Return the choice of a point; None if there is none or it breaks a constraint."""
        choice = self.search.make(dict(zip(self.values, point, strict=True)))
        return None if choice is None or problems_of(choice, self.limits) else choice

    def point(self, choice: Choice) -> Point:
        """Return the point of a choice. Its values need not be among those of the space."""
        read = self.search.read(choice)
        return tuple(read[name] for name in self.values)

    def sketch(self, base: Point) -> list[Point]:
        """Return a coarse grid over the whole space, one point for each choice.

        Parameters
        ----------
        base : Point
            The values of the parameters that the grid leaves alone.
        """
        made: dict[Choice, Point] = {}
        for combination in product(*self.search.coarse.values()):
            values = dict(zip(self.values, base, strict=True))
            for names, together in zip(self.search.coarse, combination, strict=True):
                values |= dict(zip(names, together, strict=True))
            point = tuple(values.values())
            if (choice := self.choice(point)) is not None:
                made.setdefault(choice, point)
        return list(made.values())

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Yield the points one step away in one parameter, or in both parameters of a couple."""
        names = list(self.values)
        for name in names:
            yield from self._steps(point, names.index(name))
        for one, other in self.search.couples:
            for changed in self._steps(point, names.index(one)):
                yield from self._steps(changed, names.index(other))

    def _steps(self, point: Point, index: int) -> Iterator[Point]:
        values, here = list(self.values.values())[index], point[index]
        below = [value for value in values if value < here][-1:]
        above = [value for value in values if value > here][:1]
        for value in below + above:
            yield (*point[:index], value, *point[index + 1 :])

    def jump(self, point: Point, steps: int, rng: Random) -> Point:
        """Return a point that differs in at most `steps` random parameters."""
        changed = list(point)
        for index in rng.sample(range(len(changed)), min(steps, len(changed))):
            changed[index] = rng.choice(list(self.values.values())[index])
        return tuple(changed)


def space_of(family: str, default: Choice, traits: Traits) -> Space:
    """Return the space of a family on a device. `default` has the values that are not searched."""
    return Space(family_named(family).search_space(default, traits), traits.limits)
