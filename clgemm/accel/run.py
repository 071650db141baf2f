"""Running a program as Python itself would: its arguments, `__main__`, errors and exit code."""

from __future__ import annotations

import builtins
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

__all__ = ["run"]

OURS = str(Path(__file__).parent) + os.sep
NOT_FOUND = 2  # Python's exit code
# What `python -m` and `python folder` call, in C; it has no public name.
_run_module_as_main = getattr(runpy, "_run_module_as_main")  # noqa: B009

_replaced: list[ModuleType] = []  # modules that were `__main__`: their names must live on


def run(program: str, arguments: Sequence[str], is_module: bool) -> None:
    """Run a script, a folder or archive with a ``__main__.py``, or a module as `__main__`.

    Parameters
    ----------
    program : str
        A path, or with `is_module` a module's name.
    arguments : sequence of str
        What follows it in ``sys.argv``.

    Raises
    ------
    SystemExit
        As the program raises it, or if there is no such program.
    BaseException
        Whatever ends the program; its traceback will be printed without our frames.
    """
    sys.argv[:] = [program, *arguments]
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    _replaced.append(sys.modules["__main__"])
    if "__annotations__" in vars(_replaced[-1]):  # Python's own has them from the start, or not
        main.__dict__.update(__annotations__={})
    sys.modules["__main__"] = main
    try:
        if is_module:
            _run_module_as_main(program)
        elif pkgutil.get_importer(program) is not None:
            _enter(os.path.abspath(program), always=True)  # noqa: PTH100 - as below
            _run_module_as_main("__main__", False)
        else:
            _run_script(program, main)
    except BaseException:
        _hide_our_frames()
        raise


def _run_script(program: str, main: ModuleType) -> None:
    path = os.path.abspath(program)  # noqa: PTH100 - as Python does: nothing is resolved
    try:
        if path.endswith(".pyc"):
            loader: Any = SourcelessFileLoader("__main__", path)
            code = loader.get_code("__main__")
        else:
            loader = SourceFileLoader("__main__", path)
            code = loader.source_to_code(loader.get_data(path), path)
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {path!r}: {reason}", file=sys.stderr)
        raise SystemExit(NOT_FOUND) from None
    _enter(os.path.dirname(os.path.realpath(program)))  # noqa: PTH120 - as above
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    exec(code, main.__dict__)


def _enter(folder: str, always: bool = False) -> None:
    """Let imports begin in a program's folder in place of the current one."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
    elif always:
        sys.path.insert(0, folder)


def _hide_our_frames() -> None:
    """Let whatever prints the exception that is under way print the program's frames only."""
    theirs = sys.excepthook  # Python's, or the program's own

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        trimmed = _trimmed(traceback)
        sys.last_traceback = trimmed
        theirs(kind, error.with_traceback(trimmed), trimmed)

    sys.excepthook = hook


def _trimmed(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the program's first frame on, without the frames of this package."""
    kept: list[TracebackType] = []
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file == __file__:
            kept.clear()  # what is above is how Python came to run us
        elif not file.startswith(OURS):
            kept.append(traceback)
        traceback = traceback.tb_next
    rest: TracebackType | None = None
    for entry in reversed(kept):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest
