"""Running a program as Python itself would: its arguments, `__main__`, errors and exit code."""

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

__all__ = ["run", "run_code", "run_input"]

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
    with _as_main(program, arguments) as main:
        if is_module:
            _run_module_as_main(program)
        elif pkgutil.get_importer(program) is not None:
            _enter(os.path.abspath(program), always=True)  # noqa: PTH100 - as below
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
    """Let a new module be `__main__`, with these words in ``sys.argv``; hide our frames."""
    sys.argv[:] = [first, *arguments]
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    _replaced.append(sys.modules["__main__"])
    if "__annotations__" in vars(_replaced[-1]):  # Python's own has them from the start, or not
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
    """Let tracebacks show a program's lines, as those of ``python -c`` do from Python 3.13 on."""
    if sys.version_info >= (3, 13):
        by_code = hasattr(linecache, "_interactive_cache")  # 3.13.0 registers by name
        getattr(linecache, "_register_code")(  # noqa: B009 - it has no public name
            compiled if by_code else "<string>", text, "<string>"
        )


def _run_script(program: str, main: ModuleType) -> None:
    path = os.path.abspath(program)  # noqa: PTH100 - as Python does: nothing is resolved
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
    _enter(os.path.dirname(os.path.realpath(program)))  # noqa: PTH120 - as above
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    exec(program_code, main.__dict__)


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
