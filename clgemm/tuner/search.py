"""Iterated greedy search: random points, then the best one's neighbours, then jumps from it. Pure.

After: Schoonhoven, van Werkhoven and Batenburg, "Benchmarking optimization algorithms for
auto-tuning GPU kernels", 2022, who found greedy local searches, begun anew, to do best on spaces
like these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random

from clgemm.tuner.spaces import Point, Space

__all__ = ["search"]

RANDOM_SHARE = 0.3  # of the time
MOST_RANDOM = 40  # points
BETTER = 1.005  # times the score that a step must reach: less is noise
LONGEST_JUMP = 4  # parameters
PROMISING = 0.9  # of the best score, from which on a jump's end is worth a climb
FRUITLESS = 200  # jumps in a row that lead nowhere new: the space is known
SUSPECT = 3  # rejections of a value, while only others are accepted, that rule it out


def search(
    space: Space,
    seeds: Iterable[Point],
    score: Callable[[Point], float],
    time_left: Callable[[], float],
    rng: Random,
    explore: bool,
) -> Point | None:
    """Look for the point of the highest score while there is time.

    Parameters
    ----------
    seeds : iterable of Point
        Tried first, whether time is left or not.
    score : callable
        The higher the better, 0 for what is rejected; called once for a point.
    time_left : callable
        From 1 at the begin to 0 and below.
    explore : bool
        Whether the seeds may be far from anything good: then random points are tried first.

    Returns
    -------
    Point or None
        The best; None if all were rejected.
    """
    walk = _Walk(space, score)
    for seed in seeds:
        walk.visit(seed, seed=True)
    for _ in range(MOST_RANDOM if explore else 0):
        if time_left() <= 1 - RANDOM_SHARE or (point := space.random(rng)) is None:
            break
        walk.visit(point)
    if walk.best is not None:
        _climb(walk, walk.best, time_left, rng)
    fruitless = 0
    while time_left() > 0 and fruitless < FRUITLESS and walk.best is not None:
        before = len(walk.scores)
        start = space.jump(walk.best, rng.randint(1, LONGEST_JUMP), rng)
        if walk.visit(start) > PROMISING * walk.scores[walk.best]:
            _climb(walk, start, time_left, rng)
        fruitless = 0 if len(walk.scores) > before else fruitless + 1
    return walk.best


class _Walk:
    """What has been tried."""

    def __init__(self, space: Space, score: Callable[[Point], float]) -> None:
        self.space = space
        self._score = score
        self.scores: dict[Point, float] = {}
        self.best: Point | None = None
        self._accepted: Counter[tuple[int, int]] = Counter()
        self._rejected: Counter[tuple[int, int]] = Counter()

    def visit(self, point: Point, seed: bool = False) -> float:
        """Return a point's score; 0 if it makes no choice or is like those that were rejected."""
        if point in self.scores:
            return self.scores[point]
        if self.space.choice(point) is None:
            return 0.0
        values = list(enumerate(point))
        if not seed and any(self._is_suspect(*value) for value in values):
            return 0.0
        found = self.scores[point] = self._score(point)
        (self._accepted if found else self._rejected).update(values)
        if found and (self.best is None or found > self.scores[self.best]):
            self.best = point
        return found

    def _is_suspect(self, parameter: int, value: int) -> bool:
        """Tell whether all with this value were rejected, but not all with others."""
        if self._rejected[parameter, value] < SUSPECT or self._accepted[parameter, value]:
            return False
        return any(x == parameter for x, _ in self._accepted)


def _climb(walk: _Walk, here: Point, time_left: Callable[[], float], rng: Random) -> None:
    """Go from neighbour to better neighbour until there is none, or time is up."""
    moved = True
    while moved:
        moved = False
        for neighbour in _shuffled(walk.space.neighbours(here), rng):
            if time_left() <= 0:
                return
            if walk.visit(neighbour) > BETTER * walk.scores[here]:
                here, moved = neighbour, True
                break


def _shuffled(points: Iterator[Point], rng: Random) -> list[Point]:
    listed = list(points)
    rng.shuffle(listed)
    return listed
