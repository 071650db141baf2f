"""`explain`: what a product is expected to take on either side, and which one is taken."""

from __future__ import annotations

from typing import Any, NamedTuple

from clgemm import products
from clgemm.core.settings import goes_by_rule
from clgemm.numpy_rules import ARRAYS
from clgemm.side import preparation
from clgemm.side.clock import Times

FUNCTIONS = "@", "matmul", "dot", "ndarray.dot", "inner"


class Side(NamedTuple):
    """A side's expected time.

    Attributes
    ----------
    us : float
        Microseconds; 0.0 if nothing is known.
    source : str
        Where that comes from.
    """

    us: float
    source: str


class Explanation(NamedTuple):
    """What a product is expected to take on either side, and which one is taken.

    Attributes
    ----------
    side : str
        ``"host"`` or ``"device"``.
    reason : str
        Why.
    host, device : Side
        The expected times, in microseconds, and where they come from.
    calls : int
        How often this program has computed the product.
    preparing : str
        How far the preparation of the device is; empty if nothing is being prepared.
    """

    side: str
    reason: str
    host: Side
    device: Side
    calls: int = 0
    preparing: str = ""

    def __str__(self) -> str:
        lines = [f"side: {self.side} ({self.reason})"]
        for name, side in (("host", self.host), ("device", self.device)):
            time = f"{side.us:,.0f} us, " if side.us else ""
            lines.append(f"{name}: {time}{side.source}")
        lines.append(f"made before, by this process: {self.calls} times")
        if self.preparing:
            lines.append(self.preparing)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        from clgemm.terminal import html_table

        rows = [
            (name, f"{side.us:,.0f} µs" if side.us else "", side.source)
            for name, side in (("host", self.host), ("device", self.device))
        ]
        told = f"{self.side} ({self.reason}); made before, by this process: {self.calls} times"
        title = "; ".join(filter(None, [told, self.preparing]))
        return html_table(("side", "expected", "where that comes from"), rows, title=title)


NOTHING = Side(0.0, "not compared")


def explain(function: str, a: Any, b: Any) -> Explanation:
    """Return which side a product of host arrays takes, and why.

    Parameters
    ----------
    function : {"matmul", "@", "dot", "inner"}
        NumPy's name of the product.
    a, b : ndarray
        The operands.

    Returns
    -------
    Explanation
        It prints as five lines: the side, both expected times, and how often the product was
        computed.

    Raises
    ------
    ValueError
        If there is no such function.
    """
    if function not in FUNCTIONS:
        raise ValueError(f"function={function!r} is not one of {', '.join(map(repr, FUNCTIONS))}")
    if not all(type(x) in ARRAYS for x in (a, b)):
        return Explanation("host", "not two of NumPy's own arrays", NOTHING, NOTHING)
    entry = products.entry_of("matmul" if function == "@" else function, a, b)
    if isinstance(entry, str):
        return Explanation("host", entry, NOTHING, NOTHING)
    goes = goes_by_rule(entry.work)
    if goes is not None:
        where = "device" if goes else "host"
        return Explanation(where, "as CLGEMM_THRESHOLD or CLGEMM_SIDE says", NOTHING, NOTHING)
    preparation.state.look_up(entry)
    is_faster = entry.is_faster_on_device()
    on_device = is_faster and preparation.state.is_open
    reason = "it is faster" if on_device else preparation.state.reason or entry.reason
    host_us, device_us = entry.expected_us()
    measured = "measured in another process" if entry.estimate_us else ""
    return Explanation(
        *("device" if on_device else "host", reason),
        Side(host_us, _source(host_us, entry.host)),
        Side(device_us, _source(device_us, entry.device, measured)),
        *(entry.calls + entry.untimed, preparation.progress()),
    )


def _source(us: float, times: Times, estimate: str = "") -> str:
    """Return where an expected time comes from."""
    if times.runs:
        return f"measured, {times.runs} times"
    if times.us:
        return "measured by an earlier run"
    return estimate or ("from products like it" if us else "unknown")
