"""The roofline and the ratios as a picture (extra ``bench``: matplotlib)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.figures import Outcome, Spread
from clgemm.bench.report import Report
from clgemm.terminal import COLOURS, PLOT_STYLE

__all__ = ["draw"]

MODES = {HOST: "NumPy arrays", DEVICE: "on the device"}
MARKERS = {HOST: "o", DEVICE: "s"}
# CLBlast in the blue that OpenCL has elsewhere: hollow, its own is too near to ours.
SERIES_COLOURS = {**COLOURS, "clgemm": COLOURS["clgemm.sgemm"], "CLBlast": COLOURS["OpenCL"]}
PARITY = COLOURS["other"]


def draw(report: Report, file: str) -> None:
    """Draw the roofline above, the ratios below: over n for squares, by name for other cases."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(14, 11), layout="constrained")
        above, below = cast("Any", figure.subfigures(2, 1, height_ratios=(5, 4)))
        roofline, squares = above.subplots(1, 2, width_ratios=(3, 2))
        _roofline(roofline, report)
        _squares(squares, report)
        _others(below.subplots(), report)
        device, date = report.machine["device"]["name"], report.machine["date"][:10]
        figure.suptitle(f"{device}, {date}", x=0.01, ha="left", fontweight="bold")
        figure.savefig(file, dpi=130)


def _series(report: Report) -> Iterator[tuple[str, str, list[Outcome]]]:
    """Yield mode, contender and its right outcomes, those of peers first: ours lie on top."""
    for mode in (HOST, DEVICE):
        by_name: dict[str, list[Outcome]] = {}
        for _, modes in report.results:
            for outcome in reversed(modes.get(mode, [])):
                by_name.setdefault(outcome.contender, []).extend([outcome] if outcome.ok else [])
        for name, outcomes in by_name.items():
            yield mode, name, outcomes


def _roofline(axes: Any, report: Report) -> None:
    """Draw GFLOP/s over operations per byte, under what the device can do at most."""
    highest = report.peak_gflops
    for mode, name, outcomes in _series(report):
        if not outcomes:
            continue
        highest = max(highest, *(o.gflops for o in outcomes))
        axes.plot(
            [o.case.intensity for o in outcomes],
            [o.gflops for o in outcomes],
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
        axes.annotate(
            f"measured peak {peak:,.0f} GFLOP/s",
            (max(right, 2 * ridge), peak),
            xytext=(0, 4),
            textcoords="offset points",
            ha="right",
        )
        axes.set_xlim(left, max(right, 2 * ridge))
    axes.set_ylim(top=2 * highest if highest else None)
    axes.set_xlabel("operations per byte of A, B and C")
    axes.set_ylabel("GFLOP/s")
    axes.grid(alpha=0.25)
    roof = f": memory read at {bandwidth:,.0f} GB/s; caches may beat it" if bandwidth else ""
    axes.set_title(f"Roofline{roof}", loc="left")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9, loc="lower right")


def _ratios(report: Report) -> Iterator[tuple[str, str, list[tuple[Case, Spread]]]]:
    """Yield mode, peer and the cases that both computed rightly, with the ratios."""
    for mode in (HOST, DEVICE):
        by_name: dict[str, list[tuple[Case, Spread]]] = {}
        for case, modes in report.results:
            for peer in modes.get(mode, [])[1:]:
                ratio = modes[mode][0].ratio_to(peer)
                by_name.setdefault(peer.contender, []).extend([(case, ratio)] if ratio else [])
        for name, found in by_name.items():
            yield mode, name, found


def _parity(axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.axhline(1, color=PARITY, linewidth=1, zorder=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}x")
    axes.grid(alpha=0.25, axis="y")


def _plot_ratios(axes: Any, x: list[float], ratios: list[Spread], mode: str, name: str) -> Any:
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
    """Draw the ratios over n, with their ranges."""
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
    _parity(axes)
    axes.set_xlabel("n")
    axes.set_title("How many times faster clgemm is, square matrices", loc="left")
    if sizes:
        axes.legend(frameon=False, fontsize=9)


def _others(axes: Any, report: Report) -> None:
    """Draw the ratios of the cases that are not square and plain, one place each."""
    cases = [case for case, _ in report.results if case.group != "square"]
    places = {case: place for place, case in enumerate(cases)}
    series = list(_ratios(report))
    for number, (mode, name, found) in enumerate(series):
        points = [(places[case], ratio) for case, ratio in found if case in places]
        if points:
            shift = 0.16 * (number - (len(series) - 1) / 2)  # side by side, not on each other
            x = [place + shift for place, _ in points]
            _plot_ratios(axes, x, [ratio for _, ratio in points], mode, name)
    axes.set_xticks(range(len(cases)), [case.label for case in cases], rotation=40, ha="right")
    axes.set_xlim(-0.6, max(len(cases), 1) - 0.4)
    _parity(axes)
    axes.set_title("How many times faster clgemm is, other shapes and layouts", loc="left")
    if cases and series:
        axes.legend(frameon=False, fontsize=9)
