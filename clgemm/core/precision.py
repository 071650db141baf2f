"""The error that products may have: by argument, by ``with`` block, by the environment."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar, Token

from clgemm.core.settings import Variable

__all__ = [
    "PRECISIONS",
    "chosen_precision",
    "environment_precision",
    "precision",
    "precision_and_source",
]

PRECISIONS = ("strict", "float32", "fast")
PRECISION_VARIABLE = "CLGEMM_PRECISION"
_variable = Variable(PRECISION_VARIABLE)

_scoped: ContextVar[str | None] = ContextVar("clgemm_precision", default=None)


def chosen_precision(asked: str | None = None) -> str:
    """Return the precision asked for, the ``with`` block's, the environment's, or ``"float32"``.

    Raises
    ------
    ValueError
        If it is none of ``"strict"``, ``"float32"`` and ``"fast"``.
    """
    chosen = asked or _scoped.get() or environment_precision() or "float32"
    if chosen not in PRECISIONS:
        raise ValueError(f"precision={chosen!r} is not one of {', '.join(PRECISIONS)}")
    return chosen


def environment_precision() -> str | None:
    """Return the precision that the environment sets; None if it sets none.

    Raises
    ------
    ValueError
        If CLGEMM_PRECISION is none of ``"strict"``, ``"float32"`` and ``"fast"``.
    """
    chosen = _variable.get() or None
    if chosen is not None and chosen not in PRECISIONS:
        raise ValueError(f"{PRECISION_VARIABLE}={chosen!r} is not one of {', '.join(PRECISIONS)}")
    return chosen


def precision_and_source() -> tuple[str, str]:
    """Return the precision of products that ask for none, and what sets it.

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


class precision(contextlib.ContextDecorator):  # noqa: N801 - used as a function, like numpy.errstate
    """Allow products another error within a ``with`` block or a function.

    With u = 2**-24 and gamma(n) = n u / (1 - n u):

    ``"strict"``
        IEEE single-precision multiply-adds only.
    ``"float32"``
        The default. Each element of C is off by at most gamma(k + 64) times that element of
        |alpha| |A| |B| + |beta| |C|, whatever finite numbers A, B and C hold, as long as nothing
        overflows or underflows; Inf and NaN are where IEEE arithmetic puts them.
    ``"fast"``
        For A and B below 2**78: an element of A B is off by at most gamma(k + 128) times the sum,
        over each 64 of k, of 64 max |A[i, :]| max |B[:, j]| there. Where that is below 2**-49 for
        either, bits are lost. Larger numbers, Inf and NaN make Inf or NaN of their row or column
        of C. With normal data the error is 2e-7 of C; from k = 2048 on, where devices of compute
        capability 9.0 then take less time, 5e-6.

    Parameters
    ----------
    allowed : {"strict", "float32", "fast"}
        It holds for the current thread or task and may be nested; the ``precision`` argument of
        `sgemm` comes first.

    Raises
    ------
    ValueError
        If it is none of these.

    Examples
    --------
    >>> with clgemm.precision("strict"):
    ...     c = clgemm.matmul(a, b)
    """

    def __init__(self, allowed: str) -> None:
        if allowed not in PRECISIONS:
            raise ValueError(f"precision={allowed!r} is not one of {', '.join(PRECISIONS)}")
        self._allowed = allowed
        self._tokens: list[Token[str | None]] = []

    def _recreate_cm(self) -> precision:
        return precision(self._allowed)  # each call of a decorated function restores for itself

    def __enter__(self) -> str:
        self._tokens.append(_scoped.set(self._allowed))
        return self._allowed

    def __exit__(self, *exception: object) -> None:
        _scoped.reset(self._tokens.pop())
