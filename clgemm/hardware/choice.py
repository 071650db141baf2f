"""The choice of the device that multiplies host arrays; where there is none, why and what helps."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextvars import Token
from pathlib import Path
from typing import TypeAlias, cast
from weakref import WeakSet

import pyopencl as cl

from clgemm.core.cache import forget_plans, forgettable
from clgemm.core.settings import DEVICE_VARIABLE, Variable, named
from clgemm.hardware import runtimes, trial
from clgemm.hardware.device import Device, Present, identity, of_queue, present, where, wrapped
from clgemm.hardware.forks import require_unforked
from clgemm.records.verdicts import Verdict, about_device, discard, known, store

log = logging.getLogger(__name__)

_variable = Variable(DEVICE_VARIABLE)
ALL = "all"
EXTRA = "pip install 'clgemm[cpu]'"
X86 = ("x86_64", "AMD64")

Spec: TypeAlias = str | int | Device | cl.Device | cl.Context | cl.CommandQueue


class BrokenDeviceError(RuntimeError):
    """A device does not work; the message says why and what helps."""


class NoDeviceError(RuntimeError):
    """The machine has no OpenCL device, or none that works."""


def devices() -> tuple[Device, ...]:
    """Return the OpenCL devices that work, the default one first.

    Each device is checked once for this driver and processor: a child process multiplies small
    matrices on it, which takes a second or more. The verdict is stored on disk.

    Returns
    -------
    tuple of Device
        Empty if none works. GPUs come first. Devices of one kind are sorted by compute units times
        vector width, the largest first.
    """
    here = present().devices
    return tuple(d for d, verdict in zip(here, checked(here), strict=True) if not verdict.reason)


def failed_devices() -> dict[Device, str]:
    """Return the devices that do not work, each with the reason."""
    here = present().devices
    found = zip(here, checked(here), strict=True)
    return {d: verdict.reason for d, verdict in found if verdict.reason}


def checked(wanted: Sequence[Device]) -> list[Verdict]:
    """Return the verdicts on devices. Those that have none yet are checked, all at the same time.

    A verdict is valid for the device, its driver, the processor and pyopencl's version. A failure
    is valid for one day.
    """
    waiting = {
        d: trial.request("check", is_urgent=True, device=identity(d))
        for d in wanted
        if verdict_on(d) is None
    }
    return [verdict_on(d) or _answered(d, waiting[d]) for d in wanted]


def verdict_on(device: Device) -> Verdict | None:
    """Return the verdict on a device; None if it has not been checked."""
    return known(about_device(where(device)))


def _answered(device: Device, number: int | None) -> Verdict:
    """Wait for the verdict on a device. If none can be found, the device counts as working."""
    try:
        if number is None:
            raise trial.UncheckedError(trial.impossible())
        answer = trial.wait(number)
        if answer["outcome"] not in ("right", "failed"):  # a fault that nothing was to blame for
            raise trial.UncheckedError(answer["reason"])
        reason, details = answer.get("reason", ""), answer.get("details", "")
        abilities = (answer.get(name, False) for name in ("addresses", "in_place"))
        verdict = Verdict(reason, details, *abilities)
    except trial.UncheckedError as error:
        if (found := verdict_on(device)) is not None:  # it failed, and nobody could store that
            return found
        log.warning("%s is used unchecked: %s", device.label, error)
        verdict = Verdict()
    store(about_device(where(device)), verdict, keep=False)  # the child process keeps what it found
    _fresh.add(device)
    return verdict


def check_again() -> None:
    """Forget the verdicts on all devices, so that they are checked again."""
    for device in present().devices:
        discard(where(device))
    forget_plans()


_fresh: WeakSet[Device] = WeakSet()  # devices that were checked for this process


def takes_addresses(device: Device) -> bool:
    """Return whether kernels take addresses of host memory in place of buffers, as checked."""
    return device.claims_addresses and (verdict_on(device) or Verdict()).addresses


def _is_broken(device: Device) -> bool:
    """Return whether a device is known not to work."""
    return bool((verdict_on(device) or Verdict()).reason)


def _require_working(found: Device) -> Device:
    """Return the device; raise RuntimeError if it is known not to work."""
    if (verdict := verdict_on(found)) is not None and verdict.reason:
        raise broken(found, verdict)
    return found


def broken(device: Device, verdict: Verdict) -> BrokenDeviceError:
    """Return the error for a device that does not work."""
    error = BrokenDeviceError(
        f"{device.label} cannot be used: {verdict.reason}\nWhat helps: {remedy(device)}."
    )
    error.__cause__ = RuntimeError(verdict.details)
    return error


def no_device() -> NoDeviceError:
    """Return an error that says why no device works and what helps."""
    return NoDeviceError(_why_no_device(present(), tuple(failed_devices().items())))


@functools.lru_cache(maxsize=1)  # where no device works, each large product asks
def _why_no_device(here: Present, broken: tuple[tuple[Device, str], ...]) -> str:
    reasons = [f"{d.label} cannot be used: {why}" for d, why in broken]
    reasons += findings()
    lines = "".join(f"\n  {line}" for line in reasons)
    what = "works" if here.devices else "was found"
    return f"no OpenCL device {what} here.{lines}\nWhat helps: {remedy()}."


def remedy(broken: Device | None = None) -> str:
    """Return what a user can do on this machine to get an OpenCL device that works.

    Parameters
    ----------
    broken : Device, optional
        The device that does not work.
    """
    if broken is not None and broken.kind != "CPU":
        return "update the driver of this device"
    if sys.platform in ("linux", "win32") and platform.machine() in X86:
        has_all = {"intel-opencl-rt"} <= {runtime.package for runtime in runtimes.installed()}
        if not has_all:
            return f"{EXTRA} installs a runtime for this processor; a GPU's comes with its driver"
        if sys.platform == "win32":
            return "update intel-opencl-rt"
    if sys.platform == "linux":
        return (
            "install PoCL from the distribution (apt-get install pocl-opencl-icd) or from "
            "conda-forge (pocl); a GPU's runtime comes with its driver"
        )
    if sys.platform == "darwin":
        return "install pyopencl, pocl and ocl_icd_wrapper_apple from conda-forge"
    return "install the device maker's OpenCL driver; PyPI has no OpenCL runtime for this system"


def findings() -> list[str]:
    """Return the problems that keep OpenCL devices from being listed, one a line."""
    lines = []
    vendors = os.environ.get(runtimes.VENDORS)
    if vendors and not Path(vendors).exists():
        return [f"{runtimes.VENDORS}={vendors}: no such file or folder"]
    lines += [f"the platform {name!r} has no device" for name in present().empty]
    try:
        files = runtimes.icd_files() if sys.platform == "linux" else []
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return [*lines, f"{error.filename}: {error.strerror}"]
    loaded = {_without_version(line.split()[-1]) for line in maps.splitlines() if "/" in line}
    for file, library in files:
        if _without_version(library) in loaded:
            continue
        lines.append(f"{file}: {_why_not_loaded(library)}")
    return lines


def _without_version(library: str) -> str:
    """Return a library's file name up to ``.so``, since an ICD file may name a link to it."""
    return Path(library).name.partition(".so")[0]


@functools.cache  # if no device works, each large product calls this
def _why_not_loaded(library: str) -> str:
    """Return the system loader's message about a library, which a child process loads."""
    command = [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", library]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if child.returncode:
        said = child.stderr.strip().splitlines()
        return said[-1] if said else f"loading {library} ended with status {child.returncode}"
    return (
        "not in use: pyopencl listed its platforms before clgemm was imported, or this library is "
        "not an OpenCL runtime"
    )


def find_device(spec: Spec) -> Device:
    """Return the device that `spec` names.

    Parameters
    ----------
    spec : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue
        A string is ``"gpu"``, ``"cpu"``, a position in `devices()`, or a part of the name of a
        platform or device, in upper or lower case. A platform's name goes first.

    Raises
    ------
    ValueError
        If a string or number names no device; the message lists the devices that work.
    RuntimeError
        If there is no OpenCL device, or the named one is known not to work. None is checked here.
    TypeError
        If `spec` is of another type.
    """
    if isinstance(spec, Device):
        return _require_working(spec)
    if isinstance(spec, cl.CommandQueue):
        return _require_working(of_queue(spec))
    if isinstance(spec, cl.Context):
        return _require_working(wrapped(spec.devices[0], spec))
    if isinstance(spec, cl.Device):
        known = next((d for d in present().devices if d.cl_device == spec), None)
        return _require_working(known or Device(spec))
    if not isinstance(spec, str | int):
        raise TypeError(
            f"a device is named by a string, number or OpenCL object, not {type(spec).__name__}"
        )
    if not present().devices:
        raise no_device()
    wanted, there = str(spec).strip().lower(), _not_broken()
    if wanted.isdecimal():
        matches = list(there[int(wanted) : int(wanted) + 1])
    else:
        matches = matching(wanted, present().devices)
    if not wanted or not matches:
        if not there:
            raise no_device()
        listing = "; ".join(f"{i}: {d.name} ({d.kind}; {d.platform})" for i, d in enumerate(there))
        raise ValueError(f"{spec!r} names no OpenCL device; there is {listing}")
    working = (d for d in matches if not _is_broken(d))
    return next(working, None) or _require_working(matches[0])


def _not_broken() -> tuple[Device, ...]:
    """Return the devices that are not known to be broken, the default one first."""
    return tuple(d for d in present().devices if not _is_broken(d))


def matching(wanted: str, among: Iterable[Device]) -> list[Device]:
    """Return the devices of a kind, or those with a text in their name or platform.

    Those with the text in the platform come first: "intel" is Intel's runtime, although other
    runtimes have Intel's processors in the names of their devices.

    Parameters
    ----------
    wanted : str
        ``"gpu"``, ``"cpu"``, ``"accelerator"`` or another text, in lower case.
    """
    if wanted in ("gpu", "cpu", "accelerator"):
        return [d for d in among if d.kind.lower() == wanted]
    found = (d for d in among if wanted in f"{d.name} {d.platform}".lower())
    return sorted(found, key=lambda d: wanted not in d.platform.lower())


def find_devices(*specs: Spec) -> tuple[Device, ...]:
    """Return the devices that `specs` name, in their order.

    Parameters
    ----------
    *specs : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue
        As for `find_device`. A string may also be ``"all"``, or names with commas between them.
        ``"all"`` is every device that works and is of the kind of the fastest one: all GPUs, or
        all CPU devices where there is no GPU.

    Raises
    ------
    ValueError
        If a spec names no device, two name the same one, or there is none.
    RuntimeError, TypeError
        As `find_device`.
    """
    found = [each for spec in specs for each in _found(spec)]
    for i, each in enumerate(found):
        if any(each.cl_device == other.cl_device for other in found[:i]):
            named = ", ".join(repr(spec) for spec in specs)
            raise ValueError(f"{named} names {each.label} twice: a device takes part once")
    if not found:
        raise ValueError("no device is named")
    return tuple(found)


def _found(spec: Spec) -> tuple[Device, ...]:
    """Return the devices of one spec: one, those between commas, or all."""
    if not isinstance(spec, str):
        return (find_device(spec),)
    if spec.strip().lower() == ALL:
        there = _not_broken()
        if not there:
            raise no_device()
        return tuple(d for d in there if d.kind == there[0].kind)
    try:
        return (find_device(spec),)  # a name may have a comma in it
    except ValueError:
        if "," not in spec:
            raise
        return tuple(find_device(each) for each in spec.split(","))


@forgettable
@functools.cache
def _default(spec: str) -> tuple[Device, ...]:
    """Return the devices that the environment names, or the first one not known to be broken."""
    if spec:
        try:
            return find_devices(spec)
        except ValueError as error:
            raise ValueError(f"{DEVICE_VARIABLE}={error}") from None
        except RuntimeError as error:
            text = f"{DEVICE_VARIABLE}={spec}: {error}"
            raise type(error)(text) from error.__cause__
    if not (there := _not_broken()):
        raise no_device()
    for faulty in itertools.takewhile(_is_broken, present().devices):
        _warn(faulty, there[0])
    return there[:1]


def _warn(faulty: Device, instead: Device) -> None:
    """Log that a device is not used.

    It is a warning in each process if a device of another kind is used instead, and otherwise only
    in the process that checked the device.
    """
    verdict = verdict_on(faulty) or Verdict()
    loud = faulty in _fresh or faulty.kind != instead.kind
    log.log(
        logging.WARNING if loud else logging.INFO,
        "clgemm: %s cannot be used: %s. %s is used instead. What helps: %s.",
        *(faulty.label, verdict.reason, instead.label, remedy(faulty)),
    )


def get_device() -> Device:
    """Return the device that multiplies host arrays; the first one if several do.

    If it has not been checked yet, this waits for the check.

    It is the device of the innermost `device` block, of `set_device`, of the environment variable
    CLGEMM_DEVICE, or the fastest one that works, in this order.

    Raises
    ------
    RuntimeError
        If no OpenCL device works; the message says why and what helps. If CLGEMM_DEVICE names a
        device that does not work. If this process was forked from one that had opened OpenCL,
        where OpenCL would crash or hang.
    ValueError
        If CLGEMM_DEVICE names no device; the message lists the devices that work.
    """
    return get_devices()[0]


def get_devices() -> tuple[Device, ...]:
    """Return the devices that large products of host arrays are spread over.

    They are chosen like that of `get_device`, which is the first of them. `devices` lists all
    that work.

    Raises
    ------
    RuntimeError, ValueError
        As `get_device`.
    """
    while True:
        found = chosen()
        verdicts = zip(found, checked(found), strict=True)
        faulty = next((pair for pair in verdicts if pair[1].reason), None)
        if faulty is None:
            return found
        forget_plans()
        if chosen() == found:  # the user has named it
            raise broken(*faulty)


def chosen() -> tuple[Device, ...]:
    """Return the devices of `get_devices`, without waiting for a check.

    Raises
    ------
    RuntimeError, ValueError
        As `get_devices`, except that a device is taken to work until a check has failed.
    """
    require_unforked()
    return named() or _default(_variable.get() or "")


def reason() -> str:
    """Return why `get_device` returns its device."""
    if named.by_block.get():
        return "chosen by clgemm.device(...)"
    if named.by_process:
        return "chosen by clgemm.set_device(...)"
    if os.environ.get(DEVICE_VARIABLE):
        return f"named by {DEVICE_VARIABLE}={os.environ[DEVICE_VARIABLE]}"
    return "the fastest device that works: GPUs first, then by compute units x vector width"


def set_device(*specs: Spec | None) -> None:
    """Multiply host arrays on this device, or these, from now on, in every thread.

    Parameters
    ----------
    *specs : str, int, Device, pyopencl.Device, pyopencl.Context, pyopencl.CommandQueue or None
        ``"gpu"``, ``"cpu"``, a position in `devices()`, a part of the name of a platform or device,
        or an object of pyopencl. With several, large products are spread over all of them, and
        small ones go to the first. ``"all"`` is every GPU, or every CPU device where there is no
        GPU. None alone restores the default.

    Raises
    ------
    ValueError
        If a spec names no device, or two name the same one.
    RuntimeError
        If no OpenCL device works, or a named one does not.
    TypeError
        If a spec is of another type, or there is none. After any error the devices are the same
        as before.
    """
    if not specs:
        raise TypeError("set_device takes a device, several of them, or None for the default")
    devices = None if specs == (None,) else find_devices(*cast("tuple[Spec, ...]", specs))
    named.by_process = devices


class device(contextlib.ContextDecorator):
    """Multiply host arrays on another device, or on several, in a ``with`` block or a function.

    The choice holds for the current thread or task. Blocks may be nested. The block's value is the
    device, or the first of several.

    Parameters
    ----------
    *specs : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue
        As for `set_device`.

    Examples
    --------
    >>> with clgemm.device("cpu"):
    ...     c = clgemm.sgemm(1.0, a, b)
    >>> with clgemm.device("all"):
    ...     c = clgemm.sgemm(1.0, a, b)
    """

    def __init__(self, *specs: Spec) -> None:
        self._devices = find_devices(*specs)
        self._tokens: list[Token[tuple[Device, ...] | None]] = []

    def _recreate_cm(self) -> device:
        return device(*self._devices)  # each call of a decorated function restores for itself

    def __enter__(self) -> Device:
        self._tokens.append(named.by_block.set(self._devices))
        return self._devices[0]

    def __exit__(self, *exception: object) -> None:
        named.by_block.reset(self._tokens.pop())
