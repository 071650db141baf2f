"""The speeds of the rungs as a picture (extra ``ladder``: matplotlib)."""

from __future__ import annotations

import textwrap
from typing import Any

from clgemm.ladder.climb import Climb
from clgemm.ladder.page import KEPLER_PEERS
from clgemm.ladder.rungs import RUNGS
from clgemm.terminal import COLOURS, PLOT_STYLE

__all__ = ["draw", "picture"]

HEIGHTS = 3, 2  # of the axes of the climb and of the tutorial
# A peer more than this many times as fast as the fastest rung is named only: its line would flatten
# the bars.
HEADROOM = 2.2
WIDE_RANGE = 30  # the axis is logarithmic if the fastest rung is so many times the slowest
NAME_CHARACTERS = 13  # in a line of the margin
LINE_SHARE = 0.042  # the height of a line in the margin, as a fraction of the axes' height


def draw(climb: Climb, file: str) -> None:
    """Draw one climb above the tutorial's, into an image file."""
    import matplotlib as mpl

    with mpl.rc_context(PLOT_STYLE):
        picture(climb).savefig(file, dpi=150)


def picture(climb: Climb) -> Any:
    """Return the figure of `draw`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(14, 11), layout="constrained")
        ours, kepler = figure.subplots(2, 1, height_ratios=HEIGHTS)
        toolchains = {
            name: {r.rung.number: r.gflops for r in climb.results if r.toolchain == name}
            for name in ("OpenCL", "CUDA")
        }
        _stairs(ours, {name: steps for name, steps in toolchains.items() if steps})
        _levels(ours, {peer.name: peer.gflops for peer in climb.peers}, HEIGHTS[0])
        _title(ours, f"{climb.device}, n = {climb.n}")
        if sum(map(bool, toolchains.values())) > 1:
            figure.legend(loc="outside lower left", ncols=2, frameon=False)
        tutorial = {rung.number: rung.kepler_gflops for rung in RUNGS if rung.kepler_gflops}
        _stairs(kepler, {"Kepler": dict[int, float](tutorial)})
        _levels(kepler, KEPLER_PEERS, HEIGHTS[1])
        _title(kepler, "The tutorial: Tesla K40m, n = 4096")
        return figure


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, loc="left", fontweight="bold", pad=14)


def _stairs(axes: Any, toolchains: dict[str, dict[int, float]]) -> None:
    """Draw a bar for each rung, with the bars of several toolchains side by side."""
    width = 0.84 / len(toolchains)
    for position, (name, steps) in enumerate(toolchains.items()):
        shift = (position - (len(toolchains) - 1) / 2) * width
        bars = axes.bar(
            [number + shift for number in steps],
            list(steps.values()),
            width * 0.96,
            color=COLOURS["other" if name == "Kepler" else name],
            label=name,
        )
        axes.bar_label(
            bars,
            [_figure(gflops) for gflops in steps.values()],
            padding=2,
            fontsize=10 if len(toolchains) == 1 else 8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    shown = [rung for rung in RUNGS if any(rung.number in steps for steps in toolchains.values())]
    numbers = [rung.number for rung in shown]
    ticks = [f"{rung.number}  {rung.title}" for rung in shown]
    axes.set_xticks(numbers, ticks, fontsize=9, rotation=28, ha="right", rotation_mode="anchor")
    axes.set_xlim(min(numbers, default=1) - 0.6, max(numbers, default=1) + 0.6)
    axes.set_ylabel("GFLOP/s")
    every = [gflops for steps in toolchains.values() for gflops in steps.values() if gflops > 0]
    if every and max(every) > WIDE_RANGE * min(every):
        axes.set_yscale("log")
        axes.set_ylim(min(every) / 2, 1.5 * max(every))
    axes.yaxis.set_major_formatter("{x:,g}")


def _levels(axes: Any, peers: dict[str, float], height: int) -> None:
    """Draw a line for each peer, with its name in the right margin.

    Parameters
    ----------
    height : int
        The height of these axes, one of `HEIGHTS`.
    """
    bottom, top = axes.get_ylim()
    drawn = {name: gflops for name, gflops in peers.items() if bottom < gflops < HEADROOM * top}
    top = max([top, *(1.08 * gflops for gflops in drawn.values())])
    axes.set_ylim(bottom, top)
    to_share = axes.transScale + axes.transLimits  # from data to shares of the axes' height
    share = LINE_SHARE * HEIGHTS[0] / height
    lowest_free = 0.0
    for name, gflops in sorted(drawn.items(), key=lambda peer: peer[1]):
        colour = COLOURS.get(name.split()[0], COLOURS["other"])
        axes.axhline(gflops, color=colour, linewidth=1.3, linestyle="--", zorder=0)
        lines = [*textwrap.wrap(name, NAME_CHARACTERS), _figure(gflops)]
        # Move names up so that those of neighbouring lines do not overlap.
        own = float(to_share.transform((1.0, gflops))[1])
        middle = max(own, lowest_free + len(lines) / 2 * share)
        lowest_free = middle + len(lines) / 2 * share
        _name(axes, "\n".join(lines), middle, colour)
    beyond = [f"{name}  {_figure(gflops)}" for name, gflops in peers.items() if name not in drawn]
    if beyond:
        text = "not drawn: " + ",  ".join(beyond)
        axes.set_title(text, loc="right", fontsize=10, color=COLOURS["clgemm.sgemm"])


def _name(axes: Any, text: str, height: float, colour: str) -> None:
    axes.annotate(
        text,
        (1.0, height),
        xycoords="axes fraction",
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=9,
        annotation_clip=False,
    )


def _figure(gflops: float) -> str:
    return f"{gflops:,.0f}" if gflops >= 100 else f"{gflops:.3g}"
