"""What a user's program with ``mypy --strict`` sees: mypy checks this file, nothing runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import clgemm

if TYPE_CHECKING:
    import pyopencl.array as cl_array

    Array = npt.NDArray[np.float32]


def product(a: Array, b: Array) -> Array:
    """Return a product: no Any comes back, of which --strict would warn."""
    return clgemm.sgemm(1.0, a, b)


def triangle(a: Array) -> Array:
    """Return one triangle."""
    return clgemm.ssyrk(1.0, a, lower=1)


def on_device(x: cl_array.Array) -> cl_array.Array:
    """Return a device array."""
    return clgemm.sgemm(1.0, x, x)


def rules(a: Array, b: Array) -> Any:
    """Return a product by NumPy's rules, which may be a scalar, in a precision that there is."""
    with clgemm.precision("strict"):
        return clgemm.matmul(a, b)


def unknown(a: Array, b: Array) -> Any:
    """Ask for a precision that there is not."""
    with clgemm.precision("exact"):  # type: ignore[arg-type]
        return clgemm.dot(a, b)
