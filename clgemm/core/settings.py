"""What a program has set: environment variables, numbers in arguments, and named devices."""

from __future__ import annotations

import math
import os
from contextvars import ContextVar
from typing import Any


class Variable:
    """An environment variable that every product looks up.

    ``os.environ.get`` raises and catches an exception for a variable that is not set. That is slow
    beside a small product, so `get` first looks the name up in the underlying dict: `key` in
    `values`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._environ = os.environ
        self.values = getattr(os.environ, "_data", os.environ)
        self.key = getattr(os.environ, "encodekey", str)(name)

    def get(self) -> str | None:
        """Return its value; None if it is not set."""
        # Another mapping may have taken the place of `os.environ`.
        if os.environ is self._environ and self.key not in self.values:
            return None
        return os.environ.get(self.name)


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


def require_threshold(value: Any) -> int | None:
    """Return the argument `threshold` as an int, or None if it is not given.

    Parameters
    ----------
    value : int, whole float such as 1e6, or None

    Raises
    ------
    ValueError
        If it is negative or no whole number.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and (not isinstance(value, int) or value < 0):
        raise ValueError(f"threshold={value!r} is not a whole number of multiply-adds")
    return value


class Named:
    """The devices of `set_device`, and of the innermost `device` block, as `Device` objects."""

    def __init__(self) -> None:
        self.by_process: tuple[Any, ...] | None = None
        # Of a thread or task; None outside all blocks.
        self.by_block: ContextVar[tuple[Any, ...] | None] = ContextVar("device", default=None)

    def __call__(self) -> tuple[Any, ...] | None:
        """Return the devices that count now; None if the program has named none."""
        return self.by_block.get() or self.by_process


named = Named()
