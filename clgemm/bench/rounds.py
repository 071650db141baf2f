"""The contenders' turns, case by case: who is timed when, who is left out and why."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, PEERS
from clgemm.bench.figures import SKIPPED, Outcome
from clgemm.bench.pipe import RequestError, Worker, WorkerDiedError

__all__ = ["Settings", "Tournament"]

# OpenBLAS's workers spin after a call: 60 ms later a 512 x 512 product on the same cores still took
# half as long again.
PAUSE_S = 0.3
LEAST_CALLS = 4  # that a contender makes at the least: the first, and three rounds'
REFERENCE_CALLS = 3  # of NumPy's in float32: what its product in float64 takes, converting included


@dataclass(frozen=True)
class Settings:
    """How long it may take.

    Attributes
    ----------
    rounds : int
        Turns of each contender in each case.
    turn_s : float
        Seconds that a turn repeats the call for.
    budget_s : float
        Seconds that a contender may take over a case; if its least is expected to be more, it is
        left out, and rounds end when it is reached.
    """

    rounds: int = 5
    turn_s: float = 0.1
    budget_s: float = 10.0


class Tournament:
    """Every case between clgemm and its peers.

    Parameters
    ----------
    workers : dict of str to Worker
        ``"clgemm"``, ``"NumPy"``, which also computes the references, and other peers.
    peers : collection of str
        Who is compared with.
    folder : Path
        For references.
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
        # Seconds per operation of the most laborious case so far.
        self._pace: dict[tuple[str, str], tuple[int, float]] = {}

    def contest(self, case: Case) -> dict[str, list[Outcome]]:
        """Return what each contender did, by where the operands come from: clgemm first.

        Failures are outcomes: nothing is raised.
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
        """Return why a case would take a contender too long, if it would."""
        flops = outcome.case.flops
        known = self._pace.get((outcome.contender, mode))
        expected_s = LEAST_CALLS * flops * known[1] if known else 0.0
        if expected_s > self.settings.budget_s:
            return _left_out(outcome.contender, expected_s, self.settings.budget_s)
        if outcome.contender == "clgemm" and (known := self._pace.get(("NumPy", HOST))):
            expected_s = REFERENCE_CALLS * flops * known[1]
            if expected_s > self.settings.budget_s:
                return _left_out("the float64 reference", expected_s, self.settings.budget_s)
        return ""

    def _reference(self, case: Case) -> str:
        """Have the reference computed; return why there is none, if so."""
        try:
            self.workers["NumPy"].ask("reference", case=case.as_dict(), file=str(self._file))
        except (RequestError, WorkerDiedError) as error:
            return f"no float64 reference: {error}"
        return ""

    def _timed(self, outcomes: list[Outcome], mode: str) -> None:
        """Let the contenders take turns, then judge what they left behind."""

        def first(outcome: Outcome) -> None:
            case = outcome.case.as_dict()
            self.workers[outcome.contender].ask("prepare", case=case, mode=mode)

        for outcome in outcomes:
            self._guarded(outcome, first)
        begin = time.monotonic()
        for number in range(self.settings.rounds):
            racing = [outcome for outcome in outcomes if not outcome.failure]
            if number >= 3 and time.monotonic() - begin > self.settings.budget_s * len(racing):
                break
            for outcome in racing:
                if number == 0 or len(racing) > 1:  # another worker was busy just now
                    time.sleep(PAUSE_S)
                self._guarded(outcome, self._turn)
        for outcome in outcomes:
            self._guarded(outcome, self._judged)
            if outcome.rounds_s:
                pace = outcome.case.flops, outcome.time_s.median / outcome.case.flops
                key = outcome.contender, mode
                self._pace[key] = max(pace, self._pace.get(key, pace))
            self._release(outcome)

    def _turn(self, outcome: Outcome) -> None:
        turn_s = self.workers[outcome.contender].ask("turn", seconds=self.settings.turn_s)
        outcome.rounds_s.append(turn_s)

    def _judged(self, outcome: Outcome) -> None:
        worker = self.workers[outcome.contender]
        outcome.error, outcome.worst = worker.ask("judge", file=str(self._file))

    def _release(self, outcome: Outcome) -> None:
        """Have the operands let go, after a failure too."""
        worker = self.workers[outcome.contender]
        if worker.alive:
            with contextlib.suppress(RequestError, WorkerDiedError):
                worker.ask("release")

    @staticmethod
    def _guarded(outcome: Outcome, step: Callable[[Outcome], None]) -> None:
        """Take a step unless there is a failure; record one."""
        if outcome.failure:
            return
        try:
            step(outcome)
        except (RequestError, WorkerDiedError) as error:
            outcome.failure = str(error)


def _left_out(what: str, expected_s: float, budget_s: float) -> str:
    return f"{SKIPPED}{what} would take {expected_s:.0f} s, more than the budget of {budget_s:g} s"
