"""Runs a program as Python does, with the same arguments, `__main__`, errors and exit code."""

from __future__ import annotations

import builtins
import code
import contextlib
import linecache
import os
import pkgutil
import runpy
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

OURS = str(Path(__file__).parent) + os.sep
NOT_FOUND = 2  # Python's exit code for a script that does not exist
# The function behind `python -m` and `python folder`; it has no public name.
_run_module_as_main = vars(runpy)["_run_module_as_main"]

_replaced: list[ModuleType] = []  # former `__main__` modules, referenced so that they live on


def run(program: str, arguments: Sequence[str], is_module: bool) -> None:
    """Run a script, a folder or archive with a ``__main__.py``, or a module as `__main__`.

    Parameters
    ----------
    program : str
        A path, or with `is_module` a module's name.
    arguments : sequence of str
        The program's arguments, for ``sys.argv``.

    Raises
    ------
    SystemExit
        If the program raises it, or if the program does not exist.
    BaseException
        The exception that ends the program. Its traceback is printed without clgemm's frames.
    """
    with _as_main(program, arguments) as main:
        if is_module:
            _run_module_as_main(program)
        elif pkgutil.get_importer(program) is not None:
            _enter(os.path.abspath(program), always=True)  # noqa: PTH100 - do not resolve links
            _run_module_as_main("__main__", False)
        else:
            _run_script(program, main)


def run_code(text: str, arguments: Sequence[str]) -> None:
    """Run a program's text as `__main__`, as ``python -c`` does.

    Raises
    ------
    BaseException
        As `run` does.
    """
    with _as_main_without_file("-c", arguments) as main:
        compiled = compile(text, "<string>", "exec")
        _show_in_tracebacks(compiled, text)
        exec(compiled, main.__dict__)


def run_input(arguments: Sequence[str]) -> None:
    """Run a program from the standard input as `__main__`, as ``python -`` does.

    Raises
    ------
    BaseException
        As `run` does.
    """
    with _as_main_without_file("-", arguments) as main:
        if sys.stdin.isatty():
            code.interact(local=main.__dict__, exitmsg="")
            return
        main.__dict__.update(__file__="<stdin>", __cached__=None)
        exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec"), main.__dict__)


@contextlib.contextmanager
def _as_main(first: str, arguments: Sequence[str]) -> Iterator[ModuleType]:
    """Install a new `__main__` module and ``sys.argv``, and hide clgemm's frames in tracebacks."""
    sys.argv[:] = [first, *arguments]
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    _replaced.append(sys.modules["__main__"])
    if "__annotations__" in vars(_replaced[-1]):  # depends on Python's version
        main.__dict__.update(__annotations__={})
    sys.modules["__main__"] = main
    try:
        yield main
    except BaseException:
        _hide_our_frames()
        raise


@contextlib.contextmanager
def _as_main_without_file(first: str, arguments: Sequence[str]) -> Iterator[ModuleType]:
    """Do the same for a program whose text is in no file: its imports begin in this folder."""
    with _as_main(first, arguments) as main:
        _enter("")
        main.__dict__["__loader__"] = BuiltinImporter
        yield main


def _show_in_tracebacks(compiled: CodeType, text: str) -> None:
    """Make tracebacks show the program's lines, as ``python -c`` does from Python 3.13 on."""
    if sys.version_info >= (3, 13):
        by_code = hasattr(linecache, "_interactive_cache")  # 3.13.0 registers by name
        register = vars(linecache)["_register_code"]  # it has no public name
        register(compiled if by_code else "<string>", text, "<string>")


def _run_script(program: str, main: ModuleType) -> None:
    path = os.path.abspath(program)  # noqa: PTH100 - like Python, do not resolve links
    try:
        if path.endswith(".pyc"):
            loader: Any = SourcelessFileLoader("__main__", path)
            program_code = loader.get_code("__main__")
        else:
            loader = SourceFileLoader("__main__", path)
            program_code = loader.source_to_code(loader.get_data(path), path)
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {path!r}: {reason}", file=sys.stderr)
        raise SystemExit(NOT_FOUND) from None
    _enter(str(Path(program).resolve().parent))
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    exec(program_code, main.__dict__)


def _enter(folder: str, always: bool = False) -> None:
    """Put the program's folder first in ``sys.path``, in place of the current folder."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
    elif always:
        sys.path.insert(0, folder)


def _hide_our_frames() -> None:
    """Install an excepthook that removes clgemm's frames from the traceback."""
    theirs = sys.excepthook  # Python's hook or the program's

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        trimmed = _trimmed(traceback)
        sys.last_traceback = trimmed
        theirs(kind, error.with_traceback(trimmed), trimmed)

    sys.excepthook = hook


def _trimmed(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the program's first frame on, without the frames of this package."""
    entries: list[TracebackType] = []
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file == __file__:
            entries.clear()  # the frames above belong to the start of clgemm.accel
        elif not file.startswith(OURS):
            entries.append(traceback)
        traceback = traceback.tb_next
    rest: TracebackType | None = None
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest
