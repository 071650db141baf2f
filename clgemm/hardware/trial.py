"""Trials in child processes: whether a device works, and whether its kernels are right and built.

Some drivers list a device but cannot compile for it, crash, hang, or compute wrong results. So a
child process tries each kernel before this process uses it. `clgemm.hardware.supervisor` is that
process; its workers do the work and store the verdicts. It needs neither NumPy nor pyopencl here.

The program does not notice these processes: they are not its children, and have a process group of
their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import json
import logging
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clgemm.core.cache import kept_folder
from clgemm.core.host import usable_processors
from clgemm.core.threads import ForkableLock
from clgemm.hardware import supervisor

log = logging.getLogger(__name__)

MODULE = "clgemm.trials.worker"  # what workers run
START_SECONDS, JOB_SECONDS = 120.0, 45.0  # the time limits of workers
CORES_SHARE = 4  # one worker of low priority for so many cores
POLL_SECONDS = 0.05
# Packages that a worker imports: it finds them where this process does.
PACKAGES = ("clgemm", "numpy", "pyopencl", "pytools", "platformdirs", "filelock", "siphash24")

_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000
_WCLONE = -0x80000000  # waits for children that send no signal when they end
_STACK_BYTES = 2**18


class UncheckedError(RuntimeError):
    """A trial could not be run; that says nothing about the device."""


class _EndedError(UncheckedError):
    """The supervisor has ended, with jobs in hand or without."""


class _Helper:
    """The supervisor of this process, and what it has answered."""

    def __init__(self, is_urgent: bool, does_rest: bool, outlives: bool) -> None:
        self.begun = time.monotonic()
        self.devices: dict[str, Any] | None = None  # what the first worker has found
        self.status: dict[str, Any] = {}  # how far the work is
        self.answers: dict[int, dict[str, Any]] = {}  # those that nobody has taken
        self.has_ended = False
        self._unread, self._unsent = b"", b""
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        settings = {
            "requests": theirs_in,
            "answers": theirs_out,
            "parent": os.getpid(),
            "started": supervisor.started_at(os.getpid()),
            "packages": _packages(),
            "module": MODULE,
            "folder": _locks_folder(),
            "workers": max(1, usable_processors() // CORES_SHARE),
            "limits": (START_SECONDS, JOB_SECONDS),
            "urgent": is_urgent,
            "first": True,
            "rest": does_rest,
            "outlives": outlives,
        }
        try:
            _spawn(_command(settings), (theirs_in, theirs_out))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        os.set_blocking(self._from, False)
        os.set_blocking(self._to, False)

    def send(self, message: dict[str, Any]) -> None:
        """Send a job, or as much of it as the pipe takes now."""
        self._unsent += (json.dumps(message) + "\n").encode()
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._to, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.has_ended = True

    def read(self) -> None:
        """Take in all that the supervisor has said; this never waits."""
        if self._unsent:
            self._flush()
        while not self.has_ended:
            try:
                content = os.read(self._from, 2**16)
            except BlockingIOError:
                return
            except OSError:
                content = b""
            if not content:
                self.has_ended = True
                return
            *lines, self._unread = (self._unread + content).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if "status" in message:
            self.status = message["status"]
        elif "ready" in message:
            self.devices = self.devices or message["ready"]
        else:
            if rejected := message.pop("rejected", None):
                _reject(rejected)
            self.answers[message["id"]] = message

    def wait(self, seconds: float) -> None:
        """Wait until it says something, for so many seconds at most."""
        if os.name == "nt":
            time.sleep(min(seconds, POLL_SECONDS))
        else:
            select.select([self._from], [], [], seconds)

    def close(self) -> None:
        """Close the pipes; the supervisor ends by itself."""
        for descriptor in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _reject(verdicts: list[dict[str, Any]]) -> None:
    """Take over the verdicts on what has failed; they may be on no disk."""
    from clgemm.records.verdicts import Verdict, store

    for each in verdicts:
        for key in each["key"]:
            store(key, Verdict(each["reason"], each["details"]), keep=False)


_lock = ForkableLock()
_helper: _Helper | None = None
_impossible = ""  # why no process can be started
_numbers = itertools.count()


def _heard() -> _Helper | None:
    """Return the supervisor of this process, which has been read; None if there is none."""
    with _lock:
        if _helper is not None:
            _helper.read()
        return _helper


def impossible() -> str:
    """Return why no trial can be run in this process; "" as far as is known that some can."""
    return _impossible


def is_running() -> bool:
    """Return whether a supervisor works for this process."""
    return _helper is not None and not _helper.has_ended


def start(is_urgent: bool = False, does_rest: bool = False, outlives: bool = False) -> bool:
    """Start a supervisor unless one runs, and its first worker; return whether one runs then.

    Parameters
    ----------
    is_urgent : bool, optional
        Whether somebody waits for it. Otherwise it gives way to all other processes.
    does_rest : bool, optional
        Whether it goes on with all that may be useful for the device.
    outlives : bool, optional
        Whether it does all jobs that it has, for up to `supervisor.OUTLIVES_SECONDS`, once this
        process has ended.
    """
    global _helper, _impossible
    with _lock:
        _heard()  # it ends by itself once it has had nothing to do for a while
        if is_running():
            return True
        if _helper is not None:
            _helper.close()
            _helper = None
        if _impossible:
            return False
        try:
            _helper = _Helper(is_urgent, does_rest, outlives)
        except (OSError, UncheckedError) as error:
            _impossible = str(error)
            return False
        return True


def request(name: str, is_urgent: bool = False, **arguments: Any) -> int | None:
    """Hand in a job, and return its number for `answers`; None if no process can be started.

    Parameters
    ----------
    name : str
        A method of the worker's server; `arguments` are its arguments.
    """
    with _lock:
        if not start(is_urgent):
            return None
        assert _helper is not None
        number = next(_numbers)
        job = {"id": number, "ask": name, "with": arguments, "urgent": is_urgent}
        _helper.send(job)
        return number


def answers() -> dict[int, dict[str, Any]]:
    """Return the answers that nobody has taken, by number: whoever uses one deletes it."""
    helper = _heard()
    return {} if helper is None else helper.answers


def wait(number: int) -> dict[str, Any]:
    """Wait for the answer to a job.

    Raises
    ------
    UncheckedError
        If there is none: the supervisor was ended.
    """
    while True:
        with _lock:
            helper = _helper
            if helper is None:
                raise UncheckedError("the trial was given up")
            helper.read()
            if (found := helper.answers.pop(number, None)) is not None:
                return found
            if helper.has_ended:
                raise _EndedError("the trial's process was ended")
        helper.wait(POLL_SECONDS)


def ask(name: str, **arguments: Any) -> dict[str, Any]:
    """Have a job done at once and return its answer.

    Raises
    ------
    UncheckedError
        If it could not be done, for a reason that says nothing about the device.
    """
    try:
        found = _asked(name, arguments)
    except _EndedError:  # perhaps it was just about to end by itself
        found = _asked(name, arguments)
    if found.get("outcome") == "unchecked":
        raise UncheckedError(found["reason"])
    return found


def _asked(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    number = request(name, is_urgent=True, **arguments)
    if number is None:
        raise UncheckedError(_impossible)
    return wait(number)


def status() -> dict[str, Any]:
    """Return how far the background work is; empty if there is none.

    ``done`` and ``total`` count jobs, ``doing`` names those in progress, ``seconds`` is the time
    since the supervisor was started.
    """
    helper = _heard()
    if helper is None or helper.has_ended:
        return {}
    return helper.status | {"seconds": time.monotonic() - helper.begun}


def found_devices() -> dict[str, Any] | None:
    """Return what a worker has found: the devices and the chosen one; None if nothing yet."""
    helper = _heard()
    return None if helper is None else helper.devices


def stop() -> None:
    """End the supervisor of this process, as soon as it has finished what it is doing."""
    global _helper, _impossible
    with _lock:
        if _helper is not None:
            _helper.close()
        _helper, _impossible = None, ""


def _forget() -> None:
    """Leave the parent's supervisor alone, in a forked child."""
    global _helper
    if _helper is not None:
        _helper.close()
        _helper = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _locks_folder() -> str | None:
    """Return the folder for the places of workers; None if there is none."""
    folder = kept_folder() / "workers"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(folder)


def _packages() -> dict[str, str]:
    """Return the folders where this process finds the packages that a worker imports, by name.

    A worker takes them from there, and not another copy of clgemm. For all else it looks there
    after all other places, so that the program's own modules, which may lie there too, hide none
    of Python's.
    """
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                place = Path(spec.origin).absolute().parent
                found[name] = str(place.parent if spec.submodule_search_locations else place)
    return found


def _command(settings: dict[str, Any]) -> list[str]:
    if getattr(sys, "frozen", False):
        raise UncheckedError("this program is frozen: it has no Python to start")
    script = supervisor.__file__
    if not os.path.isfile(script):  # noqa: PTH113 - quicker
        raise UncheckedError(f"{script} is not a file")
    return [_python(), "-I", "-S", script, "supervise", json.dumps(settings)]


def _python() -> str:
    """Return the path of Python's interpreter, which need not be what runs this process.

    Raises
    ------
    UncheckedError
        If it is not found.
    """
    folder, name = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python3")
    candidates = [sys.executable, getattr(sys, "_base_executable", "")]
    candidates += [os.path.join(prefix, folder, name) for prefix in (sys.prefix, sys.base_prefix)]  # noqa: PTH118
    for path in candidates:
        if path and "python" in os.path.basename(path).lower() and os.access(path, os.X_OK):  # noqa: PTH119
            return path
    raise UncheckedError(f"no Python interpreter was found: sys.executable is {sys.executable!r}")


def _spawn(command: list[str], descriptors: tuple[int, int]) -> None:
    """Start a process that is no child of this one, with two open descriptors.

    Raises
    ------
    OSError
        If it cannot be started.
    """
    if os.name == "nt":
        _spawn_on_windows(command, descriptors)
        return
    # The shell leaves the command to the system's first process, and ends.
    text = " ".join(map(shlex.quote, command))
    text = f"exec </dev/null >/dev/null 2>&1; {text} &"
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    try:
        if sys.platform == "linux":
            with contextlib.suppress(AttributeError):  # no such function in this C library
                _run_unnoticed(text)
                return
        process = subprocess.Popen(["/bin/sh", "-c", text], close_fds=False)
        if process.wait():
            raise OSError(f"/bin/sh ended with exit status {process.returncode}")
    finally:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)


def _run_unnoticed(text: str) -> None:
    """Run a shell command, without a signal to this process and without a child that it waits for.

    The C library's `clone` starts a process that shares this one's memory, runs `system` on a stack
    of its own and ends without a signal. This thread stands still meanwhile.
    """
    library = ctypes.CDLL(None, use_errno=True)
    clone, system = library.clone, library.system
    clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    top = ctypes.addressof(stack) + _STACK_BYTES - 64 & ~63
    argument = ctypes.create_string_buffer(os.fsencode(text))
    # In the process that shares memory, a signal's handler would count as this process's.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = clone(
            ctypes.cast(system, ctypes.c_void_p),
            top,
            _CLONE_VM | _CLONE_VFORK,
            ctypes.addressof(argument),
        )
        number = ctypes.get_errno()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if pid < 0:
        raise OSError(number, f"no process can be started: {os.strerror(number)}")
    _, status = os.waitpid(pid, _WCLONE)
    if status:
        raise OSError(f"no process can be started: /bin/sh ended with status {status}")


def _spawn_on_windows(command: list[str], descriptors: tuple[int, int]) -> None:
    import msvcrt

    windows: Any = subprocess
    handles = [msvcrt.get_osfhandle(each) for each in descriptors]  # type: ignore[attr-defined,unused-ignore]
    for handle in handles:
        os.set_handle_inheritable(handle, True)  # type: ignore[attr-defined,unused-ignore]
    flags = windows.CREATE_NO_WINDOW | windows.CREATE_NEW_PROCESS_GROUP
    startup = windows.STARTUPINFO(lpAttributeList={"handle_list": handles})
    settings = json.loads(command[-1]) | {"handles": handles}
    process = subprocess.Popen(
        [*command[:-1], json.dumps(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        startupinfo=startup,
        creationflags=flags,
    )
    process.returncode = 0  # nobody waits for it, and Python does not warn of that
