"""What commands share: arguments, output files, tables, progress, and the colours of plots."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from pathlib import Path
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


def require_writable(option: str, path: Path | None) -> None:
    """Raise ValueError before a long measurement if a file cannot be written.

    Parameters
    ----------
    option : str
        The command's option that names the file.
    path : Path or None
        The file; None to check nothing.

    Raises
    ------
    ValueError
        If the file's folder does not exist, the path is a folder, or permissions forbid it.
    """
    if path is None:
        return
    folder = path.absolute().parent
    problem = ""
    if not folder.is_dir():
        problem = f"there is no folder {path.parent}"
    elif path.is_dir():
        problem = "it is a folder"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        problem = "permission denied"
    if problem:
        raise ValueError(f"{option} {path} cannot be written: {problem}")


def require_picture(option: str, path: Path | None, extra: str) -> None:
    """Raise ValueError before a long measurement if a picture cannot be drawn or written.

    Parameters
    ----------
    option, path
        As for `require_writable`.
    extra : str
        The extra of this package that installs matplotlib.

    Raises
    ------
    ValueError
        If matplotlib is missing or does not know the file's suffix, or if `require_writable` raises
        it.
    """
    if path is None:
        return
    if find_spec("matplotlib") is None:
        raise ValueError(f"{option} needs matplotlib: 'pip install clgemm[{extra}]'")
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.removeprefix(".").lower() not in known:
        found = f"unknown format {path.suffix}" if path.suffix else "it has no suffix"
        raise ValueError(f"{option} {path} cannot be drawn: {found} (known: {', '.join(known)})")
    require_writable(option, path)


def written(path: Path | None, content: str | Callable[[Path], object]) -> bool:
    """Write a file if one is named, and print one line if that fails.

    Parameters
    ----------
    content : str or callable
        A text, which gets a newline at its end, or what writes the file.

    Returns
    -------
    bool
        False if the file could not be written.
    """
    if path is None:
        return True
    try:
        if callable(content):
            content(path)
        else:
            path.write_text(content + "\n", encoding="utf-8")
    except OSError as error:
        print(f"{path} was not written: {error.strerror or error}", file=sys.stderr)
        return False
    return True


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


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> str:
    """Return a table as HTML, for notebooks; its texts are escaped.

    Parameters
    ----------
    heads : sequence of str
        The headings of the columns.
    rows : iterable of sequences of str
        The cells. A row of one cell is a heading across all columns.
    title : str, optional
        A sentence above it.
    """
    above = f"<p>{escape(title)}</p>" if title else ""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{_cells(row, len(heads))}</tr>" for row in rows)
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: Sequence[str], columns: int) -> str:
    if len(row) == 1:
        return f'<th colspan="{columns}" style="text-align: left">{escape(row[0])}</th>'
    return "".join(f"<td>{escape(text)}</td>" for text in row)


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
