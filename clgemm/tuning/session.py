"""A tuning session: one kernel family and shape class after another, each a task."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from statistics import geometric_mean, median
from typing import Any

from clgemm.core.cache import cache_folder, locked, warn_unkept
from clgemm.core.child import Child, ChildDiedError, RequestError
from clgemm.core.problem import SHAPE_CLASSES, Problem, Shape, fresh, shape_class
from clgemm.hardware.device import Device, identify, where
from clgemm.kernels import OTHER_DTYPES, family_named
from clgemm.kernels.common.family import Choice, Family
from clgemm.planning import planner
from clgemm.records import tuned
from clgemm.records.tuned import Record, Served, candidates, choice_as_dict, kernels_hash, today
from clgemm.records.verdicts import Verdict, about_family
from clgemm.records.verdicts import store as store_verdict
from clgemm.tuning.search import Point, search, space_of
from clgemm.tuning.trials import Trial, Trials

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
TURN_SECONDS = 0.02
FINAL_ROUNDS, HASTY_ROUNDS = 7, 2
LOCK_SECONDS = 300  # the longest wait for another tuner that is timing
START_SECONDS = 120.0  # the time limit for the start of the child process
FIRST_WEIGHT, WEIGHTS = 6.0, {"large": 3.0, "medium": 3.0}  # shares of the time
WORTH = 1.03  # times the default's speed: a smaller gain may be a loss on other shapes of the class


@dataclass(frozen=True)
class Task:
    """A kernel family to tune for a shape class: the shapes, and the share of the time."""

    family: str
    shape_class: str
    shapes: tuple[Shape, ...]
    weight: float = 1.0


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

    def __init__(
        self, session: Session, task: Task, seconds: float, is_first: bool = False
    ) -> None:
        self.session, self.task, self.shapes = session, task, task.shapes
        self.begin, self.seconds = time.monotonic(), seconds
        self.family, traits = family_named(task.family), session.device.traits
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
        rng = self.session.rng
        search(self.space, self._seed_points(), grid, self._score, self._time_left, rng)

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
            raced = [self.session.race(choices, shape, rounds) for shape in self.shapes]
        except (RequestError, ChildDiedError) as error:
            log.warning("%s: the finals failed: %s", self._name, error)
            return None
        scores = {
            choice: geometric_mean(_ratio(times[0], times[number]) for times in raced)
            for number, choice in enumerate(choices)
        }
        worth = {choice: scores[choice] for choice in best}
        # A search with `afresh` may return the default only if it found it.
        if not self.session.afresh and self.default in (trial.choice for trial in tried):
            worth[self.default] = WORTH
        for choice in sorted(worth, key=lambda choice: -worth[choice]):
            if reason := self._verified(choice):
                self._add(choice, 0.0, 0.0, f"on fresh shapes: {reason}")
                continue
            number = choices.index(choice)
            medians = [median(times[number]) for times in raced]
            speeds = [shape.gflop / s for shape, s in zip(self.shapes, medians, strict=True)]
            figures = ", ".join(f"{speed:.3g}" for speed in speeds)
            self.session.say(f"{self._name}: {figures} GFLOP/s, {scores[choice]:.2f} x default")
            return Record(
                device=self.session.identity,
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
        rate = self.session.race([self.default], small, 1)[0][0] / small.work
        while rate * shape.work > LONGEST_CALL and shape.work > small.work:
            shape = shape.shrunk()
        self.is_slow |= rate * shape.work > LONGEST_CALL / 2
        return shape

    def _seed_points(self) -> Iterator[Point]:
        """Yield the points to try first. Without time, at most one of them needs a new trial."""
        tried, may_end = 0, not self.is_first
        for choice in self._seeds():
            is_new = self.session.trials.find(self.task.shape_class, self._key, choice) is None
            if may_end and is_new and tried and self.session.time_left() <= 0:
                self.is_cut = True
                return
            tried += is_new
            yield self.space.point(choice)

    def _seeds(self) -> Iterator[Choice]:
        """Yield the known good choices: here, on similar devices, and in other classes."""
        session, family = self.session, self.task.family
        if session.afresh:
            yield self.family.plainest(session.device.traits)
        else:
            shape, traits = self.task.shapes[-1], session.device.traits
            others = sorted(
                self.defaults[1:],
                key=lambda x: self.family.estimate(shape, self.family.config_of(x), traits),
            )
            yield from (self.default, *others[: MOST_DEFAULTS - 1])
            tried = sorted(self._tried_here(), key=lambda trial: -trial.score)
            choices = [*(t.choice for t in tried), *(s.record.choice for s in self._served())]
            yield from dict.fromkeys(choices[:MOST_SEEDS])
        yield from dict.fromkeys(r.choice for r in session.found[::-1] if r.family == family)

    def _served(self) -> Iterator[Served]:
        """Yield the present records that may serve this task's products."""
        session = self.session
        limits = session.device.limits
        yield from candidates(session.identity, limits, self.task.family, self.task.shape_class)

    def _is_known(self) -> bool:
        """Tell whether a validated record for this task exists. It is among the seeds."""
        return not self.session.afresh and any(served.validated for served in self._served())

    def _grid(self) -> list[Point]:
        """Return the points of a coarse grid, those that were fast in other classes first.

        The others are shuffled: time may not suffice for all.
        """
        plain = self.family.plainest(self.session.device.traits)
        points = self.space.sketch(self.space.point(plain))
        self.session.rng.shuffle(points)
        scores: dict[Choice, float] = {}
        for trial in self.session.trials.all:
            scores[trial.choice] = max(trial.score, scores.get(trial.choice, 0.0))

        def known_score(point: Point) -> float:
            choice = self.space.choice(point)
            return scores.get(choice, 0.0) if choice else 0.0

        return sorted(points, key=known_score, reverse=True)

    def _tried_here(self) -> list[Trial]:
        """Return the trials of this task whose choice was not rejected, then or later."""
        here = {
            trial.choice: trial
            for trial in self.session.trials.all
            if (trial.shape_class, trial.shapes) == (self.task.shape_class, self._key)
            and trial.choice.config.family == self.task.family
        }
        return [trial for trial in here.values() if trial.score]

    def _score(self, point: Point) -> float:
        choice = self.space.choice(point)
        assert choice is not None
        trial = self.session.trials.find(self.task.shape_class, self._key, choice)
        if trial is None:
            trial = self._measured(choice)
        self.tried += 1
        self.rejected += not trial.score
        if trial.score and (self.best is None or trial.score > self.best.score):
            self.best = trial
        best = (
            f"{self.best.gflops:.3g} GFLOP/s, {self.best.score:.2f} x default" if self.best else "-"
        )
        self.session.say(f"{self._name}: best {best}; {self.tried} tried, {self.rejected} rejected")
        return trial.score

    def _measured(self, choice: Choice) -> Trial:
        """Check a choice, then time it on each shape beside the default."""
        if reason := self.session.rejection(choice):
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
            before, after = self.session.race([self.default, choice], shape, rounds)
            ratios.append(_ratio(before, after))
            speeds.append(shape.gflop / median(after))
            if ratios[-1] < least:
                break
        return ratios, speeds

    def _add(self, choice: Choice, score: float, gflops: float, reason: str) -> Trial:
        trial = Trial(self.task.shape_class, self._key, choice, score, gflops, reason)
        self.session.trials.add(trial)
        return trial

    def _verified(self, choice: Choice) -> str:
        """Return what is wrong with a choice on fresh shapes, "" if nothing is."""
        shapes = [list(fresh(shape)) for shape in self.shapes]
        try:
            return str(
                self.session.child.ask(
                    "verify", timeout_s=300.0, choice=choice_as_dict(choice), shapes=shapes
                )
            )
        except (RequestError, ChildDiedError) as error:
            return str(error)


def _ratio(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the median over the rounds of the time before over the time after."""
    return median(x / y for x, y in zip(before, after, strict=True))


def tasks_for(
    device: Device, shapes: Iterable[Shape] | None = None, dtypes: Iterable[str] = ("float32",)
) -> list[Task]:
    """Return the tuning tasks of a device: every family and class, or those of some shapes.

    The first task of a dtype gets most of its time: the others of its family start from its result.
    Large products take longer, so their classes get more time than the rest.
    """
    shapes = None if shapes is None else list(shapes)
    return [task for dtype in dtypes for task in _tasks_of(device, shapes, OTHER_DTYPES.get(dtype))]


def _tasks_of(
    device: Device, shapes: Sequence[Shape] | None, other: Family[Any, Any] | None
) -> list[Task]:
    """Return the tasks of one dtype: float32, or that of a family of its own."""
    # On many compute units, the best tiles for large products are the hardest to find.
    first = ("medium", "large") if device.kind == "CPU" else ("large", "medium")
    order = (*first, "tall", "wide", "small", "vector", "deep", "batched", "tiny")
    if shapes is None:
        made = [
            Task(family.name, name, family.samples(device.kind).get(name, ()))
            for family in ([other] if other else reversed(planner.families(device)))
            for name in sorted(SHAPE_CLASSES, key=order.index)
        ]
    else:
        by_class: dict[tuple[str, str], list[Shape]] = {}
        for shape in shapes:
            of = other.name if other else _family(device, shape), shape_class(*shape)
            by_class.setdefault(of, []).append(shape)
        made = [Task(*of, tuple(each)) for of, each in by_class.items()]
    made = [task for task in made if task.shapes]
    return [
        replace(task, weight=FIRST_WEIGHT if number == 0 else WEIGHTS.get(task.shape_class, 1.0))
        for number, task in enumerate(made)
    ]


def _family(device: Device, shape: Shape) -> str:
    """Return the family that multiplies row-major operands of a shape in OpenCL C alone."""
    return planner.choose(device, Problem.of(shape, "strict"))[0].name


@dataclass
class Session:
    """One run of the tuner on one device.

    Attributes
    ----------
    child : Child
        The child process that tries candidates.
    seconds : float
        The time for all tasks together.
    left_out : list of Task
        The tasks for which there was no time; their records are unchanged.
    afresh : bool
        Whether to start from the plainest config, without defaults, records and earlier trials. It
        shows what the search finds by itself.
    report : callable
        Called often, with the seconds since the start and a line on the progress.
    validation_seconds : float
        The time after which a candidate that is being checked is taken to hang.
    """

    device: Device
    child: Child
    seconds: float
    afresh: bool = False
    report: Callable[[float, str], None] = lambda _seconds, _text: None
    validation_seconds: float = 60.0
    trials: Trials = field(init=False)
    found: list[Record] = field(init=False, default_factory=list)
    unstored: list[Record] = field(init=False, default_factory=list)
    left_out: list[Task] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.identity = identify(self.device)
        self.trials = Trials(self.identity, resume=not self.afresh)
        self.begin = time.monotonic()
        self.rng = random.Random(0)
        self._rejections: dict[Choice, str] = {}
        self._finals_seconds = 0.0  # the longest finals of a task so far

    def run(self, tasks: Sequence[Task]) -> list[Record]:
        """Tune task by task. Store each record as soon as it is found, and return them all.

        When the time is up, the current trial and the finals of its task are the last to run. Tasks
        that were not reached go to `left_out`.

        Raises
        ------
        KeyboardInterrupt
            After the records found so far are stored.
        """
        left = list(tasks)
        while left:
            is_first = len(left) == len(tasks)
            if self.time_left() <= 0 and not is_first:
                self.left_out += left
                break
            share = left[0].weight / sum(task.weight for task in left)
            task, left = left[0], left[1:]
            seconds = max(0.0, (self.seconds - self.spent()) * share)
            tuning = Tuning(self, task, seconds, is_first)
            interrupted = False
            try:
                tuning.search()
            except KeyboardInterrupt:
                interrupted = True
                self.child.kill()  # it is still busy with the last request
            begin = self.spent()
            hasty = interrupted or begin >= self.seconds
            if record := tuning.winner(HASTY_ROUNDS if hasty else FINAL_ROUNDS):
                self._keep(record)
            elif tuning.is_cut:
                self.left_out.append(task)
            self._finals_seconds = max(self._finals_seconds, self.spent() - begin)
            if interrupted:
                raise KeyboardInterrupt
        return self.found

    def time_left(self) -> float:
        """Return the seconds until the finals of the current task must start; 0 or less if late."""
        return self.seconds - self.spent() - self._finals_seconds

    def spent(self) -> float:
        """Return the seconds since the session began."""
        return time.monotonic() - self.begin

    def say(self, text: str) -> None:
        """Report the progress."""
        self.report(self.spent(), text)

    def rejection(self, choice: Choice) -> str:
        """Return why a choice is rejected, "" if it is not. Each choice is checked once."""
        if choice not in self._rejections:
            known = self.trials.rejection(choice)
            self._rejections[choice] = self._validated(choice) if known is None else known
            if self._rejections[choice].startswith("does not run"):
                self.child.close_process()  # a failed launch may leave nothing else working
        return self._rejections[choice]

    def _validated(self, choice: Choice) -> str:
        """Let the child build and check a choice; return why it is rejected, "" if it is not."""
        asked, seconds = choice_as_dict(choice), self.validation_seconds
        try:
            if not self.child.alive:
                self.child.ask("ready", timeout_s=START_SECONDS)
            return str(self.child.ask("validate", timeout_s=seconds, choice=asked))
        except RequestError as error:
            return f"does not run: {error}"
        except (ChildDiedError, OSError) as error:
            return str(error)

    def race(self, choices: Sequence[Choice], shape: Shape, rounds: int) -> list[list[float]]:
        """Time choices alternately on a shape; return the seconds of each, a number per round.

        Raises
        ------
        RequestError, ChildDiedError
            If a choice fails.
        """
        asked = [choice_as_dict(choice) for choice in choices]
        try:
            with _alone():
                answer = self.child.ask(
                    "race", timeout_s=self.validation_seconds + 60.0,
                    choices=asked, shape=list(shape), rounds=rounds, turn_s=TURN_SECONDS,
                )  # fmt: skip
        except RequestError:
            self.child.close_process()  # as above
            raise
        return [[float(seconds) for seconds in each] for each in answer]

    def _keep(self, record: Record) -> None:
        """Store a record; if that fails, add it to `unstored`."""
        self.found.append(record)
        about = about_family(where(self.device), record.family, repr(record.choice))
        store_verdict(about, Verdict())  # validated by the search
        try:
            tuned.store(self.identity, record)
        except OSError as error:
            what = "the record of {} for {} is not stored".format(*record.key)
            warn_unkept(tuned.user_file(self.identity), error, what)
            self.unstored.append(record)


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other tuners of this user from timing at the same time, if possible."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(locked(cache_folder() / "tuning" / "timing", LOCK_SECONDS))
        yield
