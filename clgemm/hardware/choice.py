"""Choosing the device that host operands are computed on, among those that work."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from contextvars import ContextVar, Token

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
    "get_device",
    "left_out",
    "no_device",
    "reason",
    "set_device",
]

log = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE = "CLGEMM_DEVICE"
_variable = Variable(ENVIRONMENT_VARIABLE)


class NoDeviceError(RuntimeError):
    """No OpenCL device is here, or none of them works."""


@functools.cache
def devices() -> tuple[Device, ...]:
    """Return the OpenCL devices that work, the default one first.

    Each is checked when it is first met with this driver and processor: a child process multiplies
    small matrices on it, which takes a second or more. The verdict is kept on disk.

    Returns
    -------
    tuple of Device
        Empty where none works. GPUs come before other devices, then the one with more compute
        units times vector width.
    """
    return tuple(d for d in present().devices if not health.check(d).reason)


def left_out() -> dict[Device, str]:
    """Return the devices that do not work, and why."""
    verdicts = {d: health.check(d) for d in present().devices}
    return {d: verdict.reason for d, verdict in verdicts.items() if verdict.reason}


def _require_working(found: Device) -> Device:
    """Return a device, or raise RuntimeError if it does not work."""
    verdict = health.check(found)
    if verdict.reason:
        raise RuntimeError(
            f"{found.label} cannot be used: {verdict.reason}\nWhat helps: {remedy(found)}."
        ) from RuntimeError(verdict.details)
    return found


def no_device() -> NoDeviceError:
    """Return the error that says why there is no device, and what helps."""
    return NoDeviceError(_why_no_device(present(), tuple(left_out().items())))


@functools.lru_cache(maxsize=1)  # where no device works, each large product asks
def _why_no_device(here: Present, broken: tuple[tuple[Device, str], ...]) -> str:
    reasons = [f"{d.label} cannot be used: {why}" for d, why in broken]
    reasons += findings()
    lines = "".join(f"\n  {line}" for line in reasons)
    what = "works" if here.devices else "was found"
    return f"no OpenCL device {what} here.{lines}\nWhat helps: {remedy()}."


def find_device(spec: str | int | Device | cl.Device | cl.Context | cl.CommandQueue) -> Device:
    """Return the device that `spec` names.

    Parameters
    ----------
    spec : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue
        A string is ``"gpu"``, ``"cpu"``, a position in `devices()`, or a part of a device's or
        platform's name, in any case.

    Raises
    ------
    ValueError
        If a string or number names no device; the message lists what there is.
    RuntimeError
        If there is no OpenCL device at all, or the named one does not work.
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
    elif wanted in ("gpu", "cpu", "accelerator"):
        matches = [d for d in present().devices if d.kind.lower() == wanted]
    else:
        matches = [d for d in present().devices if wanted in f"{d.name} {d.platform}".lower()]
    if not wanted or not matches:
        if not devices():
            raise no_device()
        listing = "; ".join(
            f"{i}: {d.name} ({d.kind}; {d.platform})" for i, d in enumerate(devices())
        )
        raise ValueError(f"{spec!r} names no OpenCL device; there is {listing}")
    working = (d for d in matches if not health.check(d).reason)
    return next(working, None) or _require_working(matches[0])


_chosen: Device | None = None  # by set_device, for the whole process
_scoped: ContextVar[Device | None] = ContextVar("clgemm_device", default=None)  # by device(...)


@functools.cache
def _default(spec: str) -> Device:
    """Return the device that the environment names, or the first one that works."""
    if spec:
        try:
            return find_device(spec)
        except ValueError as error:
            raise ValueError(f"{ENVIRONMENT_VARIABLE}={error}") from None
        except RuntimeError as error:
            text = f"{ENVIRONMENT_VARIABLE}={spec}: {error}"
            raise type(error)(text) from error.__cause__
    passed_over: list[Device] = []
    for candidate in present().devices:
        if not health.check(candidate).reason:
            for broken in passed_over:
                _warn(broken, candidate)
            return candidate
        passed_over.append(candidate)
    raise no_device()


def _warn(broken: Device, instead: Device) -> None:
    """Say that a device is left out: each time if a slower kind serves, else the first time."""
    verdict = health.check(broken)
    loud = verdict.fresh or broken.kind != instead.kind
    log.log(
        logging.WARNING if loud else logging.INFO,
        "clgemm: %s cannot be used: %s. %s is used instead. What helps: %s.",
        *(broken.label, verdict.reason, instead.label, remedy(broken)),
    )


def get_device() -> Device:
    """Return the device that host operands are computed on: scoped, set, or the default.

    Raises
    ------
    RuntimeError
        If no OpenCL device works; the message says why, and what helps. If CLGEMM_DEVICE names one
        that does not work. If this process was forked from one that had opened OpenCL: in its child
        OpenCL would crash, or hang.
    ValueError
        If the environment variable CLGEMM_DEVICE names none; the message lists what there is.
    """
    require_unforked()
    return _scoped.get() or _chosen or _default(_variable.get() or "")


def reason() -> str:
    """Say why `get_device` returns what it does."""
    if _scoped.get():
        return "chosen by clgemm.device(...)"
    if _chosen:
        return "chosen by clgemm.set_device(...)"
    if os.environ.get(ENVIRONMENT_VARIABLE):
        return f"named by {ENVIRONMENT_VARIABLE}={os.environ[ENVIRONMENT_VARIABLE]}"
    return "the fastest device that works: GPUs first, then by compute units x vector width"


def set_device(spec: str | int | Device | cl.Device | cl.Context | cl.CommandQueue | None) -> None:
    """Compute host operands on this device from now on, in every thread.

    Parameters
    ----------
    spec : str, int, Device, pyopencl.Device, pyopencl.Context, pyopencl.CommandQueue or None
        As ``"gpu"``, ``"cpu"``, a position in `devices()`, a part of a device's or platform's
        name, or an object of pyopencl. None goes back to the default.

    Raises
    ------
    ValueError, RuntimeError, TypeError
        As `spec` names no device, there is none, or it is of a wrong type; nothing changes.
    """
    global _chosen
    _chosen = None if spec is None else find_device(spec)


class device(contextlib.ContextDecorator):  # noqa: N801 - used as a function, like numpy.errstate
    """Compute host operands on another device within a ``with`` block or a function.

    Parameters
    ----------
    spec : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue
        As for `set_device`. It holds for the current thread or task and may be nested.

    Examples
    --------
    >>> with clgemm.device("cpu"):
    ...     c = clgemm.sgemm(1.0, a, b)
    """

    def __init__(self, spec: str | int | Device | cl.Device | cl.Context | cl.CommandQueue) -> None:
        self._device = find_device(spec)
        self._tokens: list[Token[Device | None]] = []

    def _recreate_cm(self) -> device:
        return device(self._device)  # each call of a decorated function restores for itself

    def __enter__(self) -> Device:
        self._tokens.append(_scoped.set(self._device))
        return self._device

    def __exit__(self, *exception: object) -> None:
        _scoped.reset(self._tokens.pop())
