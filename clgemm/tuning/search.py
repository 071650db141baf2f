"""Iterated greedy search over the configs of a kernel family. Pure.

After: Schoonhoven, van Werkhoven and Batenburg, "Benchmarking optimization algorithms for
auto-tuning GPU kernels", 2022, who found greedy local searches, begun anew, to do best on spaces
like these. They begin anywhere; a coarse grid of the parameters that matter most cannot miss the
region of the best, to which no way leads uphill from small tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random

from clgemm.kernels.common.choice import Choice
from clgemm.tuning.space import Point, Space

__all__ = ["search"]

GRID_SHARE = 0.5  # of the time, at most
PEAKS = 2  # points of the grid from which it climbs
BETTER = 1.005  # times the score that a step must reach: less is noise
LONGEST_JUMP = 4  # parameters
PROMISING = 0.9  # of the best score, from which on a jump's end is worth a climb
FRUITLESS = 200  # jumps in a row that lead nowhere new: the space is known
SUSPECT = 3  # rejections of a value, while only others are accepted, that rule it out


def search(
    space: Space,
    seeds: Iterable[Point],
    grid: Iterable[Point],
    score: Callable[[Point], float],
    time_left: Callable[[], float],
    rng: Random,
) -> Point | None:
    """Look for the point of the highest score while there is time.

    Parameters
    ----------
    seeds : iterable of Point
        Tried first, whether time is left or not.
    grid : iterable of Point
        Tried next, if time allows: those from which it may be worth to climb, the likely ones
        first. None, if the seeds are near anything good.
    score : callable
        The higher the better, 0 for what is rejected; called once for a choice.
    time_left : callable
        From 1 at the begin to 0 and below.

    Returns
    -------
    Point or None
        The best; None if all were rejected.
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
    """What has been tried."""

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
        """Return a point's score; 0 if it makes no choice or is like those that were rejected."""
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
        """Return the points that were accepted, the best first."""
        accepted = [choice for choice, found in self.scores.items() if found]
        return [self._points[c] for c in sorted(accepted, key=lambda c: -self.scores[c])]

    def _is_suspect(self, parameter: int, value: int) -> bool:
        """Tell whether all with this value were rejected, but not all with others."""
        if self._rejected[parameter, value] < SUSPECT or self._accepted[parameter, value]:
            return False
        return any(x == parameter for x, _ in self._accepted)


def _climb(walk: _Walk, here: Point, time_left: Callable[[], float], rng: Random) -> None:
    """Go from neighbour to better neighbour until there is none, or time is up."""
    height, moved = walk.visit(here), True
    while moved:
        moved = False
        for neighbour in _shuffled(walk.space.neighbours(here), rng):
            if time_left() <= 0:
                return
            if (found := walk.visit(neighbour)) > BETTER * height:
                here, height, moved = neighbour, found, True
                break


def _shuffled(points: Iterator[Point], rng: Random) -> list[Point]:
    listed = list(points)
    rng.shuffle(listed)
    return listed
