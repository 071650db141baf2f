"""The sides of products that are repeated: they are found without asking for the side again."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clgemm.accel.arguments import FLOAT32
from clgemm.accel.semantics import is_product_by_own_transpose
from clgemm.core.caches import note
from clgemm.hardware.device import Device
from clgemm.planning.crossovers import Kind
from clgemm.runtime.turns import Product

__all__ = ["Key", "KnownSide", "KnownSides", "key_of"]

Key: TypeAlias = tuple[Any, ...]

MOST = 1024  # products that are remembered


class KnownSide(NamedTuple):
    """The side of a product.

    Attributes
    ----------
    side : Device or str
        The device, or the reason why the product stays on the host.
    size : int
        Its multiply-adds.
    unmeasured : str or None
        Its kind, if it stays because that has not been measured.
    state : object
        What the choice depended on besides shapes.
    product : Product or None
        Its times, if the choice depends on the products before it. Then `side` is the reason for
        which it may stay on the host.
    """

    side: Device | str
    size: int
    unmeasured: Kind | None
    state: object
    product: Product | None = None


class KnownSides:
    """The sides of products. No lock is needed: each step leaves them as they should be."""

    def __init__(self) -> None:
        self._known: dict[Key, KnownSide] = {}

    def note(self, key: Key, known: KnownSide) -> None:
        """Remember a product."""
        note(self._known, key, known, MOST)

    def find(self, key: Key) -> KnownSide | None:
        """Return what is known of a product."""
        return self._known.get(key)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


def key_of(function: str, a: Any, b: Any) -> Key | None:
    """Return what the choice of the side depends on, of a new result.

    None if that is more than shapes and strides: for other arrays than NumPy's own of float32, and
    where one operand is the other's transpose.
    """
    if not (type(a) is type(b) is np.ndarray and a.dtype is b.dtype is FLOAT32):
        return None
    if is_product_by_own_transpose(a, b):
        return None
    return function, a.shape, b.shape, a.strides, b.strides
