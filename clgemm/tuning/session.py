"""A tuning session: one kernel family and shape class after another."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from clgemm.core.cache import cache_folder, locked, warn_unkept
from clgemm.core.child import Child, RequestError
from clgemm.core.problem import Problem
from clgemm.core.shapes import SHAPE_CLASSES, Shape, shape_class
from clgemm.hardware.device import Device
from clgemm.hardware.identity import identify
from clgemm.kernels.common.choice import Choice
from clgemm.planning import planner
from clgemm.records import lookup
from clgemm.records.record import Record, choice_as_dict
from clgemm.records.verdicts import rejection
from clgemm.tuning.task import Task, Tuning
from clgemm.tuning.trials import Trials

__all__ = ["Session", "Task", "tasks_for"]

log = logging.getLogger(__name__)

TURN_SECONDS = 0.02
FINAL_ROUNDS, HASTY_ROUNDS = 7, 2
LOCK_SECONDS = 300  # for another tuner's turn to end
FIRST_WEIGHT, WEIGHTS = 6.0, {"large": 3.0, "medium": 3.0}  # shares of the time


def tasks_for(device: Device, shapes: Iterable[Shape] | None = None) -> list[Task]:
    """Return what there is to tune on a device: every family and class, or those of some shapes.

    The first gets most of the time: the others of its family begin with what it found. Large
    products take longer, each.
    """
    # Where tiles are shared out among many units, those of large products are hardest to find.
    first = ("medium", "large") if device.kind == "CPU" else ("large", "medium")
    order = (*first, "tall", "wide", "small", "vector", "deep", "batched", "tiny")
    if shapes is None:
        made = [
            Task(family.name, name, family.samples(device.kind).get(name, ()))
            for family in reversed(planner.families(device))
            for name in sorted(SHAPE_CLASSES, key=order.index)
        ]
    else:
        by_class: dict[tuple[str, str], list[Shape]] = {}
        for shape in shapes:
            of = _family(device, shape), shape_class(*shape)
            by_class.setdefault(of, []).append(shape)
        made = [Task(*of, tuple(each)) for of, each in by_class.items()]
    made = [task for task in made if task.shapes]
    return [
        replace(task, weight=FIRST_WEIGHT if number == 0 else WEIGHTS.get(task.shape_class, 1.0))
        for number, task in enumerate(made)
    ]


def _family(device: Device, shape: Shape) -> str:
    """Return the family that makes a product of operands that lie row by row, by OpenCL C alone."""
    return planner.family_for(device, Problem.of(shape, "strict")).name


@dataclass
class Session:
    """One run of the tuner on one device.

    Attributes
    ----------
    child : Child
        Tries candidates out.
    seconds : float
        The time there is for all tasks.
    left_out : list of Task
        What there was no time for: its records are as they were.
    afresh : bool
        Begin with the plainest config instead of what is known to be good, and forget earlier
        trials: what the search is worth by itself.
    report : callable
        Called with seconds since the begin and a line on where it is, again and again.
    gate_seconds : float
        After which a candidate that is being checked is taken to hang.
    """

    device: Device
    child: Child
    seconds: float
    afresh: bool = False
    report: Callable[[float, str], None] = lambda _seconds, _text: None
    gate_seconds: float = 60.0
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
        self._finals_seconds = 0.0  # what those of a task took at most

    def run(self, tasks: Sequence[Task]) -> list[Record]:
        """Tune one task after the other; return the records found, stored as they come.

        When time is over, the present trial and its finals are the last. Tasks that were not
        reached are `left_out`.

        Raises
        ------
        KeyboardInterrupt
            After what was found so far is stored.
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
                self.child.kill()  # it is still busy with what it was asked
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
        """Return the seconds until the finals of a task must begin for the session to end in time.

        0 and below if they should have begun.
        """
        return self.seconds - self.spent() - self._finals_seconds

    def spent(self) -> float:
        """Return the seconds since the session began."""
        return time.monotonic() - self.begin

    def say(self, text: str) -> None:
        """Report where it is."""
        self.report(self.spent(), text)

    def rejection(self, choice: Choice) -> str:
        """Return why a choice must not be timed: checked once; "" if it may."""
        if choice not in self._rejections:
            known = self.trials.rejection(choice)
            self._rejections[choice] = (
                rejection(self.child, choice, self.gate_seconds) if known is None else known
            )
            if self._rejections[choice].startswith("does not run"):
                self.child.close_process()  # a failed launch may leave nothing else working
        return self._rejections[choice]

    def race(self, choices: Sequence[Choice], shape: Shape, rounds: int) -> list[list[float]]:
        """Return the seconds of choices on a shape, timed in turns, a figure a round for each.

        Raises
        ------
        RequestError, ChildDiedError
            If one of them fails.
        """
        asked = [choice_as_dict(choice) for choice in choices]
        try:
            with _alone():
                answer = self.child.ask(
                    "race", timeout_s=self.gate_seconds + 60.0,
                    choices=asked, shape=list(shape), rounds=rounds, turn_s=TURN_SECONDS,
                )  # fmt: skip
        except RequestError:
            self.child.close_process()  # as above
            raise
        return [[float(seconds) for seconds in each] for each in answer]

    def _keep(self, record: Record) -> None:
        """Store a record; if that cannot be, it is among `unstored`."""
        self.found.append(record)
        try:
            lookup.store(self.identity, record)
        except OSError as error:
            what = "the record of {} for {} is not stored".format(*record.key)
            warn_unkept(lookup.user_file(self.identity), error, what)
            self.unstored.append(record)


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other tuners of this user from timing at the same time, as far as that is possible."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(locked(cache_folder() / "tuning" / "timing", LOCK_SECONDS))
        yield
