"""How settings are read from text, on the command line and in the environment. Pure."""

from __future__ import annotations

import math

__all__ = ["whole_number"]


def whole_number(text: str) -> int:
    """Return the whole number that a text holds in any notation of numbers, such as ``1e6``.

    Raises
    ------
    ValueError
        If it is negative, infinite, no whole number or no number at all; begins with the text.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value >= 0 and value.is_integer()):
        raise ValueError(f"{text!r} is not a whole number, such as 1000000 or 1e6")
    return int(text) if text.strip().isdecimal() else int(value)  # digits keep all their places
