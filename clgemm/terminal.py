"""Functions that the commands share: arguments, figures, tables, progress and colours of plots."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from clgemm.core.settings import whole_number

Side: TypeAlias = Literal["left", "right"]
EVERY_SECONDS = 10.0  # a line on how much of a time is spent

# Okabe and Ito's colours, which colour-blind people can tell apart too. A library has the same
# colour in all pictures.
COLOURS = {
    "clgemm.sgemm": "#D55E00",
    "cuBLAS": "#A8477F",
    "CLBlast": "#B87A00",
    "NumPy": "#444444",
    "OpenCL": "#0072B2",
    "CUDA": "#009E73",
    "other": "#8C8C8C",
}
PLOT_STYLE: Any = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}


def whole(text: str) -> int:
    """Parse a whole number in any notation, such as ``1e6``."""
    try:
        return whole_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def duration(unit: str) -> Callable[[str], float]:
    """Return a parser for a number of `unit` (such as seconds) above 0."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {unit} above 0")
        return value

    return read


def figure(gflops: float) -> str:
    """Format GFLOP/s for a table."""
    return f"{gflops:,.0f}" if gflops >= 100 else f"{gflops:.2f}"


def json_number(value: float) -> float | None:
    """Return a number for JSON: None in place of NaN and infinity."""
    return value if math.isfinite(value) else None


def print_table(
    title: str, headings: Sequence[str], justify: Sequence[Side], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    print(title)
    for row in (headings, *rows):
        cells = (
            cell.rjust(width) if side == "right" else cell.ljust(width)
            for cell, width, side in zip(row, widths, justify, strict=True)
        )
        print("  ".join(cells).rstrip())
    print()


def say(text: str) -> None:
    """Print a line on the error stream at once: before long work, what is done and for how long."""
    print(text, file=sys.stderr, flush=True)


def minutes(seconds: float) -> str:
    """Return an expected time in words."""
    if seconds < 60:
        return "less than a minute"
    return f"about {math.ceil(seconds / 60)} minutes"


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Show progress by steps on the error stream.

    Yields
    ------
    callable
        To be called with a description at the begin of each step.
    """
    numbers = itertools.count(1)
    yield lambda text: say(f"{next(numbers)} of {total}: {text} ...")


def show_done(done: int, total: int, text: str) -> None:
    """Say on the error stream how many parts of a work are done."""
    say(f"{done} of {total} done{text and f': {text}'}")


def meter() -> Callable[[float, str], None]:
    """Return what says the seconds spent, in the first call and at most every ten seconds."""
    next_s = -math.inf

    def show(spent: float, text: str) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            say(f"{spent:4.0f} s: {text}")
            next_s = time.monotonic() + EVERY_SECONDS

    return show


def show_share(done: int, total: int) -> None:
    """Rewrite a line on the error stream: a callback for `clgemm.progress`."""
    text = f"\r{done / total:4.0%} of {total / 1e9:,.0f} billion multiply-adds"
    print(text, end="\n" if done >= total else "", file=sys.stderr, flush=True)
