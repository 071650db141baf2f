"""Products that NumPy makes by plain loops, on a device: integers, booleans and float16.

Which side makes one is decided as for float32. NumPy makes all others, and raises all errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from clgemm.core.nesting import RejectedError
from clgemm.runtime.contraction import as_products, axes_of, batched, unwrapped, without
from clgemm.runtime.operands import overlap, rearranged
from clgemm.side import decision

__all__ = ["EXACT", "LEAST_SIZE", "Product", "may_take", "of_dot", "of_matmul"]

# NumPy's kinds and sizes that are multiplied.
EXACT = frozenset(map(np.dtype, "?bBhHiIlLqQe"))
# The elements of A times those of B below which NumPy makes every product: 64 x 64 by 64 x 64.
LEAST_SIZE = 2**24
LEAST_WORK = 2**17  # multiply-adds, the same once these are known


class Product(NamedTuple):
    """A product that a device may make.

    Attributes
    ----------
    name : str
        NumPy's function and the dtypes: arrays of one shape make another product by each.
    dtype : dtype
        Of the result.
    sizes, operands : object
        As for `clgemm.side.decision.describe`.
    on_device : callable
        Returns the product; raises what `clgemm.runtime.exact.multiply` does, and RejectedError
        for float16 that is not finite.
    is_direct : bool
        Whether it writes to the caller's memory.
    """

    name: str
    a: Any
    b: Any
    out: Any
    dtype: np.dtype[Any]
    sizes: decision.Sizes
    operands: Callable[[], tuple[Any, Any, tuple[int, ...]]]
    on_device: Callable[[], Any]
    is_direct: bool

    @property
    def kind(self) -> str:
        """How NumPy computes it, for its expected time."""
        return f"{decision.EXACT_KIND} {self.dtype}"

    @property
    def described(self) -> tuple[str, Any, Any, Any, decision.Sizes, str, Callable[[], Any]]:
        """What `clgemm.side.decision.describe` takes."""
        return self.name, self.a, self.b, self.out, self.sizes, self.kind, self.operands

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those of A, B and the result, by NumPy's kind and size."""
        return tuple(x.str[1:] for x in (self.a.dtype, self.b.dtype, self.dtype))


def _loop(a: Any, b: Any, dtype: Any = None, casting: Any = "same_kind") -> np.dtype[Any] | None:
    """Return the dtype of NumPy's loop for two arrays; None if it is not one of these."""
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    if a.size * b.size < max(LEAST_SIZE, 1) or not {a.dtype, b.dtype} <= EXACT:
        return None
    if dtype is None:
        found = np.promote_types(a.dtype, b.dtype)
        return found if found in EXACT else None
    try:
        found = np.dtype(dtype)
        if not all(np.can_cast(x.dtype, found, casting) for x in (a, b)):
            return None
    except (TypeError, ValueError):
        return None
    return found if found in EXACT else None


def may_take(a: Any, b: Any) -> bool:
    """Tell whether a device may make products of these two objects."""
    return _loop(a, b) is not None


def of_matmul(
    a: Any, b: Any, out: Any = None, keywords: dict[str, Any] | None = None
) -> Product | None:
    """Return the product of `numpy.matmul`; None if NumPy is to make it."""
    keywords = keywords or {}
    if keywords.keys() - {"dtype", "casting"}:
        return None
    dtype = _loop(a, b, **keywords)
    if dtype is None or not a.ndim or not b.ndim:
        return None
    try:
        rows, columns, batch, shape, axes = batched(a, b)
    except ValueError:
        return None
    if rows.shape[-1] != columns.shape[-2]:
        return None
    if out is not None:
        if isinstance(out, tuple) and len(out) == 1:
            (out,) = out
        casting = keywords.get("casting", "same_kind")
        if type(out) is not np.ndarray or out.shape != shape or not out.flags.writeable:
            return None
        if not np.can_cast(dtype, out.dtype, casting):
            return None
    sizes = rows.shape[-2], columns.shape[-1], rows.shape[-1], math.prod(batch)
    parts = rows, columns, (*batch, *sizes[:2])
    return _product("matmul", a, b, out, dtype, sizes, parts, shape, axes)


def of_dot(name: str, a: Any, b: Any, out: Any = None) -> Product | None:
    """Return the product of `numpy.dot`, over the last axis of a and the last but one of b.

    None if NumPy is to make it.
    """
    dtype = _loop(a, b)
    if dtype is None or not a.ndim or not b.ndim or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        return None
    shape = a.shape[:-1] + without(b.shape, -2)
    if out is not None and not (
        type(out) is np.ndarray
        and out.shape == shape
        and out.ndim
        and out.dtype == dtype
        and out.flags.c_contiguous
        and out.flags.writeable
    ):
        return None
    sizes = math.prod(a.shape[:-1]), math.prod(without(b.shape, -2)), a.shape[-1], 1
    parts = as_products(a, b, shape)
    return _product(name, a, b, out, dtype, sizes, parts, shape, axes_of(a, b, shape))


def _product(
    name: str,
    a: Any,
    b: Any,
    out: Any,
    dtype: np.dtype[Any],
    sizes: decision.Sizes,
    parts: tuple[Any, Any, tuple[int, ...]],
    shape: tuple[int, ...],
    axes: list[int | None],
) -> Product | None:
    if math.prod(sizes) < max(LEAST_WORK, 1):
        return None
    is_direct = (
        out is not None
        and out.dtype == dtype
        and bool(out.flags.forc and out.flags.aligned)
        and not (overlap(out, a) or overlap(out, b))
    )

    def on_device() -> Any:
        from clgemm.runtime.exact import multiply

        result = out if is_direct else np.empty(shape, dtype)
        multiply(parts[0], parts[1], rearranged(result, axes))
        if dtype.kind == "f" and not np.isfinite(result).all():
            raise RejectedError("a result is not finite: NumPy may warn of it")
        if out is None:
            return unwrapped(result, None)
        if not is_direct:
            np.copyto(out, result, casting="unsafe")  # its casting was checked
        return out

    return Product(
        f"{name} {a.dtype.str[1:]}{b.dtype.str[1:]}{dtype.str[1:]}",
        *(a, b, out, dtype, sizes, lambda: parts, on_device, is_direct),
    )
