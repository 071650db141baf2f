"""One task of the tuner: the best choice of a kernel family for a shape class."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Protocol

from clgemm.core.child import Child, ChildDiedError, RequestError
from clgemm.core.identity import Identity
from clgemm.core.shapes import Shape, fresh
from clgemm.hardware.device import Device
from clgemm.kernels import family_named
from clgemm.kernels.common.family import Choice
from clgemm.records.lookup import Served, candidates
from clgemm.records.record import Record, choice_as_dict, kernels_hash, today
from clgemm.tuning.search import search
from clgemm.tuning.space import Point, space_of
from clgemm.tuning.trials import Trial, Trials

__all__ = ["Task", "Tools", "Tuning"]

log = logging.getLogger(__name__)

# Seconds of the longest call by the default choice: shapes that take longer are halved. Calls of
# more than half of it are timed in half as many rounds.
LONGEST_CALL = 0.1
SHORT_WORK = 2**26  # multiply-adds of the call from which that time is estimated
HOPELESS = 0.5  # of the best score: after a lower one on a shape, the next shapes are not timed
CLOSE = 0.95  # of the best score: a candidate above it is timed again
ROUNDS, MORE_ROUNDS = 2, 4
FINALISTS = 4
FINAL_SHARE = 0.1  # of a task's time, for the finals
MOST_SEEDS = 8
MOST_DEFAULTS = 8  # of a family, those expected to be fastest
WORTH = 1.03  # times the default's speed: a smaller gain may be a loss on other shapes of the class


@dataclass(frozen=True)
class Task:
    """A kernel family to tune for a shape class: the shapes, and the share of the time."""

    family: str
    shape_class: str
    shapes: tuple[Shape, ...]
    weight: float = 1.0


class Tools(Protocol):
    """What a session provides to its tasks."""

    device: Device
    identity: Identity
    child: Child
    afresh: bool
    trials: Trials
    rng: random.Random
    found: list[Record]

    def say(self, text: str) -> None:
        """Report the progress."""

    def time_left(self) -> float:
        """Return the seconds until the finals of the current task must start; 0 or less if late."""

    def rejection(self, choice: Choice) -> str:
        """Return why a choice is rejected, "" if it is not."""

    def race(self, choices: Sequence[Choice], shape: Shape, rounds: int) -> list[list[float]]:
        """Time choices alternately on a shape; return the seconds of each, a number per round."""


class Tuning:
    """One task while it is tuned.

    A score is the time of the default choice over that of a candidate, in the same rounds. So
    scores can be compared even if the machine's speed changes.

    Parameters
    ----------
    is_first : bool, optional
        Whether it is the session's first task. It tries all known good choices even if no time is
        left, so that each session finds something.
    """

    def __init__(self, tools: Tools, task: Task, seconds: float, is_first: bool = False) -> None:
        self.tools, self.task, self.shapes = tools, task, task.shapes
        self.begin, self.seconds = time.monotonic(), seconds
        self.family, traits = family_named(task.family), tools.device.traits
        self.defaults = self.family.defaults(task.shapes[-1], traits)
        self.default = self.defaults[0]
        self.space = space_of(task.family, self.default, traits)
        self.best: Trial | None = None
        self.tried = self.rejected = 0
        self.is_first, self.is_slow, self.is_cut = is_first, False, False

    def search(self) -> None:
        """Try candidates until the time is up.

        Afterwards, `is_cut` tells whether there was no time to try all known good choices.
        """
        try:
            self.shapes = tuple(self._shortened(shape) for shape in self.task.shapes)
        except (RequestError, ChildDiedError) as error:
            log.warning("%s cannot be tuned: its default fails: %s", self._name, error)
            return
        grid = [] if self._is_known() else self._grid()
        search(self.space, self._seed_points(), grid, self._score, self._time_left, self.tools.rng)

    def winner(self, rounds: int) -> Record | None:
        """Time the best choices and the default once more; return the winner's record.

        The winner is the fastest choice that is right on fresh shapes and all layouts of operands,
        or the default if nothing is clearly faster. None if no choice is right, or if there was no
        time to try the known records, which then stay in use.
        """
        if self.is_cut and next(self._served(), None):
            return None
        tried = self._tried_here()
        best = [trial.choice for trial in sorted(tried, key=lambda trial: -trial.score)[:FINALISTS]]
        if not best:
            return None
        choices = list(dict.fromkeys((self.default, *best)))
        try:
            raced = [self.tools.race(choices, shape, rounds) for shape in self.shapes]
        except (RequestError, ChildDiedError) as error:
            log.warning("%s: the finals failed: %s", self._name, error)
            return None
        scores = {
            choice: geometric_mean(_ratio(times[0], times[number]) for times in raced)
            for number, choice in enumerate(choices)
        }
        worth = {choice: scores[choice] for choice in best}
        # A search with `afresh` may return the default only if it found it.
        if not self.tools.afresh and self.default in (trial.choice for trial in tried):
            worth[self.default] = WORTH
        for choice in sorted(worth, key=lambda choice: -worth[choice]):
            if reason := self._verified(choice):
                self._add(choice, 0.0, 0.0, f"on fresh shapes: {reason}")
                continue
            number = choices.index(choice)
            medians = [median(times[number]) for times in raced]
            speeds = [shape.gflop / s for shape, s in zip(self.shapes, medians, strict=True)]
            self.tools.say(
                f"{self._name}: {_figures(speeds)} GFLOP/s, {scores[choice]:.2f} x default"
            )
            return Record(
                device=self.tools.identity,
                family=self.task.family,
                shape_class=self.task.shape_class,
                choice=choice,
                shapes=self.shapes,
                gflops=tuple(speeds),
                kernels=kernels_hash(self.task.family),
                date=today(),
            )
        return None

    @property
    def _name(self) -> str:
        return f"{self.task.family} {self.task.shape_class}"

    @property
    def _key(self) -> str:
        return ",".join(shape.label for shape in self.shapes)

    def _time_left(self) -> float:
        """Return the share of the time that is left: 1 at the start, 0 or less at the end."""
        spent = time.monotonic() - self.begin
        return 1 - FINAL_SHARE - spent / self.seconds if self.seconds else 0.0

    def _shortened(self, shape: Shape) -> Shape:
        """Return a shape, halved until the default choice takes at most `LONGEST_CALL`."""
        small = shape
        while small.work > SHORT_WORK:
            small = small.shrunk()
        rate = self.tools.race([self.default], small, 1)[0][0] / small.work
        while rate * shape.work > LONGEST_CALL and shape.work > small.work:
            shape = shape.shrunk()
        self.is_slow |= rate * shape.work > LONGEST_CALL / 2
        return shape

    def _seed_points(self) -> Iterator[Point]:
        """Yield the points to try first. Without time, at most one of them needs a new trial."""
        tried, may_end = 0, not self.is_first
        for choice in self._seeds():
            is_new = self.tools.trials.find(self.task.shape_class, self._key, choice) is None
            if may_end and is_new and tried and self.tools.time_left() <= 0:
                self.is_cut = True
                return
            tried += is_new
            yield self.space.point(choice)

    def _seeds(self) -> Iterator[Choice]:
        """Yield the known good choices: here, on similar devices, and in other classes."""
        tools, family = self.tools, self.task.family
        if tools.afresh:
            yield self.family.plainest(tools.device.traits)
        else:
            shape, traits = self.task.shapes[-1], tools.device.traits
            others = sorted(
                self.defaults[1:],
                key=lambda x: self.family.estimate(shape, self.family.config_of(x), traits),
            )
            yield from (self.default, *others[: MOST_DEFAULTS - 1])
            tried = sorted(self._tried_here(), key=lambda trial: -trial.score)
            choices = [*(t.choice for t in tried), *(s.record.choice for s in self._served())]
            yield from dict.fromkeys(choices[:MOST_SEEDS])
        yield from dict.fromkeys(r.choice for r in tools.found[::-1] if r.family == family)

    def _served(self) -> Iterator[Served]:
        """Yield the present records that may serve this task's products."""
        tools = self.tools
        limits = tools.device.limits
        yield from candidates(tools.identity, limits, self.task.family, self.task.shape_class)

    def _is_known(self) -> bool:
        """Tell whether a validated record for this task exists. It is among the seeds."""
        return not self.tools.afresh and any(served.validated for served in self._served())

    def _grid(self) -> list[Point]:
        """Return the points of a coarse grid, those that were fast in other classes first.

        The others are shuffled: time may not suffice for all.
        """
        plain = self.family.plainest(self.tools.device.traits)
        points = self.space.sketch(self.space.point(plain))
        self.tools.rng.shuffle(points)
        scores: dict[Choice, float] = {}
        for trial in self.tools.trials.all:
            scores[trial.choice] = max(trial.score, scores.get(trial.choice, 0.0))

        def known_score(point: Point) -> float:
            choice = self.space.choice(point)
            return scores.get(choice, 0.0) if choice else 0.0

        return sorted(points, key=known_score, reverse=True)

    def _tried_here(self) -> list[Trial]:
        """Return the trials of this task whose choice was not rejected, then or later."""
        here = {
            trial.choice: trial
            for trial in self.tools.trials.all
            if (trial.shape_class, trial.shapes) == (self.task.shape_class, self._key)
            and trial.choice.config.family == self.task.family
        }
        return [trial for trial in here.values() if trial.score]

    def _score(self, point: Point) -> float:
        choice = self.space.choice(point)
        assert choice is not None
        trial = self.tools.trials.find(self.task.shape_class, self._key, choice)
        if trial is None:
            trial = self._measured(choice)
        self.tried += 1
        self.rejected += not trial.score
        if trial.score and (self.best is None or trial.score > self.best.score):
            self.best = trial
        best = (
            f"{self.best.gflops:.3g} GFLOP/s, {self.best.score:.2f} x default" if self.best else "-"
        )
        self.tools.say(f"{self._name}: best {best}; {self.tried} tried, {self.rejected} rejected")
        return trial.score

    def _measured(self, choice: Choice) -> Trial:
        """Check a choice, then time it on each shape beside the default."""
        if reason := self.tools.rejection(choice):
            return self._add(choice, 0.0, 0.0, reason)
        aim = self.best.score if self.best else 0.0
        try:
            ratios, speeds = self._timed(choice, ROUNDS >> self.is_slow, HOPELESS * aim)
            if geometric_mean(ratios) > CLOSE * aim:
                more, _ = self._timed(choice, MORE_ROUNDS >> self.is_slow, 0.0)
                ratios += 2 * more  # weighted: these had twice as many rounds
        except (RequestError, ChildDiedError) as error:
            return self._add(choice, 0.0, 0.0, str(error))
        return self._add(choice, geometric_mean(ratios), geometric_mean(speeds), "")

    def _timed(self, choice: Choice, rounds: int, least: float) -> tuple[list[float], list[float]]:
        """Return how many times faster than the default a choice is, and its GFLOP/s, by shape."""
        ratios, speeds = [], []
        for shape in self.shapes:
            before, after = self.tools.race([self.default, choice], shape, rounds)
            ratios.append(_ratio(before, after))
            speeds.append(shape.gflop / median(after))
            if ratios[-1] < least:
                break
        return ratios, speeds

    def _add(self, choice: Choice, score: float, gflops: float, reason: str) -> Trial:
        trial = Trial(self.task.shape_class, self._key, choice, score, gflops, reason)
        self.tools.trials.add(trial)
        return trial

    def _verified(self, choice: Choice) -> str:
        """Return what is wrong with a choice on fresh shapes, "" if nothing is."""
        shapes = [list(fresh(shape)) for shape in self.shapes]
        if choice == self.default:
            log.debug("%s: the default won", self._name)
        try:
            return str(
                self.tools.child.ask(
                    "verify", timeout_s=300.0, choice=choice_as_dict(choice), shapes=shapes
                )
            )
        except (RequestError, ChildDiedError) as error:
            return str(error)


def _ratio(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the median over the rounds of the time before over the time after."""
    return median(x / y for x, y in zip(before, after, strict=True))


def _figures(speeds: Sequence[float]) -> str:
    return ", ".join(f"{speed:.3g}" for speed in speeds)
