"""Families of matrix elements, from harmless to hostile, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DATA", "EXACT", "made", "plant_special"]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
SPECIAL = (np.nan, np.inf, -np.inf)


def _ones(_: np.random.Generator, shape: Shape) -> Array:
    """Return ones: what is left out or counted twice changes a sum."""
    return np.ones(shape)


def _integers(rng: np.random.Generator, shape: Shape) -> Array:
    """Return whole numbers up to 8: their products sum exactly in float32, in any order."""
    return rng.integers(-8, 9, shape)


def _normal(rng: np.random.Generator, shape: Shape) -> Array:
    """Return normal numbers."""
    return rng.standard_normal(shape)


def _wide(rng: np.random.Generator, shape: Shape) -> Array:
    """Return numbers over forty powers of two either way."""
    return rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-40, 41, shape)


def _full_mantissa(rng: np.random.Generator, shape: Shape) -> Array:
    """Return numbers that need all 24 bits: parts of half precision lose the last ones."""
    odd = 2 * rng.integers(0, 2**22, shape) + 1
    signed: Array = np.copysign(1 + odd * 2.0**-23, rng.standard_normal(shape))
    return signed


def _cancelling(rng: np.random.Generator, shape: Shape) -> Array:
    """Return large numbers of both signs on small ones: in sums, the large ones cancel."""
    places = np.add.outer(np.arange(shape[-2]), np.arange(shape[-1]))
    return np.where(places % 2, -(2.0**12), 2.0**12) + rng.uniform(-1, 1, shape)


def _outlier(rng: np.random.Generator, shape: Shape) -> Array:
    """Return normal numbers and one that is a million times larger."""
    values = rng.standard_normal(shape)
    if values.size:
        values.flat[rng.integers(values.size)] *= 2.0**20
    return values


def _scaled_rows(rng: np.random.Generator, shape: Shape) -> Array:
    """Return normal numbers, each row in its own power of two."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 31, (*shape[:-1], 1))


def _scaled_columns(rng: np.random.Generator, shape: Shape) -> Array:
    """Return normal numbers, each column in its own power of two."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 31, (*shape[:-2], 1, shape[-1]))


def _half_limits(rng: np.random.Generator, shape: Shape) -> Array:
    """Return numbers at the limits of half precision: 65504, 65520, 2**-14, 2**-24 and beyond."""
    limits = [65504.0, 65519.0, 65520.0, 131008.0, 2.0**-14, 2.0**-15, 2.0**-24, 2.0**-26]
    values: Array = rng.choice(limits, shape) * rng.choice([-1.0, 1.0], shape)
    return values


def _signed_zeros(rng: np.random.Generator, shape: Shape) -> Array:
    """Return mostly zeros of both signs."""
    return rng.choice([0.0, 0.0, 0.0, -0.0, -0.0, 1.0], shape)


def _tiny(rng: np.random.Generator, shape: Shape) -> Array:
    """Return numbers whose products are just above the smallest normal ones."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(1, 2, shape) * 2.0**-50


def _huge(rng: np.random.Generator, shape: Shape) -> Array:
    """Return numbers whose products come near the largest float32."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(1, 2, shape) * 2.0**56


# The simplest first: failing examples shrink towards the front.
DATA: Mapping[str, Callable[[np.random.Generator, Shape], Array]] = {
    "ones": _ones,
    "integers": _integers,
    "normal": _normal,
    "wide": _wide,
    "full mantissa": _full_mantissa,
    "cancelling": _cancelling,
    "outlier": _outlier,
    "scaled rows": _scaled_rows,
    "scaled columns": _scaled_columns,
    "half limits": _half_limits,
    "signed zeros": _signed_zeros,
    "tiny": _tiny,
    "huge": _huge,
}
# Products of these sum exactly in float32, in any order, for k up to 2**17.
EXACT = ("ones", "integers", "signed zeros")


def made(name: str, rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.float32]:
    """Return a matrix, or a batch of them, of a family of `DATA`.

    Raises
    ------
    ValueError
        If there is no such family.
    """
    if name not in DATA:
        raise ValueError(f"data={name!r} is not one of {', '.join(DATA)}")
    return DATA[name](rng, shape).astype(np.float32)


def plant_special(
    values: npt.NDArray[np.float32], rng: np.random.Generator, count: int
) -> npt.NDArray[np.float32]:
    """Return the values with NaN or an infinity in the place of up to `count` of them."""
    planted = values.copy()
    for _ in range(count if values.size else 0):
        planted.flat[rng.integers(values.size)] = SPECIAL[rng.integers(len(SPECIAL))]
    return planted
