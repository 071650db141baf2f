"""Functions that the commands share: arguments, figures, tables, progress and colours of plots."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from clgemm.core.settings import whole_number

__all__ = [
    "COLOURS",
    "PLOT_STYLE",
    "Side",
    "duration",
    "figure",
    "json_number",
    "meter",
    "minutes",
    "positive",
    "print_table",
    "product_bar",
    "progress",
    "say",
    "steps",
    "whole",
]

Side: TypeAlias = Literal["left", "right"]
BEYOND = 1000  # characters, more than any table's width
EVERY_SECONDS = 10.0  # a line on how much of a time is spent, where the stream is no terminal

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
    """Print a table, by rich if it is installed."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _print_plain(title, headings, justify, rows)
        return
    print(title)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, collapse_padding=True)
    for heading, side in zip(headings, justify, strict=True):
        table.add_column(heading, justify=side, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Let the terminal wrap long lines: rich would cut figures short.
    console = Console()
    options = console.options.update(max_width=BEYOND)
    console.width = max(console.width, console.measure(table, options=options).maximum)
    console.print(table)


def _print_plain(
    title: str, headings: Sequence[str], justify: Sequence[Side], rows: Sequence[Sequence[str]]
) -> None:
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


def _console() -> Any:
    """Return rich's console of the error stream; None without rich, or if it is no terminal.

    A bar that vanishes leaves nothing in a file or a pipe, so these get lines.
    """
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_terminal else None


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Show progress by steps on the error stream.

    Yields
    ------
    callable
        To be called with a description at the begin of each step.
    """
    if (console := _console()) is None:
        yield lambda text: say(f"{text} ...")
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = -1

        def step(text: str) -> None:
            nonlocal begun
            begun += 1
            bar.update(task, completed=begun, description=text)

        yield step


@contextmanager
def steps() -> Iterator[Callable[[int, int, str], None]]:
    """Show on the error stream how many parts of a work are done.

    Yields
    ------
    callable
        To be called with the parts that are done, all parts and a description.
    """
    if (console := _console()) is None:
        yield lambda done, total, text: say(f"{done} of {total} done{text and f': {text}'}")
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(20), TextColumn("{task.completed}/{task.total} {task.description}")
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(
            task, completed=done, total=total, description=text
        )


@contextmanager
def meter(seconds: float) -> Iterator[Callable[[float, str], None]]:
    """Show on the error stream how much of a time is spent.

    Yields
    ------
    callable
        To be called with the seconds spent and a description.
    """
    if (console := _console()) is None:
        yield _lines_of_time()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = BarColumn(20), TimeRemainingColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=seconds)
        yield lambda spent, text: bar.update(task, completed=min(spent, seconds), description=text)


def _lines_of_time() -> Callable[[float, str], None]:
    """Return what prints the seconds spent, in the first call and at most every ten seconds."""
    next_s = -math.inf

    def show(spent: float, text: str) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            say(f"{spent:4.0f} s: {text}")
            next_s = time.monotonic() + EVERY_SECONDS

    return show


def product_bar() -> Callable[[int, int], None]:
    """Return a callback for `clgemm.progress` that shows a bar on the error stream.

    The bar vanishes when a product is complete. Without rich, a line is rewritten.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return _print_share
    columns = BarColumn(20), TimeRemainingColumn(), TextColumn("{task.description}")
    bar: Progress | None = None

    def show(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.add_task(f"a product of {total / 1e9:,.0f} billion multiply-adds", total=total)
            bar.start()
        bar.update(bar.task_ids[0], completed=done, total=total)
        if done >= total:
            bar.stop()
            bar = None

    return show


def _print_share(done: int, total: int) -> None:
    text = f"\r{done / total:4.0%} of {total / 1e9:,.0f} billion multiply-adds"
    print(text, end="\n" if done >= total else "", file=sys.stderr, flush=True)
