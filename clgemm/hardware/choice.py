"""The choice of the device that multiplies host arrays."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterable
from contextvars import ContextVar, Token
from typing import TypeAlias, cast

import pyopencl as cl

from clgemm.core.settings import Variable
from clgemm.hardware import health
from clgemm.hardware.device import Device, Present, of_queue, present, wrapped
from clgemm.hardware.diagnosis import findings, remedy
from clgemm.hardware.forks import require_unforked

__all__ = [
    "NoDeviceError",
    "device",
    "devices",
    "find_device",
    "find_devices",
    "get_device",
    "get_devices",
    "left_out",
    "matching",
    "no_device",
    "reason",
    "set_device",
]

log = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE = "CLGEMM_DEVICE"
_variable = Variable(ENVIRONMENT_VARIABLE)
ALL = "all"

Spec: TypeAlias = str | int | Device | cl.Device | cl.Context | cl.CommandQueue


class NoDeviceError(RuntimeError):
    """The machine has no OpenCL device, or none that works."""


@functools.cache
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
    return tuple(d for d in present().devices if not health.check(d).reason)


def left_out() -> dict[Device, str]:
    """Return the devices that do not work, each with the reason."""
    verdicts = {d: health.check(d) for d in present().devices}
    return {d: verdict.reason for d, verdict in verdicts.items() if verdict.reason}


def _require_working(found: Device) -> Device:
    """Return the device if it works; raise RuntimeError otherwise."""
    verdict = health.check(found)
    if verdict.reason:
        raise RuntimeError(
            f"{found.label} cannot be used: {verdict.reason}\nWhat helps: {remedy(found)}."
        ) from RuntimeError(verdict.details)
    return found


def no_device() -> NoDeviceError:
    """Return an error that says why no device works and what helps."""
    return NoDeviceError(_why_no_device(present(), tuple(left_out().items())))


@functools.lru_cache(maxsize=1)  # where no device works, each large product asks
def _why_no_device(here: Present, broken: tuple[tuple[Device, str], ...]) -> str:
    reasons = [f"{d.label} cannot be used: {why}" for d, why in broken]
    reasons += findings()
    lines = "".join(f"\n  {line}" for line in reasons)
    what = "works" if here.devices else "was found"
    return f"no OpenCL device {what} here.{lines}\nWhat helps: {remedy()}."


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
        If no OpenCL device works, or the named one does not.
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
    wanted = str(spec).strip().lower()
    if wanted.isdecimal():
        matches = list(devices()[int(wanted) : int(wanted) + 1])
    else:
        matches = matching(wanted, present().devices)
    if not wanted or not matches:
        if not devices():
            raise no_device()
        listing = "; ".join(
            f"{i}: {d.name} ({d.kind}; {d.platform})" for i, d in enumerate(devices())
        )
        raise ValueError(f"{spec!r} names no OpenCL device; there is {listing}")
    working = (d for d in matches if not health.check(d).reason)
    return next(working, None) or _require_working(matches[0])


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
        working = devices()
        if not working:
            raise no_device()
        return tuple(d for d in working if d.kind == working[0].kind)
    if "," not in spec:
        return (find_device(spec),)
    try:
        return (find_device(spec),)  # a name may have a comma in it
    except ValueError:
        return tuple(find_device(each) for each in spec.split(","))


# The devices of set_device, for the whole process.
_chosen: tuple[Device, ...] | None = None
# The devices of the innermost device(...) block, for this thread or task.
_scoped: ContextVar[tuple[Device, ...] | None] = ContextVar("clgemm_device", default=None)


@functools.cache
def _default(spec: str) -> tuple[Device, ...]:
    """Return the devices that the environment names, or the first one that works."""
    if spec:
        try:
            return find_devices(spec)
        except ValueError as error:
            raise ValueError(f"{ENVIRONMENT_VARIABLE}={error}") from None
        except RuntimeError as error:
            text = f"{ENVIRONMENT_VARIABLE}={spec}: {error}"
            raise type(error)(text) from error.__cause__
    faulty: list[Device] = []
    for candidate in present().devices:
        if not health.check(candidate).reason:
            for broken in faulty:
                _warn(broken, candidate)
            return (candidate,)
        faulty.append(candidate)
    raise no_device()


def _warn(broken: Device, instead: Device) -> None:
    """Log that a device is not used.

    It is a warning in each process if a device of another kind is used instead, and otherwise only
    in the process that checked the device.
    """
    verdict = health.check(broken)
    loud = verdict.fresh or broken.kind != instead.kind
    log.log(
        logging.WARNING if loud else logging.INFO,
        "clgemm: %s cannot be used: %s. %s is used instead. What helps: %s.",
        *(broken.label, verdict.reason, instead.label, remedy(broken)),
    )


def get_device() -> Device:
    """Return the device that multiplies host arrays; the first one if several do.

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
    require_unforked()
    return _scoped.get() or _chosen or _default(_variable.get() or "")


def reason() -> str:
    """Return why `get_device` returns its device."""
    if _scoped.get():
        return "chosen by clgemm.device(...)"
    if _chosen:
        return "chosen by clgemm.set_device(...)"
    if os.environ.get(ENVIRONMENT_VARIABLE):
        return f"named by {ENVIRONMENT_VARIABLE}={os.environ[ENVIRONMENT_VARIABLE]}"
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
    global _chosen
    if not specs:
        raise TypeError("set_device takes a device, several of them, or None for the default")
    _chosen = None if specs == (None,) else find_devices(*cast("tuple[Spec, ...]", specs))


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
        self._tokens.append(_scoped.set(self._devices))
        return self._devices[0]

    def __exit__(self, *exception: object) -> None:
        _scoped.reset(self._tokens.pop())
