"""A tuning session: one kernel family and shape class after another."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from clgemm.core.cache import cache_folder, locked, warn_unkept
from clgemm.core.child import Child, ChildDiedError, RequestError
from clgemm.core.problem import Problem
from clgemm.core.shapes import SHAPE_CLASSES, Shape, shape_class
from clgemm.hardware.device import Device
from clgemm.hardware.identity import identify, where
from clgemm.kernels.common.family import Choice
from clgemm.planning import planner
from clgemm.records import lookup
from clgemm.records.record import Record, choice_as_dict
from clgemm.records.verdicts import Verdict, about_family
from clgemm.records.verdicts import store as store_verdict
from clgemm.tuning.task import Task, Tuning
from clgemm.tuning.trials import Trials

__all__ = ["Session", "Task", "tasks_for"]

log = logging.getLogger(__name__)

TURN_SECONDS = 0.02
FINAL_ROUNDS, HASTY_ROUNDS = 7, 2
LOCK_SECONDS = 300  # the longest wait for another tuner that is timing
START_SECONDS = 120.0  # the time limit for the start of the child process
FIRST_WEIGHT, WEIGHTS = 6.0, {"large": 3.0, "medium": 3.0}  # shares of the time


def tasks_for(device: Device, shapes: Iterable[Shape] | None = None) -> list[Task]:
    """Return the tuning tasks of a device: every family and class, or those of some shapes.

    The first task gets most of the time: the others of its family start from its result. Large
    products take longer, so their classes get more time than the rest.
    """
    # On many compute units, the best tiles for large products are the hardest to find.
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
            lookup.store(self.identity, record)
        except OSError as error:
            what = "the record of {} for {} is not stored".format(*record.key)
            warn_unkept(lookup.user_file(self.identity), error, what)
            self.unstored.append(record)


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other tuners of this user from timing at the same time, if possible."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(locked(cache_folder() / "tuning" / "timing", LOCK_SECONDS))
        yield
