"""The check whether a device works, and its verdict on disk.

Some drivers list a device but cannot compile for it, crash, hang, or compute wrong results. So a
child process builds the default kernels and multiplies small matrices before the first use.
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
    Child,
    ChildDiedError,
    ChildTimeoutError,
    RequestError,
    telling_line,
    trial_child,
)
from clgemm.core.nesting import non_reentrant
from clgemm.hardware.device import Device
from clgemm.hardware.identity import identity
from clgemm.kernels import FAMILIES
from clgemm.records.record import kernels_hash
from clgemm.records.verdicts import START_SECONDS

__all__ = ["Verdict", "check", "reset", "takes_addresses"]

log = logging.getLogger(__name__)

CHECK_SECONDS = 45.0  # the time limit for each kernel family
MOST_REASON, MOST_DETAILS = 300, 4000  # characters
# What is stored of a verdict, with its type.
STORED = {"reason": str, "details": str, "date": str, "addresses": bool}


class Verdict(NamedTuple):
    """The result of checking a device.

    Attributes
    ----------
    reason : str
        Why the device cannot be used, in one line; empty if it works.
    details : str
        More about the reason, such as the compiler's log.
    date : str
        The date of the check.
    addresses : bool
        Whether its kernels take addresses of host memory in place of buffers, and are right.
    fresh : bool
        Whether this process checked the device; False if the verdict is from the disk.
    """

    reason: str
    details: str
    date: str
    addresses: bool = False
    fresh: bool = False


_lock = threading.RLock()
_known: dict[cl.Device, Verdict] = {}


def check(device: Device) -> Verdict:
    """Return the verdict on a device; check the device if there is none yet.

    A verdict is valid for the device, its driver, the processor, pyopencl's version and clgemm's
    kernels. A failure is valid for one day.
    """
    with _lock:
        if device.cl_device not in _known:
            key = _key(device)
            _known[device.cl_device] = _recalled(key) or _checked(device, key)
        return _known[device.cl_device]


def takes_addresses(device: Device) -> bool:
    """Tell whether kernels take addresses of host memory in place of buffers, and are right."""
    return device.claims_addresses and check(device).addresses


def reset() -> None:
    """Forget all verdicts, so that they are read from the disk again."""
    with _lock:
        _known.clear()


def _recalled(key: str) -> Verdict | None:
    """Return the verdict on disk, or None if there is none that is valid."""
    entry = recall(key)
    if not isinstance(entry, Mapping) or not all(
        isinstance(entry.get(name), kind) for name, kind in STORED.items()
    ):
        return None
    verdict = Verdict(**{name: entry[name] for name in STORED})
    return None if verdict.reason and verdict.date != _today() else verdict


@non_reentrant
def _checked(device: Device, key: str) -> Verdict:
    """Check a device and store the verdict on disk."""
    with contextlib.ExitStack() as stack:
        # Other processes wait for this verdict, unless the lock's file cannot be created.
        with contextlib.suppress(OSError):
            seconds = START_SECONDS + CHECK_SECONDS
            stack.enter_context(locked(kept_folder() / "devices", seconds))
        if (known := _recalled(key)) is not None:
            return known
        log.info("checking whether %s works", device.label)
        verdict = _fresh_verdict(device)
        if verdict is None:  # the check was impossible: use the device, but store nothing
            return _fresh()
        remember(key, {name: getattr(verdict, name) for name in STORED})
        return verdict


def _fresh(reason: str = "", details: str = "", addresses: bool = False) -> Verdict:
    """Return a verdict of today, cut to what is stored."""
    if len(reason) > MOST_REASON:
        reason = reason[: MOST_REASON - 3] + "..."
    return Verdict(reason, details[-MOST_DETAILS:], _today(), addresses, fresh=True)


def _fresh_verdict(device: Device) -> Verdict | None:
    """Check a device in a child process; return None if none can be started."""
    if getattr(sys, "frozen", False) or not sys.executable:
        return None  # in a frozen program, the executable is the program and not Python
    try:
        with trial_child(identity(device), "the check") as child:
            for family in child.ask("families", timeout_s=START_SECONDS):
                wrong = child.ask("check", timeout_s=CHECK_SECONDS, family=family)
                if wrong:
                    return _fresh(f"the kernel family {family!r}: {wrong}")
            return _fresh(addresses=_takes_addresses(device, child))
    except RequestError as error:
        return _fresh(telling_line(str(error)), str(error))
    except ChildTimeoutError:
        return _fresh(f"it did not multiply small matrices within {CHECK_SECONDS:g} s")
    except ChildDiedError as error:
        if "No module named" in str(error):  # the child cannot import clgemm or what it needs
            log.warning("%s is used unchecked: %s", device.label, error)
            return None
        return _fresh(str(error), error.details)
    except OSError as error:
        log.warning("%s is used unchecked: %s", device.label, error)
        return None


def _takes_addresses(device: Device, child: Child) -> bool:
    """Tell whether a child multiplies right with addresses. If not, buffers serve as well."""
    try:
        return bool(child.ask("addresses", timeout_s=CHECK_SECONDS))
    except (RequestError, ChildDiedError, OSError) as error:
        log.warning("%s takes buffers, not addresses: %s", device.label, telling_line(str(error)))
        return False


def _key(device: Device) -> str:
    d = device.cl_device
    names = sorted(family.name for family in FAMILIES if not family.instructions)
    hashes = [kernels_hash(name) for name in names]
    parts = (_processor(), cl.VERSION_TEXT, hashes, *identity(device)[2:])
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return f"works: {device.name}, {device.platform}, driver {d.driver_version}: {digest}"


def _processor() -> str:
    """Return the processor's model, stepping and extensions, which determine compiled code."""
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
