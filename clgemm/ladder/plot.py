"""The speeds of the rungs as a picture (extra ``ladder``: matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clgemm.ladder.climb import Climb
from clgemm.ladder.page import KEPLER_PEERS
from clgemm.ladder.rungs import RUNGS
from clgemm.terminal import COLOURS, PLOT_STYLE

# A peer more than this many times as fast as the fastest rung is in the legend only: its line would
# flatten the bars.
HEADROOM = 2.2
WIDE_RANGE = 30  # the axis is logarithmic if the fastest rung is so many times the slowest


def picture(climb: Climb) -> Any:
    """Return a figure of one climb above the tutorial's."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(14, 11), layout="constrained")
        ours, kepler = figure.subplots(2, 1, height_ratios=(3, 2))
        toolchains = {
            name: {r.rung.number: r.gflops for r in climb.results if r.toolchain == name}
            for name in ("OpenCL", "CUDA")
        }
        _stairs(ours, {name: steps for name, steps in toolchains.items() if steps})
        _levels(ours, {peer.name: peer.gflops for peer in climb.peers})
        ours.set_title(f"{climb.device}, n = {climb.n}", loc="left", fontweight="bold")
        tutorial = {rung.number: rung.kepler_gflops for rung in RUNGS if rung.kepler_gflops}
        _stairs(kepler, {"Kepler": tutorial})
        _levels(kepler, KEPLER_PEERS)
        kepler.set_title("The tutorial: Tesla K40m, n = 4096", loc="left", fontweight="bold")
        return figure


def _stairs(axes: Any, toolchains: Mapping[str, Mapping[int, float]]) -> None:
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
    ticks = [f"{rung.number}  {rung.label()}" for rung in shown]
    axes.set_xticks(numbers, ticks, fontsize=9, rotation=28, ha="right", rotation_mode="anchor")
    axes.set_xlim(min(numbers, default=1) - 0.6, max(numbers, default=1) + 0.6)
    axes.set_ylabel("GFLOP/s")
    every = [gflops for steps in toolchains.values() for gflops in steps.values() if gflops > 0]
    if every and max(every) > WIDE_RANGE * min(every):
        axes.set_yscale("log")
        axes.set_ylim(min(every) / 2, 1.5 * max(every))
    axes.yaxis.set_major_formatter("{x:,g}")


def _levels(axes: Any, peers: Mapping[str, float]) -> None:
    """Draw a line for each peer, and a legend with the peers' figures beside the axes."""
    top = axes.get_ylim()[1]
    axes.set_ylim(top=max([top, *(1.08 * x for x in peers.values() if x < HEADROOM * top)]))
    for name, gflops in sorted(peers.items(), key=lambda peer: -peer[1]):
        colour = COLOURS.get(name.split()[0], COLOURS["other"])
        label = f"{name}: {_figure(gflops)}"
        axes.axhline(gflops, color=colour, linewidth=1.3, linestyle="--", zorder=0, label=label)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9, frameon=False)


def _figure(gflops: float) -> str:
    return f"{gflops:,.0f}" if gflops >= 100 else f"{gflops:.3g}"
