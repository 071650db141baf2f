"""The contenders' turns, case by case, and the rules for skipping slow ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, PEERS, ROUTED
from clgemm.bench.figures import SKIPPED, Outcome
from clgemm.bench.pipe import RequestError, Worker, WorkerDiedError

__all__ = ["Settings", "Tournament"]

# The threads of a host's BLAS spin after a call, and a product on the same cores would be slower
# meanwhile.
PAUSE_S = 0.3
LEAST_CALLS = 4  # the fewest calls of a contender: the first one and three rounds
# NumPy's product in float64, including the conversion, takes as long as this many in float32.
REFERENCE_CALLS = 3


@dataclass(frozen=True)
class Settings:
    """The number and the length of turns.

    Attributes
    ----------
    rounds : int
        Turns of each contender in each case.
    turn_s : float
        Seconds for which a turn repeats the call.
    budget_s : float
        Seconds that a contender may take for a case. Rounds end when it is reached. A contender
        that is expected to need more for the fewest calls is skipped.
    pause_s : float, optional
        Seconds between two turns; `PAUSE_S` if left out.
    """

    rounds: int = 5
    turn_s: float = 0.1
    budget_s: float = 10.0
    pause_s: float | None = None


class Tournament:
    """A comparison of clgemm with its peers, one case at a time.

    Parameters
    ----------
    workers : dict of str to Worker
        ``"clgemm"``, ``"NumPy"``, which also computes the references, and other peers.
    peers : collection of str
        The names of the peers.
    folder : Path
        The folder for references.
    """

    def __init__(
        self,
        workers: Mapping[str, Worker],
        peers: Iterable[str],
        settings: Settings,
        folder: Path,
    ) -> None:
        self.workers = workers
        self.settings = settings
        self.contenders = {
            mode: ["clgemm", *(peer for peer in peers if PEERS[peer] == mode)]
            for mode in (HOST, DEVICE)
        }
        self._file = folder / "reference.npy"
        # The fewest seconds per operation so far.
        self._pace: dict[tuple[str, str], float] = {}

    def contest(self, case: Case) -> dict[str, list[Outcome]]:
        """Return the outcomes of a case for host and for device operands, clgemm's first.

        A failure is an outcome too, and raises nothing.
        """
        wanted: dict[str, list[Outcome]] = {
            mode: [Outcome(name, case) for name in names] for mode, names in self.contenders.items()
        }
        for mode, outcomes in wanted.items():
            for outcome in outcomes:
                outcome.failure = self._too_long(outcome, mode)
        if all(outcomes[0].failure for outcomes in wanted.values()):
            return wanted
        reference = self._reference(case)
        for mode, outcomes in wanted.items():
            for outcome in outcomes:
                outcome.failure = outcome.failure or reference
            self._timed(outcomes, mode)
        return wanted

    def _too_long(self, outcome: Outcome, mode: str) -> str:
        """Return why a case would take a contender too long, or ""."""
        flops = outcome.case.flops
        expected_s = LEAST_CALLS * flops * self._pace.get((outcome.contender, mode), 0.0)
        if expected_s > self.settings.budget_s:
            return _left_out(outcome.contender, expected_s, self.settings.budget_s)
        if outcome.contender == "clgemm" and (pace := self._pace.get(("NumPy", HOST))):
            expected_s = REFERENCE_CALLS * flops * pace
            if expected_s > self.settings.budget_s:
                return _left_out("the float64 reference", expected_s, self.settings.budget_s)
        return ""

    def _reference(self, case: Case) -> str:
        """Make NumPy's worker write the reference, and return its failure, or ""."""
        try:
            self.workers["NumPy"].ask("reference", case=case.as_dict(), file=str(self._file))
        except (RequestError, WorkerDiedError) as error:
            return f"no float64 reference: {error}"
        return ""

    def _timed(self, outcomes: list[Outcome], mode: str) -> None:
        """Time the contenders in turns, and then check their results."""

        def first(outcome: Outcome) -> None:
            case = outcome.case.as_dict()
            self.workers[outcome.contender].ask("prepare", case=case, mode=mode)

        for outcome in outcomes:
            self._guarded(outcome, first)
        begin, pause_s = time.monotonic(), self.settings.pause_s
        for number in range(self.settings.rounds):
            racing = [outcome for outcome in outcomes if not outcome.failure]
            if number >= 3 and time.monotonic() - begin > self.settings.budget_s * len(racing):
                break
            for outcome in racing:
                if number == 0 or len(racing) > 1:  # another worker has just computed
                    time.sleep(PAUSE_S if pause_s is None else pause_s)
                self._guarded(outcome, self._turn)
        for outcome in outcomes:
            self._guarded(outcome, self._judged)
            if outcome.rounds_s:
                pace = outcome.time_s.median / outcome.case.flops
                key = outcome.contender, mode
                self._pace[key] = min(pace, self._pace.get(key, pace))
            self._release(outcome)

    def _turn(self, outcome: Outcome) -> None:
        turn_s = self.workers[outcome.contender].ask("turn", seconds=self.settings.turn_s)
        outcome.rounds_s.append(turn_s)

    def _judged(self, outcome: Outcome) -> None:
        worker = self.workers[outcome.contender]
        outcome.error, outcome.worst = worker.ask("judge", file=str(self._file))
        if outcome.contender == ROUTED:
            outcome.side = worker.ask("side")

    def _release(self, outcome: Outcome) -> None:
        """Make the worker release the operands, also after a failure."""
        worker = self.workers[outcome.contender]
        if worker.alive:
            with contextlib.suppress(RequestError, WorkerDiedError):
                worker.ask("release")

    @staticmethod
    def _guarded(outcome: Outcome, step: Callable[[Outcome], None]) -> None:
        """Take a step unless the outcome is a failure, and record a failure of the step."""
        if outcome.failure:
            return
        try:
            step(outcome)
        except (RequestError, WorkerDiedError) as error:
            outcome.failure = str(error)


def _left_out(what: str, expected_s: float, budget_s: float) -> str:
    return f"{SKIPPED}{what} would take {expected_s:.0f} s, more than the budget of {budget_s:g} s"
