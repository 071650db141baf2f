"""The pictures of a survey: how the ratios are distributed, and the ratios over the work.

Needs matplotlib (extra ``bench``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.plot import (
    MARKERS,
    MODES,
    PARITY,
    SERIES_COLOURS,
    legend_below,
    mark_parity,
    tick_ratios,
)
from clgemm.bench.survey_report import BEST, SurveyReport
from clgemm.terminal import PLOT_STYLE

__all__ = ["draw", "picture"]

COLOURS = {**SERIES_COLOURS, BEST: SERIES_COLOURS["clgemm"]}
STYLES = {HOST: "-", DEVICE: "--"}


def draw(report: SurveyReport, file: str) -> None:
    """Draw the cumulative distributions, the ratios over the work, and the regrets, if any."""
    import matplotlib as mpl

    with mpl.rc_context(PLOT_STYLE):
        picture(report).savefig(file, dpi=130)


def picture(report: SurveyReport) -> Any:
    """Return the figure of `draw`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PLOT_STYLE):
        regrets = report.regrets()
        figure = Figure(figsize=(14, 12 if regrets else 6.5), layout="constrained")
        places = figure.subplots(2 if regrets else 1, 2, squeeze=False)
        _distribution(places[0][0], report)
        _over_work(places[0][1], report)
        if regrets:
            _regret_distribution(places[1][0], report)
            _regret_over_work(places[1][1], regrets)
        device, survey = report.machine["device"]["name"], report.survey
        figure.suptitle(
            f"{device}, {report.machine['date'][:10]}: {survey['count']} random products, "
            f"seed {survey['seed']}, {survey['precision']}, {survey['data']} data",
            x=0.01,
            ha="left",
            fontweight="bold",
        )
        return figure


def _distribution(axes: Any, report: SurveyReport) -> None:
    """Draw the share of products with at most a ratio."""
    for mode, label in MODES.items():
        for peer, ratios in report.ratios(mode).items():
            _steps(
                axes,
                ratios.values(),
                linestyle=STYLES[mode],
                color=COLOURS[peer],
                linewidth=2.2 if peer == BEST else 1.4,
                label=f"to {peer}, {label}",
            )
    _mark_shares(axes, "how many times faster clgemm is", "Distribution of the ratios")
    legend_below(axes)


def _steps(axes: Any, values: Iterable[float], **style: Any) -> None:
    """Draw the share of values up to each one."""
    ordered = sorted(values)
    shares = [100 * (i + 1) / len(ordered) for i in range(len(ordered))]
    axes.step([ordered[0], *ordered], [0, *shares], where="post", **style)


def _mark_shares(axes: Any, values: str, title: str) -> None:
    """Name the axes of `_steps`, whose values are ratios."""
    axes.axvline(1, color=PARITY, linewidth=1, zorder=0)
    axes.set_xscale("log")
    tick_ratios(axes.xaxis, axes.get_xlim())
    axes.set_xlabel(values)
    axes.set_ylabel("% of the products at most")
    axes.set_title(title, loc="left")
    axes.grid(alpha=0.25)


def _over_work(axes: Any, report: SurveyReport) -> None:
    """Draw the ratio of each product over its multiply-adds."""
    for mode, label in MODES.items():
        for peer, ratios in report.ratios(mode).items():
            axes.plot(
                [case.work for case in ratios],
                list(ratios.values()),
                MARKERS[mode],
                color=COLOURS[peer],
                markerfacecolor=COLOURS[peer] if peer == BEST else "none",
                markersize=5 if peer == BEST else 4,
                alpha=0.8,
                label=f"to {peer}, {label}",
            )
    axes.set_xscale("log")
    mark_parity(axes)
    axes.set_xlabel("multiply-adds")
    axes.set_title("How many times faster clgemm is", loc="left")


def _regret_distribution(axes: Any, report: SurveyReport) -> None:
    found = {"regret": report.regrets(), "of it, the choice": report.regrets_of_choice()}
    for (label, values), style in zip(found.items(), STYLES.values(), strict=True):
        _steps(axes, values.values(), color=COLOURS["clgemm"], linestyle=style, label=label)
    _mark_shares(axes, "time over that on the better side", "Regret of matmul of NumPy arrays")
    axes.legend(frameon=False, fontsize=9, loc="lower right")


def _regret_over_work(axes: Any, regrets: dict[Any, float]) -> None:
    work = [case.work for case in regrets]
    axes.plot(work, list(regrets.values()), MARKERS[HOST], color=COLOURS["clgemm"], markersize=5)
    axes.set_xscale("log")
    mark_parity(axes)
    axes.set_xlabel("multiply-adds")
    axes.set_title("Regret over the work", loc="left")
