"""Tests of the check that the trial of tensor cores makes, which any family must pass."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from strategies import GPU_LIMITS

from clgemm.core.shapes import Shape
from clgemm.kernels.direct.family import DIRECT
from clgemm.kernels.tensor_core.defaults import wgmma_configs
from clgemm.kernels.tensor_core.family import WGMMA
from clgemm.tuning import tensor_trial


def by_numpy(lost):
    """Return a stand-in for products, exact but for what a function does to their results."""

    def made(_device, _family, _choice, a, b, precision):
        assert precision == "float32"
        return lost((a.astype(np.float64) @ b).astype(np.float32))

    return made


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


def is_right(device):
    """Tell whether a product of float32 is right by the trial's check."""
    with np.errstate(invalid="ignore"):
        return tensor_trial.right(device, [DIRECT], Shape(70, 90, 713), 0, "float32")


def test_right_products_pass(device):
    """Products of float32 by another family are right on every device."""
    assert is_right(device)


@pytest.mark.parametrize("lost", [without_infinity, off_by_bits, without_a_column])
def test_a_wrong_product_does_not_pass(device, monkeypatch, lost):
    """A lost infinity, too few bits or an unwritten column is found; exact products pass."""
    monkeypatch.setattr(tensor_trial, "made", by_numpy(lambda c: c))
    assert is_right(device)
    monkeypatch.setattr(tensor_trial, "made", by_numpy(lost))
    assert not is_right(device)


@pytest.mark.parametrize("tf32", [False, True])
def test_sums_of_24_bits_do_not_pass(tf32):
    """They lose all products of 2**-25 beside a larger one; sums of 26 bits keep them."""

    def added(a, b, last):
        products = a[:, :, None].astype(np.float64) * b
        total = (np.trunc(products / last) * last).sum(axis=1)
        return (np.trunc(total * 2**23) / 2**23).astype(np.float32)

    for last, passes in ((2.0**-23, False), (2.0**-24, False), (2.0**-25, True)):
        multiply = functools.partial(added, last=last)
        assert tensor_trial.keeps_small_products(multiply, tf32) == passes


def test_some_of_the_products_are_cut_along_k():
    """With either config."""
    for shape in (tensor_trial.DEEP_SMALL, tensor_trial.DEEP):
        for config in wgmma_configs(shape, GPU_LIMITS):
            variant = WGMMA.variant(config, guard=True)
            tiles = variant.tiles(1, shape.m, shape.n)
            assert variant.cuts(tiles, shape.k, GPU_LIMITS).slices > 1
