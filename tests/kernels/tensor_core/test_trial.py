"""Tests of what is tried of tensor cores, which products of any kernels must pass."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from planned import traits_with
from strategies import GPU_LIMITS

import clgemm
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.tensor_core import family as tensor
from clgemm.kernels.tensor_core.defaults import wgmma_configs
from clgemm.kernels.tensor_core.family import NARROW, WGMMA
from clgemm.kernels.tensor_core.trial import adds_coarsely, inexact

SHAPE = Shape(70, 90, 713)
TRAITS = traits_with(GPU_LIMITS, is_nvidia=True, capability=(9, 0))


def exact(a, b):
    """Return a product that is rounded once."""
    return (a.astype(np.float64) @ b).astype(np.float32)


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


def in_halves(a, b):
    """Return a product whose operands lose the range of float32."""
    with np.errstate(over="ignore"):
        return exact(a.astype(np.float16).astype(np.float32), b.astype(np.float16))


def test_products_of_float32_pass(device):
    """Products by multiply-adds in float32 are right on every device."""

    def multiply(a, b):
        return clgemm.sgemm(1.0, a, b, precision="strict")

    assert inexact(multiply, SHAPE, is_guarded=True) == ""


@pytest.mark.parametrize("lost", [without_infinity, off_by_bits, without_a_column])
def test_a_wrong_product_does_not_pass(lost):
    """A lost infinity, too few bits or an unwritten column is found; exact products pass."""
    with np.errstate(invalid="ignore"):
        assert inexact(exact, SHAPE, is_guarded=True) == ""
        found = inexact(lambda a, b: lost(exact(a, b)), SHAPE, is_guarded=True)
    assert f" at {SHAPE.label}" in found


def test_data_of_wide_range_are_tried_only_where_they_must_be_right():
    """Products that need not hold wide ranges pass without infinities and tiny elements."""

    def multiply(a, b):
        assert np.isfinite(a).all()
        assert np.isfinite(b).all()
        assert max(np.abs(a).max(), np.abs(b).max()) < 10
        return exact(a, b)

    assert inexact(multiply, SHAPE, is_guarded=False) == ""


@pytest.mark.parametrize("tf32", [False, True])
def test_sums_of_24_bits_do_not_pass(tf32):
    """They lose all products of 2**-25 beside a larger one; sums of 26 bits keep them."""

    def added(a, b, last):
        products = a[:, :, None].astype(np.float64) * b
        total = (np.trunc(products / last) * last).sum(axis=1)
        return (np.trunc(total * 2**23) / 2**23).astype(np.float32)

    for last, passes in ((2.0**-23, False), (2.0**-24, False), (2.0**-25, True)):
        assert (adds_coarsely(partial(added, last=last), tf32) == "") == passes


@pytest.mark.parametrize("family", [WGMMA, NARROW])
def test_a_config_that_loses_the_range_of_float32_is_at_fault(family):
    """A family's trial finds operands that were rounded to halves, and passes exact products."""
    shape = Shape(700, 64, 713) if family is NARROW else Shape(700, 900, 713)
    problem = Problem.of(shape, "float32")
    choice = family.defaults(shape, TRAITS)[0]
    with np.errstate(invalid="ignore"):
        assert family.fault(problem, choice, exact) == ""
        assert family.fault(problem, choice, in_halves) != ""


def test_all_of_the_products_are_cut_along_k():
    """Those of a trial are cut with every config."""
    for shape in (tensor.TRIAL, tensor.DEEP_TRIAL):
        for config in wgmma_configs(shape, GPU_LIMITS):
            variant = WGMMA.variant(config, guard=True)
            tiles = variant.tiles(1, shape.m, shape.n)
            assert variant.cuts(tiles, shape.k, GPU_LIMITS).slices > 1
