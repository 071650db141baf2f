"""The picture of a search: the speed of its candidates. Needs matplotlib."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from clgemm.terminal import COLOURS, PLOT_STYLE
from clgemm.tuning.trials import Trial, Trials

COLUMNS = 3
PANEL_INCHES = 5.6, 3.2


def draw(trials: Trials, title: str, path: Path) -> None:
    """Draw a panel for each kernel family and shape class: its candidates in order.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with plt.rc_context(PLOT_STYLE):
        figure = picture(trials, title)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def picture(trials: Trials, title: str) -> Figure:
    """Return the figure of `draw`: as many columns as there are panels, and one legend for all."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials.all:
        key = trial.choice.config.family, trial.shape_class
        groups.setdefault(key, []).append(trial)
    columns = min(COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    size = PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.6
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(groups) :]:
        axis.remove()
    for axis, ((family, name), group) in zip(axes.flat, groups.items(), strict=False):
        _panel(axis, group)
        best = max(trial.score for trial in group)
        axis.set_title(f"{family}, {name}: best {best:.2f}", loc="left", fontsize=11)
    for axis in axes[:, 0]:
        axis.set_ylabel("times the default's speed")
    figure.suptitle(f"{title}: what tuning tried", x=0.01, ha="left", fontsize=12)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower left", ncols=len(labels), frameon=False, fontsize=9
    )
    return figure


def _panel(axis: Axes, group: list[Trial]) -> None:
    scores = [trial.score for trial in group]
    good = [(i, score) for i, score in enumerate(scores, 1) if score]
    bad = [i for i, score in enumerate(scores, 1) if not score]
    best = list(accumulate(scores, max))
    numbers, speeds = [i for i, _ in good], [score for _, score in good]
    axis.plot(numbers, speeds, ".", ms=5, color=COLOURS["OpenCL"], alpha=0.6, label="candidate")
    axis.plot(bad, [0.0] * len(bad), "x", ms=4, color=COLOURS["other"], label="rejected")
    # The line reaches the panel's edge, so that it also shows for a single candidate.
    axis.step(
        [*range(1, len(best) + 1), len(best) + 0.5],
        [*best, best[-1]],
        where="post",
        color=COLOURS["clgemm.sgemm"],
        lw=1.8,
        label="best so far",
    )
    axis.axhline(1.0, color=COLOURS["other"], lw=0.8, ls=":", label="the default")
    axis.set_ylim(-0.05, 1.1 * max(1.0, *best))
    axis.set_xlim(0.5, len(group) + 0.5)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_xlabel(f"candidates in order; {len(bad)} rejected", fontsize=10)
