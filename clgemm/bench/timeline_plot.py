"""A product's timeline as a picture (extra ``bench``: matplotlib)."""

from __future__ import annotations

from typing import Any

from clgemm.bench.spans import CALLER, COMPUTE, DOWN, UP, Timeline
from clgemm.terminal import COLOURS, PLOT_STYLE

__all__ = ["draw", "picture"]

# What host threads do. What the caller does besides has the colour of "other".
KINDS = {
    "copy in": COLOURS["OpenCL"],
    "copy out": COLOURS["clgemm.sgemm"],
    "wait": "#E8E8E8",
    "allocate the result": COLOURS["NumPy"],
    "plan and allocate": "#606060",
}
DEVICE_KINDS = {
    UP: COLOURS["OpenCL"],
    COMPUTE: COLOURS["CUDA"],
    DOWN: COLOURS["clgemm.sgemm"],
}
LANE_INCHES = 0.34


def draw(timeline: Timeline, title: str, file: str) -> None:
    """Draw the lanes of a product over its time."""
    import matplotlib as mpl

    with mpl.rc_context(PLOT_STYLE):
        picture(timeline, title).savefig(file, dpi=130)


def picture(timeline: Timeline, title: str) -> Any:
    """Return the figure of `draw`: one bar a span, one row a lane."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    lanes = timeline.lanes()
    with mpl.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(14, 2 + LANE_INCHES * len(lanes)), layout="constrained")
        axes = figure.subplots()
        used: dict[str, str] = {}
        for place, lane in enumerate(lanes):
            bars: dict[str, list[tuple[float, float]]] = {}
            for span in timeline.lane(lane):
                kind = lane if lane in DEVICE_KINDS else span.what
                start_ms = (span.start_ns - timeline.start_ns) / 1e6
                bars.setdefault(kind, []).append((start_ms, span.time_ns / 1e6))
            for kind, where in bars.items():
                colour = DEVICE_KINDS.get(kind) or KINDS.get(kind, COLOURS["other"])
                axes.broken_barh(
                    where, (place - 0.4, 0.8), facecolors=colour, edgecolors="white", linewidth=0.1
                )
                if kind not in DEVICE_KINDS:
                    used[kind if kind in KINDS else f"{CALLER}: other"] = colour
        axes.set_yticks(range(len(lanes)), lanes)
        axes.invert_yaxis()
        axes.axvline(timeline.limit_ns / 1e6, color="black", linestyle="--", linewidth=1)
        axes.set_xlim(0, 1.01 * timeline.time_ns / 1e6)
        axes.set_xlabel(
            "milliseconds; dashed: the limit, which is the busiest of the device's lanes"
        )
        axes.set_title(title, loc="left")
        handles = [mpl.patches.Patch(color=colour, label=kind) for kind, colour in used.items()]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=9
        )
        return figure
