"""A sentence for the user that explains why no product ran on the device."""

from __future__ import annotations

from clgemm.accel.routing import (
    ERROR,
    FAILED,
    NO_DEVICE,
    OPENING_SECONDS,
    SKINNY,
    UNMEASURED,
    UNOPENED,
)
from clgemm.accel.tally import SMALL, Report

__all__ = ["why_nothing"]

REMEDY = (
    "--measure measures now from which size on the device is faster, and --threshold N sets that "
    "size to N multiply-adds"
)
WHY = {
    UNOPENED: "its large products took {seconds:.2g} s together, and a device is opened for those "
    f"that take {OPENING_SECONDS:g} s",
    UNMEASURED: "it was too short to measure from which size on the device is faster",
    SMALL: "its products are smaller than those that the device is faster at",
    SKINNY: "its products have sides too short for the device to be faster",
}
FAULTS = {
    NO_DEVICE: "no OpenCL device works: 'python -m clgemm info' lists the devices and the reasons",
    FAILED: "the device failed: the log says why",
    ERROR: "the products failed inside clgemm: the log says why",
}


def why_nothing(report: Report) -> str:
    """Return why no product ran on the device and what the user can do; "" if one did."""
    if report.offloaded:
        return ""
    seconds: dict[str, float] = {}
    for row in report.rows:
        seconds[row.reason] = seconds.get(row.reason, 0.0) + (row.seconds or 0.0)
    if not seconds:
        return "Nothing was offloaded: the program made no product with NumPy."
    for reason, why in FAULTS.items():
        if reason in seconds:
            return f"Nothing was offloaded: {why}."
    # Name the reason of the products that took longest.
    known = sorted(WHY.keys() & seconds.keys(), key=lambda reason: -seconds[reason])
    if not known:
        return "Nothing was offloaded: the device can make none of the program's products."
    why = WHY[known[0]].format(seconds=seconds[known[0]])
    return f"Nothing was offloaded: {why}; {REMEDY}."
