"""The staircase as a picture (extra ``ladder``: matplotlib)."""

from __future__ import annotations

from typing import Any

from clgemm.ladder.report import Climb
from clgemm.ladder.rungs import RUNGS

__all__ = ["draw"]

# Okabe and Ito's colours, told apart by everyone.
OURS, CUDA, KEPLER = "#0072B2", "#009E73", "#999999"
LINES = {
    "clgemm.sgemm": "#D55E00",
    "cuBLAS": "#CC79A7",
    "CLBlast": "#E69F00",
    "NumPy on the host": "#555555",
}
KEPLER_LINES = {"cuBLAS": 3056, "clBlas, tuned": 798}
LABELS = (
    "naive",
    "tiling in\nlocal memory",
    "more work per\nwork-item",
    "wider\ndata types",
    "transposed,\nrectangular",
    "2D register\nblocking",
    "wider loads",
    "read-only,\nshuffles",
    "pre-fetching",
    "any size",
)


def draw(climb: Climb, file: str) -> None:
    """Draw the staircase of one climb, and the tutorial's beside it, into an image file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(13, 9), layout="constrained")
        ours, kepler = figure.subplots(2, 1, height_ratios=(3, 2))
        toolchains = sorted({result.toolchain for result in climb.results}, reverse=True)
        for position, toolchain in enumerate(toolchains):
            _stairs(
                ours,
                {r.rung.number: r.gflops for r in climb.results if r.toolchain == toolchain},
                toolchain,
                OURS if toolchain == "OpenCL" else CUDA,
                (position, len(toolchains)),
            )
        for peer in climb.peers:
            _level(ours, peer.name, peer.gflops, LINES.get(peer.name, KEPLER))
        ours.set_title(f"{climb.device}, n = {climb.n}", loc="left", fontweight="bold")
        if len(toolchains) > 1:
            ours.legend(loc="upper left", frameon=False)
        _stairs(kepler, {rung.number: rung.kepler_gflops for rung in RUNGS}, "", KEPLER, (0, 1))
        for name, gflops in KEPLER_LINES.items():
            _level(kepler, name, gflops, "#555555")
        kepler.set_title(
            "The tutorial's figures: Tesla K40m, n = 4096", loc="left", fontweight="bold"
        )
        figure.savefig(file, dpi=150)


def _stairs(
    axes: Any, gflops: dict[int, float], label: str, colour: str, place: tuple[int, int]
) -> None:
    position, of = place
    width = 0.8 / of
    bars = axes.bar(
        [number + (position - (of - 1) / 2) * width for number in gflops],
        gflops.values(),
        width * 0.95,
        color=colour,
        label=label,
    )
    labels = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in gflops.values()]
    axes.bar_label(bars, labels, padding=2, fontsize=10 if of == 1 else 8)
    axes.set_xticks(
        range(1, len(LABELS) + 1), [f"{i}\n{t}" for i, t in enumerate(LABELS, 1)], fontsize=9
    )
    axes.set_xlim(0.4, len(LABELS) + 1.9)
    axes.set_ylabel("GFLOP/s")
    axes.yaxis.set_major_formatter("{x:,.0f}")


def _level(axes: Any, name: str, gflops: float, colour: str) -> None:
    axes.axhline(gflops, color=colour, linewidth=1.2, linestyle="--", zorder=0)
    axes.annotate(
        f"{name}  {gflops:,.0f}",
        (axes.get_xlim()[1], gflops),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color=colour,
        fontsize=10,
    )
