"""The log of trials on a device, from which later tuning continues, and its picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from clgemm.core.cache import warn_unkept
from clgemm.core.traits import Identity
from clgemm.kernels.common.family import Choice
from clgemm.records.tuned import choice_as_dict, choice_from, kernels_hash, user_file
from clgemm.terminal import COLOURS, PLOT_STYLE


@dataclass(frozen=True)
class Trial:
    """One candidate, tried on the shapes of one class.

    Attributes
    ----------
    shapes : str
        The shapes that it was timed on.
    score : float
        How many times faster it was than the default choice: the geometric mean over the shapes; 0
        if it was rejected.
    gflops : float
        Billions of operations per second: the geometric mean over the shapes; 0 if rejected.
    reason : str
        Why it was rejected, "" if it was not.
    """

    shape_class: str
    shapes: str
    choice: Choice
    score: float
    gflops: float
    reason: str


class Trials:
    """The trials on a device with its driver and the present kernels.

    Parameters
    ----------
    resume : bool, optional
        Whether to read earlier trials from the file.
    """

    def __init__(self, device: Identity, resume: bool = True) -> None:
        self.device = device
        self.path = user_file(device).with_suffix(".trials")
        self.all: list[Trial] = []
        self._writable = True
        self._known: dict[tuple[str, str, Choice], Trial] = {}
        for trial in self._read() if resume else ():
            self._take(trial)

    def find(self, name: str, shapes: str, choice: Choice) -> Trial | None:
        """Return the trial of a choice on a class's shapes, or None."""
        return self._known.get((name, shapes, choice))

    def rejection(self, choice: Choice) -> str | None:
        """Return why a choice was rejected on any shapes, "" if it was not, None if unknown."""
        reasons = [trial.reason for trial in self.all if trial.choice == choice]
        return max(reasons) if reasons else None

    def add(self, trial: Trial) -> None:
        """Add a trial, also to the file. If that fails, log one warning."""
        self._take(trial)
        line = asdict(trial) | {
            "choice": choice_as_dict(trial.choice),
            "platform": self.device.platform,
            "driver": self.device.driver,
            "kernels": kernels_hash(trial.choice.config.family),
        }
        if not self._writable:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._writable = False
            warn_unkept(self.path, error, "trials are not kept")

    def _take(self, trial: Trial) -> None:
        self.all.append(trial)
        self._known[trial.shape_class, trial.shapes, trial.choice] = trial

    def _read(self) -> Iterator[Trial]:
        """Yield the trials in the file, without incomplete lines and other drivers or kernels."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        for line in text.splitlines():
            try:
                trial = self._parsed(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            if trial is not None:
                yield trial

    def _parsed(self, values: dict[str, Any]) -> Trial | None:
        choice = choice_from(*(values["choice"][name] for name in ("family", "config", "pack")))
        if (values["platform"], values["driver"], values["kernels"]) != (
            self.device.platform,
            self.device.driver,
            kernels_hash(choice.config.family),
        ):
            return None
        score, gflops = float(values["score"]), float(values["gflops"])
        if not (math.isfinite(score) and math.isfinite(gflops)):
            return None
        name, shapes, reason = (str(values[key]) for key in ("shape_class", "shapes", "reason"))
        return Trial(name, shapes, choice, score, gflops, reason)


COLUMNS = 3
PANEL_INCHES = 5.6, 3.2


def draw(trials: Trials, title: str, path: Path) -> None:
    """Draw a panel for each kernel family and shape class: its candidates in order.

    Needs matplotlib.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    import matplotlib as mpl

    with mpl.rc_context(PLOT_STYLE):
        picture(trials, title).savefig(path, dpi=110)


def picture(trials: Trials, title: str) -> Any:
    """Return the figure of `draw`: as many columns as there are panels, and one legend for all."""
    from matplotlib.figure import Figure

    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials.all:
        key = trial.choice.config.family, trial.shape_class
        groups.setdefault(key, []).append(trial)
    columns = min(COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    size = PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.6
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
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


def _panel(axis: Any, group: list[Trial]) -> None:
    from matplotlib.ticker import MaxNLocator

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
