"""What is known of devices that share products: how fast each one is, and which has failed.

It lasts as long as the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Sequence
from weakref import WeakKeyDictionary

from clgemm.hardware.device import Device

__all__ = ["fit", "note_failure", "note_rate", "note_success", "pause_seconds", "rate_of"]

log = logging.getLogger(__name__)

# A device that fails takes no part for the first pause. Each further failure doubles the pause.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 600.0

_rates: WeakKeyDictionary[Device, dict[Hashable, float]] = WeakKeyDictionary()
# Devices that have failed: how often, and the monotonic time until which each takes no part.
_failed: WeakKeyDictionary[Device, tuple[int, float]] = WeakKeyDictionary()
_lock = threading.RLock()  # reentrant: a signal's handler may multiply


def rate_of(device: Device, kind: Hashable) -> float | None:
    """Return the multiply-adds a second of a device at a kind of product; None if unknown."""
    with _lock:
        return _rates.get(device, {}).get(kind)


def note_rate(device: Device, kind: Hashable, rate: float) -> None:
    """Note how fast a device has been."""
    with _lock:
        _rates.setdefault(device, {})[kind] = rate


def fit(devices: Sequence[Device]) -> list[Device]:
    """Return the devices that take part; all if each has failed just before."""
    now = time.monotonic()
    with _lock:
        here = [d for d in devices if d not in _failed or now >= _failed[d][1]]
    return here or list(devices)


def note_failure(device: Device, error: BaseException, others: Sequence[Device]) -> None:
    """Warn that a device has failed and that others have made the product; pause the device."""
    with _lock:
        failures = _failed.get(device, (0, 0.0))[0] + 1
        pause = pause_seconds(failures)
        _failed[device] = failures, time.monotonic() + pause
    log.warning(
        "clgemm: %s failed in the middle of a product (%s: %s). %s finished it. The device takes "
        "no part for %.0f seconds.",
        *(device.label, type(error).__name__, error, ", ".join(d.label for d in others), pause),
    )


def pause_seconds(failures: int) -> float:
    """Return how long a device is not used after so many failures in a row."""
    return float(min(FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 30), LONGEST_PAUSE_SECONDS))


def note_success(device: Device) -> None:
    """Note that a device has done its part."""
    with _lock:
        _failed.pop(device, None)
