"""Output files of the commands: checked before a measurement and written after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path


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
