"""The picture of ``bench --whole-programs``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from clgemm.terminal import COLOURS, PLOT_STYLE

if TYPE_CHECKING:
    from clgemm.bench.whole_programs import Result

__all__ = ["draw"]


def draw(results: Sequence[Result], path: Path) -> None:
    """Draw each program's ratios, with their ranges."""
    import matplotlib.pyplot as plt

    shown = [each for each in results if not each.problem]
    kinds = (("warm", COLOURS["clgemm.sgemm"]), ("cold", COLOURS["OpenCL"]))
    with plt.rc_context(PLOT_STYLE):
        figure, axes = plt.subplots(figsize=(9, 1.2 + 0.32 * len(shown)), layout="constrained")
        for row, each in enumerate(shown):
            low, high = min(each.control), max(each.control)
            axes.barh(row, high - low, left=low, height=0.8, color="#DDDDDD", zorder=1)
            for name, colour in kinds:
                ratios = getattr(each, name)
                if ratios:
                    label = name if row == 0 else None
                    axes.plot([min(ratios), max(ratios)], [row, row], color=colour, lw=1, zorder=2)
                    axes.plot(median(ratios), row, "o", color=colour, label=label, zorder=3)
        axes.axvline(1, color=COLOURS["NumPy"], lw=1, zorder=0)
        axes.set_xscale("log")
        ticks = [0.5, 0.7, 1, 1.4, 2, 4]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(range(len(shown)), [each.name for each in shown])
        axes.invert_yaxis()
        axes.set_xlabel("plain time / accelerated time; grey: plain again")
        axes.legend(loc="best", frameon=False)
        figure.savefig(path, dpi=120)
        plt.close(figure)
