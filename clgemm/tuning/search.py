"""Search spaces of kernel families, and an iterated greedy search over their configs. Pure.

A point has one value for each parameter. `SearchSpace.make` adjusts values that do not fit
together. So several points can give the same choice, and some give none.

After: Schoonhoven, van Werkhoven and Batenburg, "Benchmarking optimization algorithms for
auto-tuning GPU kernels", 2022. They found that restarted greedy local searches do best on such
spaces, from random points. This search starts from a coarse grid of the parameters that matter
most. So it cannot miss the region of the best configs, to which no path leads uphill from small
tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

from clgemm.core.traits import Limits, Traits
from clgemm.kernels import family_named
from clgemm.kernels.common.family import Choice, SearchSpace
from clgemm.records.tuned import problems_of

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


GRID_SHARE = 0.5  # of the time, at most
PEAKS = 2  # points of the grid from which it climbs
BETTER = 1.005  # times the score that a step must reach: less is noise
LONGEST_JUMP = 4  # parameters
PROMISING = 0.9  # of the best score: the search climbs from a jump's end that reaches it
FRUITLESS = 200  # jumps in a row without a new point, after which the search ends
SUSPECT = 3  # rejections that rule out a value which was never accepted, though others were


def search(
    space: Space,
    seeds: Iterable[Point],
    grid: Iterable[Point],
    score: Callable[[Point], float],
    time_left: Callable[[], float],
    rng: Random,
) -> Point | None:
    """Search for the point with the highest score until the time is up.

    Parameters
    ----------
    seeds : iterable of Point
        Points to try first, even if no time is left.
    grid : iterable of Point
        Points to try next, if time allows, the most promising first. Empty if the seeds are near
        the best points already.
    score : callable
        Returns the score of a point: the higher the better, 0 if it is rejected. Called once for
        each choice.
    time_left : callable
        Returns the share of the time that is left: 1 at the start, 0 or less at the end.

    Returns
    -------
    Point or None
        The best point; None if all were rejected.
    """
    walk = _Walk(space, score)
    for seed in seeds:
        walk.visit(seed, seed=True)
    for point in grid:
        if time_left() <= 1 - GRID_SHARE:
            break
        walk.visit(point)
    for start in walk.ranked()[:PEAKS]:
        _climb(walk, start, time_left, rng)
    fruitless = 0
    while time_left() > 0 and fruitless < FRUITLESS and walk.best is not None:
        before = len(walk.scores)
        start = space.jump(walk.best, rng.randint(1, LONGEST_JUMP), rng)
        if walk.visit(start) > PROMISING * walk.best_score:
            _climb(walk, start, time_left, rng)
        fruitless = 0 if len(walk.scores) > before else fruitless + 1
    return walk.best


class _Walk:
    """The points tried so far, their scores, and the best of them."""

    def __init__(self, space: Space, score: Callable[[Point], float]) -> None:
        self.space = space
        self._score = score
        self.scores: dict[Choice, float] = {}
        self._points: dict[Choice, Point] = {}
        self.best: Point | None = None
        self.best_score = 0.0
        self._accepted: Counter[tuple[int, int]] = Counter()
        self._rejected: Counter[tuple[int, int]] = Counter()

    def visit(self, point: Point, seed: bool = False) -> float:
        """Return a point's score; 0 if it gives no choice or has a suspect value."""
        if (choice := self.space.choice(point)) is None:
            return 0.0
        if choice in self.scores:
            return self.scores[choice]
        values = list(enumerate(point))
        if not seed and any(self._is_suspect(*value) for value in values):
            return 0.0
        found = self.scores[choice] = self._score(point)
        self._points[choice] = point
        (self._accepted if found else self._rejected).update(values)
        if found > self.best_score:
            self.best, self.best_score = point, found
        return found

    def ranked(self) -> list[Point]:
        """Return the accepted points, the best first."""
        accepted = [choice for choice, found in self.scores.items() if found]
        return [self._points[c] for c in sorted(accepted, key=lambda c: -self.scores[c])]

    def _is_suspect(self, parameter: int, value: int) -> bool:
        """Tell whether points with this value were only rejected, but some with others accepted."""
        if self._rejected[parameter, value] < SUSPECT or self._accepted[parameter, value]:
            return False
        return any(x == parameter for x, _ in self._accepted)


def _climb(walk: _Walk, here: Point, time_left: Callable[[], float], rng: Random) -> None:
    """Move to a better neighbour until there is none or the time is up."""
    height, moved = walk.visit(here), True
    while moved:
        moved = False
        neighbours = list(walk.space.neighbours(here))
        rng.shuffle(neighbours)
        for neighbour in neighbours:
            if time_left() <= 0:
                return
            if (found := walk.visit(neighbour)) > BETTER * height:
                here, height, moved = neighbour, found, True
                break
