"""The picture of a search: how fast its candidates are, and the best so far. Takes matplotlib."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from clgemm.terminal import COLOURS, PLOT_STYLE
from clgemm.tuner.trials import Trial, Trials

__all__ = ["draw"]

COLUMNS = 3
BINS = 24


def draw(trials: Trials, title: str, path: Path) -> None:
    """Draw a panel for each kernel family and shape class: candidates in order, and their spread.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials.all:
        key = trial.choice.config.family, trial.shape_class
        groups.setdefault(key, []).append(trial)
    rows = -(-len(groups) // COLUMNS)
    with plt.rc_context(PLOT_STYLE):
        figure, axes = plt.subplots(
            rows, COLUMNS, figsize=(5.2 * COLUMNS, 3.0 * rows), squeeze=False, layout="constrained"
        )
        for axis in axes.flat[len(groups) :]:
            axis.remove()
        for axis, ((family, name), group) in zip(axes.flat, groups.items(), strict=False):
            _panel(axis, group)
            best = max(trial.score for trial in group)
            axis.set_title(f"{family}, {name}: {best:.2f}", loc="left", fontsize=11)
        axes.flat[0].set_ylabel("times the default's speed")
        figure.suptitle(f"{title}: what tuning tried", x=0.01, ha="left")
        figure.savefig(path, dpi=110)
        plt.close(figure)


def _panel(axis: Axes, group: list[Trial]) -> None:
    scores = [trial.score for trial in group]
    good = [(i, score) for i, score in enumerate(scores) if score]
    bad = [i for i, score in enumerate(scores) if not score]
    best = list(accumulate(scores, max))
    numbers, speeds = [i for i, _ in good], [score for _, score in good]
    axis.plot(numbers, speeds, ".", ms=4, color=COLOURS["OpenCL"], alpha=0.6)
    axis.plot(bad, [0.0] * len(bad), "x", ms=4, color=COLOURS["other"])
    axis.step(range(len(best)), best, where="post", color=COLOURS["clgemm.sgemm"], lw=1.8)
    axis.axhline(1.0, color=COLOURS["other"], lw=0.8, ls=":")
    axis.set_ylim(-0.05, 1.1 * max(1.0, *best))
    axis.set_xlim(-0.02 * len(group), 1.25 * len(group))
    beside = axis.inset_axes((0.82, 0.0, 0.18, 1.0), sharey=axis)
    beside.hist([s for _, s in good], BINS, orientation="horizontal", color=COLOURS["OpenCL"])
    beside.axis("off")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel(f"candidates ({len(bad)} rejected: x)")
