"""The benchmark's tables and its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.rounds import Outcome, Spread
from clgemm.terminal import Side, figure, print_table

TITLES = {
    HOST: "End to end from NumPy arrays",
    DEVICE: "Operands on the device, from the call to the end of the kernel",
}
SCHEMA = 2  # the JSON's version; increased when a name in it changes its meaning


@dataclass
class Report:
    """All measurements of a run.

    Attributes
    ----------
    machine : dict
        Versions, device, threads and peers, from `clgemm.bench.command`.
    roofs : dict
        The result of `clgemm.bench.peak.measure`, or ``{"failures": [...]}`` if that failed.
    results : list of (Case, dict of str to list of Outcome)
        As `clgemm.bench.rounds.Tournament.contest` returns them.
    dtypes : list of dict
        Products of other dtypes than float32, as `clgemm.bench.other_products.timed` returns them.
    notes : list of str
        What was skipped and why.
    """

    machine: dict[str, Any]
    roofs: dict[str, Any] = field(default_factory=dict)
    results: list[tuple[Case, dict[str, list[Outcome]]]] = field(default_factory=list)
    dtypes: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def peak_gflops(self) -> float:
        """The device's measured peak; 0 if there is none."""
        return float(self.roofs.get("gflops", 0.0))

    @property
    def bandwidth_gbps(self) -> float:
        """The device's measured memory bandwidth; 0 if there is none."""
        return float(self.roofs.get("bandwidth_gbps", 0.0))

    @property
    def ok(self) -> bool:
        """Whether each of clgemm's products is right or was skipped."""
        ours = [outcomes[0] for _, modes in self.results for outcomes in modes.values()]
        return all(outcome.ok or outcome.skipped for outcome in ours) and all(
            row["is_right"] for row in self.dtypes
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all measurements, for JSON."""
        return {
            "schema": SCHEMA,
            **self.machine,
            "roofs": self.roofs,
            "cases": [self._case_as_dict(case, modes) for case, modes in self.results],
            "dtypes": self.dtypes,
            "notes": self.notes,
        }

    def _case_as_dict(self, case: Case, modes: dict[str, list[Outcome]]) -> dict[str, Any]:
        return {
            "label": case.label,
            **case.as_dict(),
            "flops": case.flops,
            "size_bytes": case.size_bytes,
            **{
                mode: [self._outcome_as_dict(outcome, outcomes[0]) for outcome in outcomes]
                for mode, outcomes in modes.items()
            },
        }

    def _outcome_as_dict(self, outcome: Outcome, ours: Outcome) -> dict[str, Any]:
        ratio = None if outcome is ours else ours.ratio_to(outcome)
        return {
            **outcome.as_dict(self.peak_gflops),
            "clgemm_is_faster_by": ratio._asdict() if ratio else None,
        }


def as_json(report: Report) -> str:
    """Return all measurements as JSON."""
    return json.dumps(report.as_dict(), indent=2, allow_nan=False)


def print_report(report: Report) -> None:
    """Print the machine, and a table for host and one for device operands."""
    print(*_head(report), sep="\n", end="\n\n")
    for mode, title in TITLES.items():
        rows = [(case, modes[mode]) for case, modes in report.results if mode in modes]
        if rows:
            _print_mode(report, title, rows)
    print(*report.notes, *_verdict(report), sep="\n")


def _verdict(report: Report) -> Iterator[str]:
    """Yield what the run says about NumPy arrays, in short."""
    outcomes = [modes.get(HOST, []) for _, modes in report.results]
    pairs = [(each[0], peer) for each in outcomes for peer in each if peer.contender == "NumPy"]
    ratios = [ratio.median for ours, numpy in pairs if (ratio := ours.ratio_to(numpy)) is not None]
    found = []
    if ratios:
        mean, low, high = geometric_mean(ratios), min(ratios), max(ratios)
        found.append(f"float32 {mean:.2f} on average ({low:.2f} to {high:.2f})")
    for row in report.dtypes:
        times = figure(row["numpy_ms"] / row["ms"])
        found.append(f"{row['dtype']} {times} at {row['n']} x {row['n']}")
    if found:
        yield f"In short, NumPy's time over clgemm's for NumPy arrays: {'; '.join(found)}."
        yield "matmul and accelerated NumPy take the faster side of each product."


def machine_lines(machine: dict[str, Any]) -> Iterator[str]:
    """Yield what `Report.machine` says of the device, the peers and the system."""
    device, threads = machine["device"], machine["threads"]
    yield f"{device['name']} ({device['kind']}), {device['platform']}, driver {device['driver']}"
    yield f"clgemm {machine['clgemm']}, {device['compute_units']} compute units; " + "; ".join(
        f"{name} {about}" for name, about in machine["peers"].items()
    )
    yield f"{machine['date']}, Python {machine['python']}, host BLAS with {threads} threads"


def _head(report: Report) -> Iterator[str]:
    yield from machine_lines(report.machine)
    if report.peak_gflops:
        yield (
            f"measured peak {figure(report.peak_gflops)} GFLOP/s, "
            f"memory read at {figure(report.bandwidth_gbps)} GB/s"
        )
    yield "ratio: how many times faster clgemm was; median and range of the rounds' ratios"
    yield "error: Frobenius norm of C - C_ref, divided by that of C_ref, computed in float64"


def _print_mode(report: Report, title: str, rows: list[tuple[Case, list[Outcome]]]) -> None:
    peers = [outcome.contender for outcome in rows[0][1][1:]]
    headings = ["m x n x k", "ms", "spread", "GFLOP/s", "of peak", "error"]
    for name in peers:
        headings += [name, "ratio", "range", "error"]
    table, group = [], ""
    for case, outcomes in rows:
        ours = outcomes[0]
        if case.group != group:
            group = case.group
            table.append([f"{group}", *[""] * (len(headings) - 1)])
        cells = [f"  {case.label}", *_own_cells(ours, report.peak_gflops)]
        for peer in outcomes[1:]:
            cells += _peer_cells(ours, peer)
        table.append(cells)
    print_rows(title, headings, table)
    every = [outcome for _, outcomes in rows for outcome in outcomes]
    for trouble, labels in troubles(every).items():
        print(f"  {'; '.join(labels)}: {trouble}")
    print()


def troubles(outcomes: Iterable[Outcome]) -> dict[str, list[str]]:
    """Return what has no figure: the cases' labels by contender and reason."""
    found: dict[str, list[str]] = {}
    for each in outcomes:
        if each.trouble:
            found.setdefault(f"{each.contender}: {each.trouble}", []).append(each.case.label)
    return found


def _own_cells(ours: Outcome, peak_gflops: float) -> list[str]:
    if not ours.ok:
        return ["", "", ours.verdict, "", ""]
    time_s = ours.time_s
    return [
        f"{time_s.median * 1e3:.3g}" if time_s.median < 1 else f"{time_s.median * 1e3:,.0f}",
        f"{time_s.low / time_s.median - 1:+.0%} {time_s.high / time_s.median - 1:+.0%}",
        figure(ours.gflops),
        f"{ours.gflops / peak_gflops:.0%}" if peak_gflops else "",
        f"{ours.error:.1e}",
    ]


def _peer_cells(ours: Outcome, peer: Outcome) -> list[str]:
    if not peer.ok:
        return [peer.verdict, "", "", ""]
    ratio: Spread | None = ours.ratio_to(peer)
    return [
        figure(peer.gflops),
        f"{ratio.median:.2f}" if ratio else "",
        f"{ratio.low:.2f}-{ratio.high:.2f}" if ratio else "",
        f"{peer.error:.1e}",
    ]


def print_rows(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
) -> None:
    """Print a table and an empty line: text in the first columns, and figures in the others.

    Parameters
    ----------
    left : int, optional
        The number of the first columns.
    """
    sides: list[Side] = ["left" if place < left else "right" for place in range(len(headings))]
    print_table(title, headings, sides, rows)
    print()
