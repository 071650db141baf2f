"""Invented results of the benchmark, for the tests of its tables and pictures."""

from __future__ import annotations

from clgemm.bench import report
from clgemm.bench.cases import Case
from clgemm.bench.rounds import Outcome

CUBE = Case("square", 8, 8, 8)


def outcome(name: str = "clgemm", rounds_s: tuple[float, ...] = (1.0,), **values) -> Outcome:
    """Return a right outcome, with some of its values replaced."""
    return Outcome(name, CUBE, list(rounds_s), **{"error": 1e-7, "worst": 0.1} | values)


def fake_report(results) -> report.Report:
    """Return a report of invented results."""
    device = {"name": "D", "kind": "CPU", "platform": "P", "driver": "1", "compute_units": 2}
    machine = {
        "device": device,
        "threads": 2,
        "peers": {"NumPy": "2"},
        "clgemm": "0",
        "python": "3",
    }
    roofs = {"gflops": 1e-6, "bandwidth_gbps": 1e-6, "failures": []}
    return report.Report({**machine, "date": "2026-01-01T00:00:00"}, roofs, results)
