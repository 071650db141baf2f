"""Run an unmodified program with accelerated NumPy: ``python -m clgemm.accel program.py``."""

from __future__ import annotations

import argparse
import atexit
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

from clgemm import __version__
from clgemm.core.imports import after_import, set_during_import

EPILOG = """
Without --threshold and --side, each product is computed where it takes less time. NumPy computes
all products until the device is ready, which child processes of low priority see to; what they have
built and measured is kept. 'python -m clgemm warmup' does all of that at once.
"""
NO_DEVICE = 2  # the exit code of `warmup` if no device works
# After a product, threads of NumPy's OpenBLAS spin for 2**28 cycles, a tenth of a second, and take
# cores from copies and launches. With this setting they sleep after 2**26, 20 to 30 milliseconds.
# Much sooner, programs that NumPy computes alone lose by waking them.
SPINNING = "OPENBLAS_THREAD_TIMEOUT", "26"

OURS = str(Path(__file__).parent) + os.sep  # the beginning of the names of our files
NOT_FOUND = 2  # Python's exit code for a script that does not exist
# The function behind `python -m` and `python folder`; it has no public name.
_run_module_as_main = vars(runpy)["_run_module_as_main"]

_replaced: list[ModuleType] = []  # former `__main__` modules, referenced so that they live on


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program, and return the exit code unless the program ends the process."""
    parser = argparse.ArgumentParser(
        prog="python -m clgemm.accel", description=__doc__, epilog=EPILOG, allow_abbrev=False
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="count and time all products; print a table at the end",
    )
    parser.add_argument(
        "--threshold",
        metavar="N",
        help="use the device for products of N or more multiply-adds; 0: for all products",
    )
    parser.add_argument(
        "--device",
        metavar="D",
        help='"gpu", "cpu", a position or part of a name; "all", or several with commas',
    )
    parser.add_argument(
        "--side",
        choices=["auto", "host", "device"],
        help="compute products on the faster side (auto), by NumPy, or on the device, if it can",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="prepare the device first, as 'python -m clgemm warmup' does",
    )
    parser.add_argument(
        "--children",
        action="store_true",
        help="also accelerate Python processes that the program starts, unless they are forked",
    )
    parser.add_argument(
        "--progress",
        action="store_true",
        help="show on the error stream how far products are that take longer than two seconds",
    )
    parser.add_argument("--version", action="version", version=f"clgemm {__version__}")
    parser.add_argument(
        "-c",
        dest="code",
        nargs=argparse.REMAINDER,
        help="the program is this text; the rest of the line is its arguments",
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module")
    parser.add_argument(
        "program",
        nargs="?",
        help="a script, a folder, - for the standard input, or with -m a module",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")
    args = parser.parse_args(arguments)
    if args.code == []:
        parser.error("argument -c: expected a program")
    if args.code:
        args.program, args.arguments = args.code[0], args.code[1:]
    if args.program is None and not args.measure:
        parser.error("there is no program to run")
    try:
        install = _prepared(args)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    if args.program is None:
        return 0
    if args.profile:
        atexit.register(_print_report, os.getpid())
    # NumPy is accelerated once the program imports it: until then this process loads nothing.
    set_during_import("numpy", *SPINNING)
    after_import("numpy", install)
    if args.progress:
        from clgemm import progress
        from clgemm.terminal import show_share

        progress(show_share).__enter__()  # for the program's main thread, to its end
    if args.code:
        run_code(args.program, args.arguments)
    elif args.program == "-" and not args.is_module:
        run_input(args.arguments)
    else:
        run(args.program, args.arguments, args.is_module)
    return 0


def _prepared(args: argparse.Namespace) -> Any:
    """Check the arguments and the settings, and return a function that accelerates NumPy.

    Raises
    ------
    RuntimeError, ValueError
        As `install`.
    SystemExit
        If the device cannot be prepared first.
    """
    from clgemm.core.settings import least_of, require_settings, whole_number

    require_settings()
    device = None
    if args.threshold is not None:
        try:
            args.threshold = whole_number(args.threshold)
        except ValueError as error:
            raise ValueError(f"argument --threshold: {error}") from None
    if args.device is not None:
        from clgemm.core.settings import DEVICE_VARIABLE
        from clgemm.hardware.choice import find_devices, set_device

        chosen = find_devices(args.device)
        device = chosen[0] if len(chosen) == 1 else None
        if device is None:
            set_device(*chosen)
            os.environ[DEVICE_VARIABLE] = args.device  # of processes that the program starts
    if args.measure:
        from clgemm.trials.warm import main as warm

        with contextlib.redirect_stdout(sys.stderr):  # the other one is the program's
            code = warm(argparse.Namespace(device=args.device, json=False))
        if code == NO_DEVICE or (code and args.program is None):
            raise SystemExit(code)
    if args.children:  # at once: the program itself need not import NumPy
        from clgemm.accel.children import accelerate_children

        accelerate_children(least_of(args.threshold, args.side), device)

    def install() -> None:
        from clgemm.accel.session import install

        try:
            install(
                *(args.threshold, device),
                profile=args.profile,
                children=args.children,
                side=args.side,
            )
        except RuntimeError as error:  # in the program's import of NumPy, which must not fail
            print(f"clgemm: this process uses plain NumPy: {error}", file=sys.stderr)

    return install


def _print_report(process: int) -> None:
    if os.getpid() != process or "numpy" not in sys.modules:
        return
    from clgemm.accel.reporting import HEADS, advisor
    from clgemm.accel.session import report
    from clgemm.terminal import print_table

    found = report()
    rows = found.cells()
    for where, on_device in (("device", True), ("host", False)):
        side = [row for row in found.rows if (not row.reason) == on_device]
        calls, seconds = sum(row.calls for row in side), sum(row.seconds or 0 for row in side)
        rows.append(("all", f"{calls:,}", where, f"{seconds:.3f}"))
    with contextlib.redirect_stdout(sys.stderr):
        print_table(
            f"Matrix products on {found.device or 'the host alone'}",
            HEADS,
            ("left", "right", "left", "right"),
            rows,
        )
        sentences = found.why_nothing, found.saved, found.preparing, found.children, *found.left_out
        sentences = *sentences, *advisor.sentences()
        for sentence in filter(None, sentences):
            print(sentence)


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
    runners = {each.__code__ for each in (run, run_code, run_input, _run_script)}
    entries: list[TracebackType] = []
    while traceback is not None:
        running = traceback.tb_frame.f_code
        if running in runners:
            entries.clear()  # the frames above belong to the start of clgemm.accel
        elif not running.co_filename.startswith(OURS):
            entries.append(traceback)
        traceback = traceback.tb_next
    rest: TracebackType | None = None
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


if __name__ == "__main__":
    sys.exit(main())
