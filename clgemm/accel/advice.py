"""Why no product went to the device, in a sentence for the user who expected some to."""

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

REMEDY = "--measure measures it at once, --threshold N sets it in multiply-adds"
WHY = {
    UNOPENED: "its large products took {seconds:.2g} s together, and a device is opened once they "
    f"have taken {OPENING_SECONDS:g} s",
    UNMEASURED: "it was too short to measure from which size on the device is faster",
    SMALL: "its products are smaller than those that the device is faster at",
    SKINNY: "its products have sides too short for the device to be faster",
}
SETTLED = {
    NO_DEVICE: "there is no OpenCL device: 'python -m clgemm info' says what is here",
    FAILED: "the device failed: the log says why",
    ERROR: "the products failed there: the log says why",
}


def why_nothing(report: Report) -> str:
    """Return why nothing was offloaded and what changes that; "" if something was."""
    if report.offloaded:
        return ""
    seconds: dict[str, float] = {}
    for row in report.rows:
        seconds[row.reason] = seconds.get(row.reason, 0.0) + (row.seconds or 0.0)
    if not seconds:
        return "Nothing was offloaded: the program made no product with NumPy."
    for reason, why in SETTLED.items():
        if reason in seconds:
            return f"Nothing was offloaded: {why}."
    # What took longest is what matters.
    known = sorted(WHY.keys() & seconds.keys(), key=lambda reason: -seconds[reason])
    if not known:
        return "Nothing was offloaded: the device takes none of the program's products."
    why = WHY[known[0]].format(seconds=seconds[known[0]])
    return f"Nothing was offloaded: {why}; {REMEDY}."
