"""What the user has set, by arguments, blocks and the environment: precision, side and devices.

`clgemm.hardware.choice` finds the devices, `clgemm.core.cache` the cache folder.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from contextvars import ContextVar, Token
from typing import Any, Literal, TypeAlias

Precision: TypeAlias = Literal["strict", "float32", "fast"]
PRECISIONS = ("strict", "float32", "fast")
PRECISION_VARIABLE = "CLGEMM_PRECISION"
THRESHOLD_VARIABLE, SIDE_VARIABLE = "CLGEMM_THRESHOLD", "CLGEMM_SIDE"
PREPARE_VARIABLE, DEVICE_VARIABLE = "CLGEMM_PREPARE", "CLGEMM_DEVICE"
SIDES = ("auto", "host", "device")
ALWAYS_HOST = 2**63  # multiply-adds: more than any product has


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
_scoped: ContextVar[str | None] = ContextVar("clgemm_precision", default=None)
_precision = Variable(PRECISION_VARIABLE)
_threshold, _side = Variable(THRESHOLD_VARIABLE), Variable(SIDE_VARIABLE)
# The variables' names in a dict that holds the environment, for a quick look.
NAMES, VALUES = (_threshold.key, _side.key), _threshold.values
_environ = os.environ


def chosen_precision(asked: str | None = None) -> str:
    """Return the precision of a product.

    The first of these that is set: `asked`, the ``with`` block, the environment, ``"float32"``.

    Raises
    ------
    ValueError
        If it is none of ``"strict"``, ``"float32"`` and ``"fast"``.
    """
    if asked:
        return require_precision(asked)
    return _scoped.get() or environment_precision() or "float32"  # both are checked


def require_precision(value: str, name: str = "precision") -> str:
    """Return a precision, or raise ValueError if there is no such precision.

    Parameters
    ----------
    name : str, optional
        The name of the argument or variable, for the message.
    """
    if value not in PRECISIONS:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(PRECISIONS)}")
    return value


def environment_precision() -> str | None:
    """Return the precision that the environment sets, or None.

    Raises
    ------
    ValueError
        If CLGEMM_PRECISION is none of ``"strict"``, ``"float32"`` and ``"fast"``.
    """
    chosen = _precision.get()
    return require_precision(chosen, PRECISION_VARIABLE) if chosen else None


def precision_and_source() -> tuple[str, str]:
    """Return the precision of products without a ``precision`` argument, and what sets it.

    Raises
    ------
    ValueError
        As `environment_precision` does.
    """
    if (scoped := _scoped.get()) is not None:
        return scoped, "clgemm.precision"
    if (chosen := environment_precision()) is not None:
        return chosen, PRECISION_VARIABLE
    return "float32", "default"


class precision(contextlib.ContextDecorator):
    """Set the precision of products in a ``with`` block or a function.

    With u = 2**-24 and gamma(n) = n u / (1 - n u):

    ``"strict"``
        IEEE single-precision multiply-adds only.
    ``"float32"``
        The default. The error of each element of C is at most gamma(k + 64) times that element of
        |alpha| |A| |B| + |beta| |C|. This holds for all finite A, B and C, as long as nothing
        overflows or underflows. Inf and NaN stand where IEEE arithmetic puts them.
    ``"fast"``
        For A and B below 2**78. The error of element (i, j) of A B is at most gamma(k + 128) times
        a sum over the blocks of 64 along k. Each block adds 64 max |A[i, :]| max |B[:, j]|, where
        the maxima are those in that block. Where either maximum is below 2**-49, bits are lost.
        Numbers of 2**78 and more, Inf and NaN turn their row or column of C into Inf or NaN. With
        normal data the error is 2e-7 of C. On devices of compute capability 9.0 a faster kernel
        serves k from 2048 on; its error is 5e-6.

    Parameters
    ----------
    allowed : {"strict", "float32", "fast"}
        The precision for the current thread or task. Blocks may be nested. The ``precision``
        argument of `sgemm` takes precedence.

    Raises
    ------
    ValueError
        If `allowed` is none of these.

    Examples
    --------
    >>> with clgemm.precision("strict"):
    ...     c = clgemm.matmul(a, b)
    """

    def __init__(self, allowed: Precision) -> None:
        require_precision(allowed)
        self._allowed: Precision = allowed
        self._tokens: list[Token[str | None]] = []

    def _recreate_cm(self) -> precision:
        return precision(self._allowed)  # each call of a decorated function restores for itself

    def __enter__(self) -> str:
        self._tokens.append(_scoped.set(self._allowed))
        return self._allowed

    def __exit__(self, *exception: object) -> None:
        _scoped.reset(self._tokens.pop())


def least_of(threshold: Any, side: str | None, name: str = "side") -> int | None:
    """Return the multiply-adds from which on the device multiplies; None if measured times decide.

    A threshold goes before a side.

    Parameters
    ----------
    threshold : int, whole float such as 1e6, or None
    name : str, optional
        The name of the argument or variable `side`, for the message.

    Raises
    ------
    ValueError
        If the threshold is negative or not whole, or if there is no such side.
    """
    least = int(threshold) if isinstance(threshold, float) and threshold.is_integer() else threshold
    if least is not None and (not isinstance(least, int) or least < 0):
        raise ValueError(f"threshold={threshold!r} is not a whole number of multiply-adds")
    if side is not None and side not in SIDES:
        raise ValueError(f"{name}={side!r} is not one of {', '.join(SIDES)}")
    return {"host": ALWAYS_HOST, "device": 0}.get(side or "") if least is None else least


def rule() -> int | None:
    """Return what `least_of` does for CLGEMM_THRESHOLD and CLGEMM_SIDE.

    Raises
    ------
    ValueError
        If the value of one is wrong.
    """
    return _rule(_threshold.get() or "", _side.get() or "")


@functools.lru_cache(maxsize=8)
def _rule(threshold: str, side: str) -> int | None:
    try:
        least = whole_number(threshold) if threshold.strip() else None
    except ValueError as error:
        raise ValueError(f"{THRESHOLD_VARIABLE}={error}") from None
    return least if least is not None else least_of(None, side.strip() or "auto", SIDE_VARIABLE)


@functools.lru_cache(maxsize=8)
def quick_rule(*values: Any) -> int | None:
    """Return what `rule` does for these `VALUES` of `NAMES`, but 0 where that raises."""
    try:
        return _rule(*(os.fsdecode(value or "") for value in values))
    except ValueError:
        return 0


def is_ruled() -> bool:
    """Return whether the environment may set the side, quickly."""
    first, second = NAMES
    return first in VALUES or second in VALUES or os.environ is not _environ


def goes_by_rule(work: int, own_rule: int | None = None) -> bool | None:
    """Return whether a rule of the user's sends a product to the device; None without a rule.

    Parameters
    ----------
    own_rule : int, optional
        Multiply-adds from which on the device multiplies, in place of the environment's.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD or CLGEMM_SIDE is wrong.
    """
    least = rule() if own_rule is None else own_rule
    return None if least is None else work >= least


def may_prepare() -> bool:
    """Return whether devices may be prepared in the background.

    Raises
    ------
    ValueError
        If CLGEMM_PREPARE is neither empty, "auto" nor "never".
    """
    setting = os.environ.get(PREPARE_VARIABLE, "").strip()
    if setting not in ("", "auto", "never"):
        raise ValueError(f"{PREPARE_VARIABLE}={setting!r} is neither auto nor never")
    return setting != "never"


def require_settings() -> None:
    """Check the environment's settings before anything is computed.

    Raises
    ------
    ValueError
        If one is wrong.
    """
    rule()
    may_prepare()
    environment_precision()
