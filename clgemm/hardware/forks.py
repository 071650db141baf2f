"""Whether this process may use OpenCL objects: not those of the process that it was forked from.

OpenCL's runtimes do not survive a fork: in the child their threads are gone and their locks may be
held for ever, so that the first command hangs or crashes.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pyopencl as cl

__all__ = ["FORKED", "opened", "require_unforked"]

FORKED = (
    "OpenCL cannot be used in a process forked from one that had opened it: start the process by "
    "'spawn' or 'forkserver'"
)
MAPS = Path("/proc/self/maps")

_opened = False  # by this process or one that it was forked from
_forked = False  # from a process that had opened OpenCL
# The files that were in memory when this process was forked; None if it was not, or cannot know.
_files_at_fork: frozenset[str] | None = None
_checked: set[int] = set()  # platforms that were opened after the fork


def opened() -> None:
    """Note that this process has OpenCL objects."""
    global _opened
    _opened = True


def require_unforked(context: cl.Context | None = None) -> None:
    """Raise RuntimeError if this process was forked from one that had opened OpenCL.

    Parameters
    ----------
    context : pyopencl.Context, optional
        A user's own. The process that this one was forked from may have opened OpenCL without us.
    """
    if _forked:
        raise RuntimeError(FORKED)
    if context is not None and _files_at_fork is not None and _is_from_before(context):
        raise RuntimeError(FORKED)


def _is_from_before(context: cl.Context) -> bool:
    """Tell whether the context's runtime was in memory when this process was forked.

    A platform begins with the address of its runtime's table of functions (cl_khr_icd).
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
    else:  # NVIDIA's table is in no file: any OpenCL library but the loader will do
        names = (Path(file).name.lower() for file in _files_at_fork or ())
        if any("opencl" in name and not name.startswith("libopencl") for name in names):
            return True
    _checked.add(platform)
    return False


def _mapped() -> list[tuple[str, str]]:
    """Return the addresses of each file that is in memory, and its name."""
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
