"""Whether a device works: checked once in a child process, and the verdict kept on disk.

Some drivers list a device and cannot compile for it, crash, hang, or compute wrong results. The
child process builds the default kernels and multiplies small matrices; a crash is the child's.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import platform
import sys
import threading
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pyopencl as cl

from clgemm.core.cache import kept_folder, locked, recall, remember
from clgemm.core.child import (
    ChildDiedError,
    ChildTimeoutError,
    RequestError,
    telling_line,
    trial_child,
)
from clgemm.core.nesting import alone
from clgemm.hardware.device import Device
from clgemm.hardware.identity import identity
from clgemm.kernels import FAMILIES
from clgemm.records.record import kernels_hash
from clgemm.records.verdicts import START_SECONDS

__all__ = ["Verdict", "check", "reset"]

log = logging.getLogger(__name__)

CHECK_SECONDS = 45.0  # for each kernel family
MOST_REASON, MOST_DETAILS = 300, 4000  # characters


class Verdict(NamedTuple):
    """What the check of a device found.

    Attributes
    ----------
    reason : str
        Why the device cannot be used, in one line; empty if it works.
    details : str
        What else is known: the compiler's log.
    date : str
        When it was checked.
    fresh : bool
        Whether it was checked just now, not read from disk.
    """

    reason: str
    details: str
    date: str
    fresh: bool = False


_lock = threading.RLock()
_known: dict[cl.Device, Verdict] = {}


def check(device: Device) -> Verdict:
    """Return whether a device works, checking it if this is not known yet.

    A verdict is valid for the device, its driver, the processor, pyopencl's version and clgemm's
    kernels. A failure is valid for the day.
    """
    with _lock:
        if device.cl_device not in _known:
            key = _key(device)
            _known[device.cl_device] = _recalled(key) or _checked(device, key)
        return _known[device.cl_device]


def reset() -> None:
    """Read verdicts anew from the disk."""
    with _lock:
        _known.clear()


def _recalled(key: str) -> Verdict | None:
    """Return the verdict on disk, if there is one that is still valid."""
    entry = recall(key)
    if not isinstance(entry, Mapping) or not all(
        isinstance(entry.get(name), str) for name in ("reason", "details", "date")
    ):
        return None
    verdict = Verdict(entry["reason"], entry["details"], entry["date"])
    return None if verdict.reason and verdict.date != _today() else verdict


@alone
def _checked(device: Device, key: str) -> Verdict:
    """Check a device, and keep the verdict on disk."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # other processes wait for this verdict, if they can
            seconds = START_SECONDS + CHECK_SECONDS
            stack.enter_context(locked(kept_folder() / "devices", seconds))
        if (known := _recalled(key)) is not None:
            return known
        log.info("checking whether %s works", device.label)
        failure = _failure(device)
        if failure is None:  # nothing is known: there is no child process to be had
            return Verdict("", "", _today(), True)
        reason, details = failure
        if len(reason) > MOST_REASON:
            reason = reason[: MOST_REASON - 3] + "..."
        verdict = Verdict(reason, details[-MOST_DETAILS:], _today(), True)
        remember(key, {k: v for k, v in verdict._asdict().items() if k != "fresh"})
        return verdict


def _failure(device: Device) -> tuple[str, str] | None:
    """Return what goes wrong on a device, in one line and in detail; None if nobody can tell."""
    if getattr(sys, "frozen", False) or not sys.executable:
        return None  # a program that is not Python would start itself again
    try:
        with trial_child(identity(device), "the check") as child:
            for family in child.ask("families", timeout_s=START_SECONDS):
                wrong = child.ask("check", timeout_s=CHECK_SECONDS, family=family)
                if wrong:
                    return f"the kernel family {family!r}: {wrong}", ""
            return "", ""
    except RequestError as error:
        return telling_line(str(error)), str(error)
    except ChildTimeoutError:
        return f"it did not multiply small matrices within {CHECK_SECONDS:g} s", ""
    except ChildDiedError as error:
        if "No module named" in str(error):  # an environment that a child cannot be started in
            log.warning("%s is used without having been checked: %s", device.label, error)
            return None
        return str(error), error.details
    except OSError as error:
        log.warning("%s is used without having been checked: %s", device.label, error)
        return None


def _key(device: Device) -> str:
    d = device.cl_device
    names = sorted(family.name for family in FAMILIES if not family.instructions)
    hashes = [kernels_hash(name) for name in names]
    parts = (_processor(), cl.VERSION_TEXT, hashes, *identity(device)[2:])
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return f"works: {device.name}, {device.platform}, driver {d.driver_version}: {digest}"


def _processor() -> str:
    """Return what tells processors apart that compile differently: model, stepping, extensions."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            first = [line.partition(":") for line in itertools.takewhile(str.strip, file)]
    except OSError:
        return platform.processor()
    names = "vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features"
    found = {name.strip(): value.strip() for name, _, value in first}
    return ", ".join(found.get(name, "") for name in names)


def _today() -> str:
    return date.today().isoformat()
