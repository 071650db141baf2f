"""Parsing of settings from the command line and the environment."""

from __future__ import annotations

import math

__all__ = ["whole_number"]


def whole_number(text: str) -> int:
    """Return the whole number that a text holds, in any notation, such as ``1e6``.

    Raises
    ------
    ValueError
        If the text is negative, infinite, not whole or not a number. The message begins with the
        text.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value >= 0 and value.is_integer()):
        raise ValueError(f"{text!r} is not a whole number, such as 1000000 or 1e6")
    # A float would round whole numbers of more than 53 bits.
    return int(text) if text.strip().isdecimal() else int(value)
