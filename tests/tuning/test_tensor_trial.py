"""Tests of the check that the trial of tensor cores makes, which any device must pass."""

from __future__ import annotations

import numpy as np
import pytest

import clgemm
from clgemm.tuning import tensor_trial


def by_numpy(lost):
    """Return a stand-in for sgemm, exact but for what a function does to its result."""

    def sgemm(_alpha, a, b, precision):
        assert precision == "float32"
        return lost((a.astype(np.float64) @ b).astype(np.float32))

    return sgemm


def without_infinity(c):
    """Lose what overflowed."""
    return np.where(np.isinf(c), 0, c)


def off_by_bits(c):
    """Err as products of halves do."""
    return c * np.float32(1 + 2.0**-10)


def without_a_column(c):
    """Leave out the last column."""
    c[:, -1] = 0
    return c


def test_a_device_without_tensor_cores_passes(device):
    """Products of float32 are right on every device."""
    with clgemm.device(device), np.errstate(invalid="ignore"):
        assert tensor_trial.right(70, 90, 0, "float32")


@pytest.mark.parametrize("lost", [without_infinity, off_by_bits, without_a_column])
def test_a_wrong_product_does_not_pass(monkeypatch, lost):
    """A lost infinity, too few bits or an unwritten column is found; exact products pass."""
    monkeypatch.setattr(tensor_trial, "sgemm", by_numpy(lambda c: c))
    with np.errstate(invalid="ignore"):
        assert tensor_trial.right(70, 90, 0, "float32")
        monkeypatch.setattr(tensor_trial, "sgemm", by_numpy(lost))
        assert not tensor_trial.right(70, 90, 0, "float32")
