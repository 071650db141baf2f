"""The contenders' turns, case by case: their processes, their times, and who is skipped.

``python -m clgemm.bench.rounds NAME DEVICE`` is the process of one contender.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from clgemm.bench.cases import Case, judge, reference
from clgemm.bench.contenders import HOST, PEERS, available, is_ours, prepare
from clgemm.core.child import Child, ChildDiedError, RequestError, error_text, serve
from clgemm.core.settings import chosen_precision
from clgemm.terminal import json_number

SKIPPED = "skipped: "  # the beginning of `failure` for a case that was skipped


class Spread(NamedTuple):
    """The median, the least and the greatest of several figures."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the range of one figure or more."""
    return Spread(median(values), min(values), max(values))


@dataclass
class Outcome:
    """The times and the errors of one contender for one case.

    Attributes
    ----------
    contender : str
        ``"clgemm"``, ``"NumPy"`` and so on.
    rounds_s : list of float
        Seconds per call: the median of each turn.
    error : float
        ||C - C_ref|| / ||C_ref|| in Frobenius norms, where C_ref is computed in float64.
    worst : float
        The largest |C - C_ref| of an element, divided by the bound on its rounding error.
    failure : str
        Why there is no figure; empty if there is one.
    """

    contender: str
    case: Case
    rounds_s: list[float] = field(default_factory=list)
    error: float = float("nan")
    worst: float = float("nan")
    failure: str = ""

    @property
    def ok(self) -> bool:
        """Whether the product was timed and is right."""
        # For a NaN this is False, as it should be; "not worst > 1" would be True.
        return not self.failure and bool(self.rounds_s) and self.worst <= 1

    @property
    def trouble(self) -> str:
        """Why no speed is reported; empty if one is."""
        if self.failure or self.ok:
            return self.failure
        if not self.rounds_s:
            return "was not timed"
        return f"WRONG: an element's error is {self.worst:.3g} times the bound of rounding errors"

    @property
    def skipped(self) -> bool:
        """Whether it was skipped, for lack of time or because the library has no such product."""
        return self.failure.startswith(SKIPPED)

    @property
    def verdict(self) -> str:
        """One word for a table's cell; empty if there is a figure."""
        if self.ok:
            return ""
        if self.skipped:
            return "skipped"
        return "failed" if self.failure or not self.rounds_s else "WRONG"

    @property
    def time_s(self) -> Spread:
        """The median and the range of the rounds' seconds per call."""
        return spread(self.rounds_s)

    @property
    def gflops(self) -> float:
        """Billions of operations per second at the median; 0 unless the product is right."""
        return self.case.flops / self.time_s.median / 1e9 if self.ok else 0.0

    def ratio_to(self, peer: Outcome) -> Spread | None:
        """Return how many times faster this was than a peer, by round; None unless both are right.

        The two times of a round are measured one right after the other. If the machine is slow in a
        round, both are slow.
        """
        if not (self.ok and peer.ok):
            return None
        return spread([b / a for a, b in zip(self.rounds_s, peer.rounds_s, strict=True)])

    def as_dict(self, peak_gflops: float, ours: Outcome) -> dict[str, Any]:
        """Return all figures, for JSON, with the ratio to clgemm's outcome."""
        timed = {"time_s": self.time_s._asdict()} if self.ok else {}
        ratio = None if self is ours else ours.ratio_to(self)
        return {
            "contender": self.contender,
            "correct": self.ok,
            **timed,
            "rounds_s": self.rounds_s,
            "gflops": self.gflops or None,
            "of_peak": self.gflops / peak_gflops if self.ok and peak_gflops else None,
            "error": json_number(self.error),
            "worst": json_number(self.worst),
            "failure": self.trouble,
            "clgemm_is_faster_by": ratio._asdict() if ratio else None,
        }


THREAD_VARIABLES = (
    *(f"{library}_NUM_THREADS" for library in ("OPENBLAS", "OMP", "MKL", "BLIS")),
    "VECLIB_MAXIMUM_THREADS",
    "POCL_MAX_PTHREAD_COUNT",
    "POCL_CPU_MAX_CU_COUNT",  # PoCL from version 4 on
    "DPCPP_CPU_NUM_CUS",  # Intel's runtime
)

# How long the idle threads of a peer spin after a call. They would slow the next contender, which
# another process runs on the same cores.
SPIN_TIMES = {
    "KMP_BLOCKTIME": "20",  # ms: MKL's OpenMP, in place of 200
    "OPENBLAS_THREAD_TIMEOUT": "24",  # 2^24 cycles, 5 to 8 ms, in place of 2^28, 105 to 135 ms
}


def environment(threads: int) -> dict[str, str]:
    """Return the environment of workers: this many threads."""
    return {
        **SPIN_TIMES,
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "CUPY_TF32": "0",
    }


def worker_of(contender: str, identified: list[str], variables: dict[str, str]) -> Child:
    """Return the process of a contender, which the first request starts.

    Parameters
    ----------
    identified : list of str
        The device, as `clgemm.hardware.device.identity` returns it; several, one after the other.
    variables : dict of str to str
        The environment of all contenders.
    """
    # Only `ROUTED` chooses the side, as the user has set it.
    side = {"CLGEMM_THRESHOLD": "0"} if contender == "clgemm" else {}
    return Child(contender, "clgemm.bench.rounds", [contender, *identified], variables | side)


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
        Seconds between two turns. The threads of a host's BLAS spin after a call, and a product on
        the same cores would be slower meanwhile.
    """

    rounds: int = 5
    turn_s: float = 0.1
    budget_s: float = 10.0
    pause_s: float = 0.3


class Tournament:
    """A comparison of clgemm with its peers, one case at a time.

    Parameters
    ----------
    workers : dict of str to Child
        ``"clgemm"``, ``"NumPy"``, which also computes the references, and other peers.
    contenders : dict of str to list of str
        For `HOST` and `DEVICE`, or one of them, who competes.
    folder : Path
        The folder for references.
    """

    def __init__(
        self,
        workers: Mapping[str, Child],
        contenders: Mapping[str, Sequence[str]],
        settings: Settings,
        folder: Path,
    ) -> None:
        self.workers = workers
        self.settings = settings
        self.contenders = contenders
        self._file = folder / "reference"
        # The fewest seconds per operation so far.
        self._pace: dict[tuple[str, str], float] = {}

    def contest(self, case: Case) -> dict[str, list[Outcome]]:
        """Return the outcomes of a case for host and for device operands.

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
        paces = {outcome.contender: LEAST_CALLS * self._pace.get((outcome.contender, mode), 0.0)}
        if outcome.contender == "clgemm":
            paces["the float64 reference"] = REFERENCE_CALLS * self._pace.get(("NumPy", HOST), 0.0)
        budget_s = self.settings.budget_s
        for what, pace in paces.items():
            if (expected_s := outcome.case.flops * pace) > budget_s:
                than = f"more than the budget of {budget_s:g} s"
                return f"{SKIPPED}{what} would take {expected_s:.0f} s, {than}"
        return ""

    def _reference(self, case: Case) -> str:
        """Make NumPy's worker write the reference, and return its failure, or ""."""
        try:
            self.workers["NumPy"].ask("reference", case=case.as_dict(), file=str(self._file))
        except (RequestError, ChildDiedError) as error:
            return f"no float64 reference: {error}"
        return ""

    def _timed(self, outcomes: list[Outcome], mode: str) -> None:
        """Time the contenders in turns, and then check their results."""
        for outcome in outcomes:
            self._ask(outcome, "prepare", case=outcome.case.as_dict(), mode=mode)
        begin = time.monotonic()
        for number in range(self.settings.rounds):
            racing = [outcome for outcome in outcomes if not outcome.failure]
            if number >= 3 and time.monotonic() - begin > self.settings.budget_s * len(racing):
                break
            for outcome in racing:
                if number == 0 or len(racing) > 1:  # another worker has just computed
                    time.sleep(self.settings.pause_s)
                if turn_s := self._ask(outcome, "turn", seconds=self.settings.turn_s):
                    outcome.rounds_s.append(turn_s)
        for outcome in outcomes:
            if judged := self._ask(outcome, "judge", file=str(self._file)):
                outcome.error, outcome.worst = judged
            if outcome.rounds_s:
                pace = outcome.time_s.median / outcome.case.flops
                key = outcome.contender, mode
                self._pace[key] = min(pace, self._pace.get(key, pace))
            self._release(outcome)

    def _release(self, outcome: Outcome) -> None:
        """Make the worker release the operands, also after a failure."""
        worker = self.workers[outcome.contender]
        if worker.alive:
            with contextlib.suppress(RequestError, ChildDiedError):
                worker.ask("release")

    def _ask(self, outcome: Outcome, request: str, **keywords: Any) -> Any:
        """Return a worker's answer; None after a failure, which the outcome has then."""
        try:
            worker = self.workers[outcome.contender]
            return None if outcome.failure else worker.ask(request, **keywords)
        except (RequestError, ChildDiedError) as error:
            outcome.failure = str(error)
            return None


WARM_S = 1.0  # for longer calls, the first one counts too, though caches may be cold


class Server:
    """The requests to one contender, in its process.

    Each method is a request. JSON carries its keyword arguments and its result.
    """

    def __init__(self, contender: str, identified: list[str]) -> None:
        self.contender = contender
        self.identified = identified
        self._device: Any = None
        self._case: Any = None
        self._call: Any = None

    @property
    def device(self) -> Any:
        """The OpenCL device; None for a host's BLAS, beside which no runtime's threads must be."""
        if self._device is None and PEERS.get(self.contender) != HOST:
            import clgemm
            from clgemm.hardware.device import find

            each = [self.identified[i : i + 3] for i in range(0, len(self.identified), 3)]
            devices = [find(one) for one in each]
            clgemm.set_device(*devices)
            self._device = devices[0]  # the others only share products of host arrays
        return self._device

    def about(self) -> dict[str, Any]:
        """Return versions and threads; raise if the contender cannot compete on this device."""
        about: dict[str, Any] = {"version": available(self.contender, self.device)}
        if self.contender == "NumPy":
            return about | _host_blas()
        if self.device is None:
            return about
        return about | {"compute_units": self.device.limits.compute_units}

    def prepare(self, case: dict[str, Any], mode: str) -> float:
        """Make the operands of a product, and return the seconds of a first call."""
        self.release()
        self._case = Case.from_dict(case)
        self._call = prepare(self.contender, self._case, mode, self.device)
        return _seconds(self._call.once)

    def turn(self, seconds: float) -> float:
        """Repeat the call for `seconds`, at least once, and return the median time of a call."""
        once = self._call.once
        first = _seconds(once)
        times = [first] if first > WARM_S else []
        spent = 0.0
        while spent < seconds or not times:
            if times and spent + times[-1] > 2 * seconds:
                break
            times.append(_seconds(once))
            spent += times[-1]
        return median(times)

    def reference(self, case: dict[str, Any], file: str) -> None:
        """Write the product of a case in float64 to a file."""
        self.release()
        np.save(f"{file}.npy", reference(Case.from_dict(case)))

    def judge(self, file: str) -> list[float]:
        """Compare the result of the timed calls with that of `reference`."""
        expected = np.load(f"{file}.npy", mmap_mode="r")
        return [*map(float, judge(self._case, self._call.fetch(), expected, self._precision()))]

    def _precision(self) -> str:
        """Return the mode whose promise the results keep; elsewhere every mode is "strict"."""
        from clgemm.hardware.choice import get_devices

        if is_ours(self.contender) and any(device.traits.is_nvidia for device in get_devices()):
            return chosen_precision()
        return "strict"

    def release(self) -> None:
        """Release the operands."""
        self._call = self._case = None

    def roofs(self) -> dict[str, Any]:
        """Measure the device's arithmetic peak and memory bandwidth."""
        from clgemm.bench.peak import measure

        return measure(self.device)


def _seconds(once: Callable[[], object]) -> float:
    begin = time.perf_counter_ns()
    once()
    return (time.perf_counter_ns() - begin) / 1e9


def _host_blas() -> dict[str, Any]:
    """Return the BLAS that NumPy was built with, its threads and its kernels."""
    built: Any = np.show_config("dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    found: dict[str, Any] = {"blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}"}
    try:
        pools = importlib.import_module("threadpoolctl").threadpool_info()
    except ImportError:
        return found
    for pool in pools:
        if pool["user_api"] == "blas":
            found |= {"threads": pool["num_threads"], "kernels": pool.get("architecture", "")}
    return found


def _message(error: Exception) -> str:
    """Return an error's message, marked as skipped if the library has no such product."""
    if type(error) is NotImplementedError:
        return f"{SKIPPED}{error}"
    return error_text(error)


def main(arguments: list[str]) -> int:
    """Serve until the input ends."""
    serve(Server(arguments[0], arguments[1:]), _message)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
