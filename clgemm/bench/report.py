"""The benchmark's tables, its JSON, and its picture (extra ``bench``: matplotlib)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any, cast

from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.rounds import Outcome, Spread
from clgemm.terminal import COLOURS, PLOT_STYLE, Side, figure, print_table

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
                mode: [each.as_dict(self.peak_gflops, outcomes[0]) for each in outcomes]
                for mode, outcomes in modes.items()
            },
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


MODES = {HOST: "NumPy arrays", DEVICE: "on the device"}
MARKERS = {HOST: "o", DEVICE: "s"}
# CLBlast has OpenCL's blue: hollow markers in its own colour would look like clgemm's.
SERIES_COLOURS = {
    **COLOURS,
    "clgemm": COLOURS["clgemm.sgemm"],
    "CLBlast": COLOURS["OpenCL"],
    "MKL": "#009E73",
    "BLIS": "#56B4E9",
    "oneDNN": "#CC79A7",
    "PyTorch": "#E69F00",
}
PARITY = COLOURS["other"]
NARROW = 8  # a range of ratios from one to so many times as much has linear ticks
BARS = "bars: the range of the rounds"
LABEL_SIZE = 8  # points
LABEL_GAP = 0.026  # between the labels of shapes, as a fraction of the roofline's width


def draw(report: Report, file: Path) -> None:
    """Draw a report's roofline and ratios into an image file."""
    import matplotlib as mpl

    with mpl.rc_context(PLOT_STYLE):
        picture(report).savefig(file, dpi=130)


def picture(report: Report) -> Any:
    """Return the roofline and the ratios, over n for squares and by name for other cases."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PLOT_STYLE):
        whole = Figure(figsize=(14, 12.5), layout="constrained")
        above, below = cast("Any", whole.subfigures(2, 1, height_ratios=(7, 4)))
        left, right = above.subfigures(1, 2, width_ratios=(3, 2))
        _roofline(left.subplots(), report)
        _squares(right.subplots(), report)
        _others(below.subplots(), report)
        device, date = report.machine["device"]["name"], report.machine["date"][:10]
        whole.suptitle(f"{device}, {date}", x=0.01, ha="left", fontweight="bold")
        return whole


def _series(report: Report) -> Iterator[tuple[str, str, list[tuple[Case, float]]]]:
    """Yield mode, contender and GFLOP/s of right products, clgemm's last, to be drawn on top."""
    for mode in (HOST, DEVICE):
        by_name: dict[str, list[tuple[Case, float]]] = {}
        for case, modes in report.results:
            for outcome in reversed(modes.get(mode, [])):
                if outcome.ok:
                    by_name.setdefault(outcome.contender, []).append((case, outcome.gflops))
        for name, found in by_name.items():
            yield mode, name, found


def _roofline(axes: Any, report: Report) -> None:
    """Draw GFLOP/s over operations per byte, with the device's measured limits."""
    highest = report.peak_gflops
    drawn: dict[Case, None] = {}
    for mode, name, found in _series(report):
        highest = max(highest, *(gflops for _, gflops in found))
        drawn |= dict.fromkeys(case for case, _ in found)
        axes.plot(
            [case.intensity for case, _ in found],
            [gflops for _, gflops in found],
            MARKERS[mode],
            color=SERIES_COLOURS[name],
            markerfacecolor=SERIES_COLOURS[name] if mode == HOST else "none",
            markersize=6,
            alpha=0.85,
            label=f"{name}, {MODES[mode]}",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    left, right = axes.get_xlim()
    peak, bandwidth = report.peak_gflops, report.bandwidth_gbps
    if peak and bandwidth:
        ridge = peak / bandwidth
        axes.plot(
            [left, ridge, max(right, 2 * ridge)],
            [left * bandwidth, peak, peak],
            color="black",
            linewidth=1.2,
            zorder=0,
        )
        axes.set_xlim(left, max(right, 2 * ridge))
        _name_peak(axes, peak, ridge)
    axes.set_ylim(top=2 * highest if highest else None)
    axes.set_xlabel("operations per byte of A, B and C")
    axes.set_ylabel("GFLOP/s")
    axes.grid(alpha=0.25)
    roof = f": memory read at {bandwidth:,.0f} GB/s; caches may beat it" if bandwidth else ""
    pad = _name_shapes(axes, drawn)
    axes.set_title(f"Roofline{roof}", loc="left", pad=pad)
    _legend_below(axes)


def _name_peak(axes: Any, peak: float, ridge: float) -> None:
    """Write the peak left of the roof's corner, where no point lies."""
    left, right = axes.get_xlim()
    is_wide = math.log(ridge / left) > 0.35 * math.log(right / left)
    axes.annotate(
        f"measured peak\n{peak:,.0f} GFLOP/s",
        (ridge, peak),
        xytext=(-6 if is_wide else 0, 4),
        textcoords="offset points",
        ha="right" if is_wide else "left",
        va="bottom",
        fontsize=9,
    )


def _name_shapes(axes: Any, cases: Iterable[Case]) -> float:
    """Write the shapes above their points, and return the height of the text in points."""
    labels = labels_of(cases)
    left, right = axes.get_xlim()
    width = math.log(right / left)
    at = [math.log(x / left) / width for x, _ in labels]
    for (x, text), place in zip(labels, spread_out(at, LABEL_GAP), strict=True):
        axes.axvline(x, color=PARITY, linewidth=0.5, alpha=0.35, zorder=0)
        axes.annotate(
            text,
            (x, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(place, 1.04),
            textcoords="axes fraction",
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=LABEL_SIZE,
            arrowprops={"arrowstyle": "-", "color": PARITY, "linewidth": 0.5, "shrinkB": 0},
        )
    return 26 + 0.6 * LABEL_SIZE * max((len(text) for _, text in labels), default=0)


def labels_of(cases: Iterable[Case]) -> list[tuple[float, str]]:
    """Return the positions on the roofline's horizontal axis and their shapes, left to right."""
    layouts: dict[tuple[float, str], int] = {}
    for case in cases:
        name = case.label.removesuffix(f" {case.layout_a}{case.layout_b}")
        layouts[case.intensity, name] = layouts.get((case.intensity, name), 0) + 1
    return sorted(
        (intensity, f"{name}, {count} layouts" if count > 1 else name)
        for (intensity, name), count in layouts.items()
    )


def spread_out(places: Sequence[float], gap: float) -> list[float]:
    """Move places as little as possible so that there is a gap between neighbours.

    Parameters
    ----------
    places : sequence of float
        In ascending order.
    """

    def begin(group: list[float]) -> float:
        return sum(group) / len(group) - gap * (len(group) - 1) / 2

    groups: list[list[float]] = []  # the wanted places of neighbours that push each other
    for place in places:
        groups.append([place])
        while len(groups) > 1 and begin(groups[-2]) + gap * len(groups[-2]) > begin(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [begin(group) + i * gap for group in groups for i in range(len(group))]


def _legend_below(axes: Any) -> None:
    """Draw a legend below the axes, where no point lies."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        axes.figure.legend(
            handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9
        )


def _ratios(report: Report) -> Iterator[tuple[str, str, list[tuple[Case, Spread]]]]:
    """Yield mode, peer and the ratios of the cases that clgemm and the peer computed right."""
    for mode in (HOST, DEVICE):
        by_name: dict[str, list[tuple[Case, Spread]]] = {}
        for case, modes in report.results:
            for peer in modes.get(mode, [])[1:]:
                ratio = modes[mode][0].ratio_to(peer)
                by_name.setdefault(peer.contender, []).extend([(case, ratio)] if ratio else [])
        for name, found in by_name.items():
            yield mode, name, found


def _mark_parity(axes: Any) -> None:
    """Draw the line of equal speed, and mark ratios, also if they are close to one another."""
    from matplotlib.ticker import AutoLocator, LogLocator, NullLocator

    axes.axhline(1, color=PARITY, linewidth=1, zorder=0)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    is_narrow = high < NARROW * low
    axes.yaxis.set_major_locator(AutoLocator() if is_narrow else LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}x")
    axes.grid(alpha=0.25, axis="y")


def _plot_ratios(axes: Any, x: list[float], ratios: list[Spread], mode: str, name: str) -> Any:
    """Draw medians with the range of the rounds."""
    return axes.errorbar(
        x,
        [r.median for r in ratios],
        [[r.median - r.low for r in ratios], [r.high - r.median for r in ratios]],
        fmt=MARKERS[mode],
        color=SERIES_COLOURS[name],
        markersize=5,
        capsize=2,
        linewidth=1.4,
        label=f"to {name}, {MODES[mode]}",
    )


def _squares(axes: Any, report: Report) -> None:
    """Draw the ratios of square cases over n, with their ranges."""
    sizes: set[int] = set()
    for mode, name, found in _ratios(report):
        points = sorted((c.m, ratio) for c, ratio in found if c.group == "square")
        if points:
            sizes |= {n for n, _ in points}
            x = [float(n) for n, _ in points]
            bars = _plot_ratios(axes, x, [ratio for _, ratio in points], mode, name)
            axes.plot(x, [r.median for _, r in points], color=bars[0].get_color(), linewidth=1.4)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(sizes), [str(n) for n in sorted(sizes)])
    axes.minorticks_off()
    _mark_parity(axes)
    axes.set_xlabel("n")
    axes.set_title("How many times faster clgemm is, square matrices", loc="left")
    _legend_below(axes)


def _others(axes: Any, report: Report) -> None:
    """Draw the ratios of the other cases, one place for each."""
    cases = [case for case, _ in report.results if case.group != "square"]
    places = {case: place for place, case in enumerate(cases)}
    series = list(_ratios(report))
    for number, (mode, name, found) in enumerate(series):
        points = [(places[case], ratio) for case, ratio in found if case in places]
        if points:
            shift = 0.16 * (number - (len(series) - 1) / 2)  # draw the series side by side
            x = [place + shift for place, _ in points]
            _plot_ratios(axes, x, [ratio for _, ratio in points], mode, name)
    axes.set_xticks(range(len(cases)), [case.label for case in cases], rotation=40, ha="right")
    axes.set_xlim(-0.6, max(len(cases), 1) - 0.4)
    _mark_parity(axes)
    axes.set_title("How many times faster clgemm is, other shapes and layouts", loc="left", pad=22)
    axes.annotate(BARS, (0, 1), (0, 6), "axes fraction", "offset points", fontsize=9)
    if cases and series:
        axes.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 1), ncols=4)
