"""Random calls of all functions that follow NumPy, on every device; `contract.py` has more."""

from __future__ import annotations

import time

import contract
import pytest

CALLS = 30  # by each entrance


def test_random_calls_have_numpys_outcome(device, every_size):
    """Values, signs of zeros, types, dtypes, errors, and what is written to `out`."""
    if "Oclgrind" in device.name:
        pytest.skip("each call builds kernels")
    first = time.time_ns() % 10**12
    made, faults = contract.search(range(first, first + CALLS), 600)
    assert not faults
    assert sum(made.values()) == 2 * CALLS
