"""Operands of small whole numbers, whose products are exact in float32."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(8)


def whole(*shape):
    """Return an array of small integers, whose products are exact in any order of summation."""
    return RNG.integers(-8, 9, shape).astype(np.float32)
