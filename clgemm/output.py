"""Files that a command is asked to write: checked before it measures, written at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

__all__ = ["require_picture", "require_writable", "written"]


def require_writable(option: str, path: Path | None) -> None:
    """Fail now, not after minutes, if a file cannot be written.

    Parameters
    ----------
    option : str
        Of the command, by which the file was named.
    path : Path or None
        None if it was not: there is nothing to check.

    Raises
    ------
    ValueError
        If there is no folder for it, it is a folder itself, or permissions forbid it.
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
    """Fail now, not after minutes, if a picture cannot be drawn and written.

    Parameters
    ----------
    extra : str
        Of this package: what installs matplotlib.

    Raises
    ------
    ValueError
        If there is no matplotlib, it knows no pictures of such a suffix, or as `require_writable`
        does.
    """
    if path is None:
        return
    if find_spec("matplotlib") is None:
        raise ValueError(f"{option} takes matplotlib: 'pip install clgemm[{extra}]'")
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.removeprefix(".").lower() not in known:
        found = f"{path.suffix} is no kind of picture" if path.suffix else "it has no suffix"
        raise ValueError(f"{option} {path} cannot be drawn: {found} (known: {', '.join(known)})")
    require_writable(option, path)


def written(path: Path | None, write: Callable[[Path], object]) -> bool:
    """Write a file if one was named; if that fails after all, say so in one line.

    Returns
    -------
    bool
        Whether nothing failed.
    """
    if path is None:
        return True
    try:
        write(path)
    except OSError as error:
        print(f"{path} was not written: {error.strerror or error}", file=sys.stderr)
        return False
    return True
