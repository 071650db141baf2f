"""Detection of OpenCL objects from before a fork, which a process must not use.

OpenCL runtimes do not survive a fork. The child process has none of their threads, and their locks
may stay locked for ever, so the first command hangs or crashes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyopencl as cl

FORKED = (
    "OpenCL cannot be used in a process forked from one that had opened it: start the process with "
    "'spawn' or 'forkserver'"
)
MAPS = Path("/proc/self/maps")

_opened = False  # whether this process, or one that it was forked from, has opened OpenCL
_forked = False  # whether this process was forked from one that had opened OpenCL
# The files in memory when this process was forked; None if it was not forked, or on systems where
# this cannot be found out.
_files_at_fork: frozenset[str] | None = None
_checked: set[int] = set()  # platforms that this process opened after the fork
_kept: list[object] = []  # what this process does not release, since it was forked


def opened() -> None:
    """Record that this process has OpenCL objects."""
    global _opened
    _opened = True


def keep_in_children(
    living: Callable[[], Iterable[object]], forget: Callable[[], object] | None = None
) -> None:
    """Keep objects of the parent process in forked children, where to release OpenCL's crashes.

    Parameters
    ----------
    living : callable
        Returns what has to be kept, in a child just after the fork.
    forget : callable, optional
        Called after that, so that the child finds none of them.
    """

    def keep() -> None:
        _kept.extend(living())
        if forget is not None:
            forget()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=keep)


def require_unforked(context: cl.Context | None = None) -> None:
    """Raise RuntimeError if this process was forked from one that had opened OpenCL.

    Parameters
    ----------
    context : pyopencl.Context, optional
        A context that the user made. The parent process may have opened OpenCL without clgemm.
    """
    if _forked:
        raise RuntimeError(FORKED)
    if context is not None and _files_at_fork is not None and _is_from_before(context):
        raise RuntimeError(FORKED)


def _is_from_before(context: cl.Context) -> bool:
    """Return whether the context's runtime was in memory when this process was forked.

    A platform object begins with the address of its runtime's function table (cl_khr_icd).
    """
    platform = context.devices[0].platform.int_ptr
    if platform in _checked:
        return False
    table = ctypes.c_void_p.from_address(platform).value or 0
    for addresses, file in _mapped():
        first, last = (int(address, 16) for address in addresses.split("-"))
        if first <= table < last:
            if file in (_files_at_fork or ()):
                return True
            break
    else:  # NVIDIA's table is in no file: look for any OpenCL library other than the loader
        names = (Path(file).name.lower() for file in _files_at_fork or ())
        if any("opencl" in name and not name.startswith("libopencl") for name in names):
            return True
    _checked.add(platform)
    return False


def _mapped() -> list[tuple[str, str]]:
    """Return the address range and the name of each file in memory."""
    lines = (line.split(maxsplit=5) for line in MAPS.read_text(errors="replace").splitlines())
    return [(words[0], words[5]) for words in lines if len(words) == 6 and words[5][0] == "/"]


def _after_fork() -> None:
    global _forked, _files_at_fork
    _forked = _forked or _opened
    _checked.clear()
    if _forked:
        return
    try:
        _files_at_fork = frozenset(file for _, file in _mapped())
    except OSError:  # no such file on this system
        _files_at_fork = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
