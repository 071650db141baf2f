"""The speeds of the rungs as a picture (extra ``ladder``: matplotlib)."""

from __future__ import annotations

import textwrap
from typing import Any

from clgemm.ladder.page import KEPLER_PEERS
from clgemm.ladder.report import Climb
from clgemm.ladder.rungs import RUNGS
from clgemm.terminal import COLOURS, PLOT_STYLE

__all__ = ["draw", "picture"]

HEIGHTS = 3, 2  # of the axes of the climb and of the tutorial
# A peer more than this many times as fast as the fastest rung is named only: its line would flatten
# the bars.
HEADROOM = 2.2
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
        figure = Figure(figsize=(13, 9), layout="constrained")
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
    ticks = [
        f"{rung.number}\n{textwrap.fill(rung.title, 15, break_on_hyphens=False)}" for rung in RUNGS
    ]
    axes.set_xticks(range(1, len(RUNGS) + 1), ticks, fontsize=9)
    axes.set_xlim(0.4, len(RUNGS) + 0.6)
    axes.set_ylabel("GFLOP/s")
    axes.yaxis.set_major_formatter("{x:,g}")


def _levels(axes: Any, peers: dict[str, float], height: int) -> None:
    """Draw a line for each peer, with its name in the right margin.

    Parameters
    ----------
    height : int
        The height of these axes, one of `HEIGHTS`.
    """
    top = axes.get_ylim()[1]
    drawn = {name: gflops for name, gflops in peers.items() if gflops < HEADROOM * top}
    top = max([top, *(1.08 * gflops for gflops in drawn.values())])
    axes.set_ylim(0, top)
    right = axes.get_xlim()[1]
    share = LINE_SHARE * HEIGHTS[0] / height * top
    lowest_free = 0.0
    for name, gflops in sorted(drawn.items(), key=lambda peer: peer[1]):
        colour = COLOURS.get(name.split()[0], COLOURS["other"])
        axes.axhline(gflops, color=colour, linewidth=1.3, linestyle="--", zorder=0)
        lines = [*textwrap.wrap(name, NAME_CHARACTERS), _figure(gflops)]
        # Move names up so that those of neighbouring lines do not overlap.
        middle = max(gflops, lowest_free + len(lines) / 2 * share)
        lowest_free = middle + len(lines) / 2 * share
        _name(axes, "\n".join(lines), (right, middle), colour)
    beyond = [f"{name}  {_figure(gflops)}" for name, gflops in peers.items() if name not in drawn]
    if beyond:
        text = "off the scale: " + ",  ".join(beyond)
        axes.set_title(text, loc="right", fontsize=10, color=COLOURS["clgemm.sgemm"])


def _name(axes: Any, text: str, at: tuple[float, float], colour: str) -> None:
    axes.annotate(
        text,
        at,
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=9,
        annotation_clip=False,
    )


def _figure(gflops: float) -> str:
    return f"{gflops:,.0f}" if gflops >= 100 else f"{gflops:.3g}"
