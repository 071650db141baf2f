"""`explain`: what a product is expected to take on either side, and which one is taken."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from clgemm import products
from clgemm.side import decision, preparation
from clgemm.side.decision import Entry, Side

__all__ = ["Explanation", "explain"]

FUNCTIONS = {
    "@": "matmul",
    "matmul": "matmul",
    "dot": "dot",
    "ndarray.dot": "ndarray.dot",
    "inner": "inner",
}


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
        How often this program has made the product.
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
        lines.append(f"made before: {self.calls} times")
        if self.preparing:
            lines.append(self.preparing)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


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
        It prints as five lines: the side, both expected times, and how often the product was made.

    Raises
    ------
    ValueError
        If there is no such function.
    """
    if function not in FUNCTIONS:
        raise ValueError(f"function={function!r} is not one of {', '.join(map(repr, FUNCTIONS))}")
    if not all(type(x) in (np.ndarray, np.memmap) and x.dtype == np.float32 for x in (a, b)):
        return Explanation("host", "not two float32 arrays", NOTHING, NOTHING)
    entry = products.entry_of(FUNCTIONS[function], a, b)
    if isinstance(entry, str):
        return Explanation("host", entry, NOTHING, NOTHING)
    work = entry.work
    goes = decision.ruled(work)
    if goes is not None:
        where = "device" if goes else "host"
        return Explanation(where, "as CLGEMM_THRESHOLD or CLGEMM_SIDE says", NOTHING, NOTHING)
    return _explained(entry)


def _explained(entry: Entry) -> Explanation:
    on_device = preparation.state.is_open and entry.would_go()
    reason = "it is faster" if on_device else preparation.state.reason or entry.reason
    side = "device" if on_device else "host"
    host, device = entry.expected_host(), entry.expected_device()
    return Explanation(side, reason, host, device, entry.calls, preparation.progress())
