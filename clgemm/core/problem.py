"""A matrix product as numbers: what planning decides from."""

from __future__ import annotations

from typing import NamedTuple

from clgemm.core.layout import Layout

__all__ = ["Problem"]


class Problem(NamedTuple):
    """One product ``C = alpha A B + beta C``, or one scaling ``C = beta C``.

    Attributes
    ----------
    a, b, c : Layout
        Shapes (*batch, m, k), (*batch, k, n) and (*batch, m, n). The batches of `a` and `b`
        broadcast to that of `c`.
    precision : str or None
        As `clgemm.precision`. None for a scaling, which reads neither `a` nor `b`.
    """

    a: Layout
    b: Layout
    c: Layout
    precision: str | None
