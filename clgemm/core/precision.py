"""The precision of products: the argument, the ``with`` block and the environment variable."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar, Token
from typing import Literal, TypeAlias

from clgemm.core.settings import Variable

Precision: TypeAlias = Literal["strict", "float32", "fast"]
PRECISIONS = ("strict", "float32", "fast")
PRECISION_VARIABLE = "CLGEMM_PRECISION"
_variable = Variable(PRECISION_VARIABLE)

_scoped: ContextVar[str | None] = ContextVar("clgemm_precision", default=None)


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
    chosen = _variable.get()
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
