"""Invented results of the benchmark, for the tests of its tables and pictures."""

from __future__ import annotations

from clgemm.bench import report
from clgemm.bench.cases import Bounds, Case, random_cases
from clgemm.bench.contenders import DEVICE, HOST, ROUTED
from clgemm.bench.rounds import Outcome
from clgemm.bench.survey import SurveyReport

CUBE = Case("square", 8, 8, 8)
MACHINE = {
    "date": "2026-01-01T00:00:00",
    "python": "3",
    "clgemm": "0",
    "device": {"name": "D", "kind": "CPU", "platform": "P", "driver": "1", "compute_units": 2},
    "threads": 2,
    "peers": {"NumPy": "2 (openblas)", "MKL": "3"},
}


def outcome(name: str = "clgemm", rounds_s: tuple[float, ...] = (1.0,), **values) -> Outcome:
    """Return a right outcome, with some of its values replaced."""
    return Outcome(name, CUBE, list(rounds_s), **{"error": 1e-7, "worst": 0.1} | values)


def fake_report(results) -> report.Report:
    """Return a report of invented results."""
    roofs = {"gflops": 1e-6, "bandwidth_gbps": 1e-6, "failures": []}
    return report.Report(MACHINE, roofs, results)


CASES = random_cases(40, 1, Bounds((1, 500), (10**5, 10**8)))
SURVEY = {
    "count": 40,
    "seed": 1,
    "sides": (1, 500),
    "work": (10**5, 10**8),
    "data": "normal",
    "precision": "strict",
}


def right(name: str, case: Case, seconds: float, **values) -> Outcome:
    """Return a right outcome."""
    return Outcome(name, case, [seconds] * 3, **{"error": 1e-7, "worst": 0.1} | values)


def made_up(**bad: dict) -> SurveyReport:
    """Return a report in which NumPy takes 2 s, MKL 0.5 to 2.5 s, and clgemm 1 s.

    Parameters
    ----------
    bad : dict
        The values of the first product's outcomes, by contender.
    """
    report = SurveyReport(MACHINE, survey=SURVEY, notes=["a note"])
    for number, case in enumerate(CASES):
        seconds = {"clgemm": 1.0, "NumPy": 2.0, "MKL": 0.5 + number / 20, ROUTED: 1.5}
        values = bad if number == 0 else {}
        host = [right(name, case, s, **values.get(name, {})) for name, s in seconds.items()]
        device = [right("clgemm", case, 1.0), right("CLBlast", case, 3.0)]
        report.results.append((case, {HOST: host, DEVICE: device}))
    return report
