"""The devices that a program has named. `clgemm.hardware.choice` finds them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

__all__ = ["Named", "named"]


class Named:
    """The devices of `set_device`, and of the innermost `device` block.

    Attributes
    ----------
    by_process : tuple of Device or None
        For the whole process.
    by_block : ContextVar
        For a thread or task; None outside all blocks.
    """

    def __init__(self) -> None:
        self.by_process: tuple[Any, ...] | None = None
        self.by_block: ContextVar[tuple[Any, ...] | None] = ContextVar("device", default=None)

    def __call__(self) -> tuple[Any, ...] | None:
        """Return the devices that count now; None if the program has named none."""
        return self.by_block.get() or self.by_process


named = Named()
