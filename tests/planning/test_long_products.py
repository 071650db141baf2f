"""Tests of long products that are cut into tiles of about a second."""

from __future__ import annotations

import numpy as np
import pytest

import clgemm
from clgemm.core.caches import forget_plans
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import ceil_div
from clgemm.planning import long_products, tiles
from clgemm.runtime import call_cache, launch

RNG = np.random.default_rng(23)
SHAPES = [(700, 500, 300), (515, 777, 401), (900, 260, 90), (3, 300, 400, 200)]


@pytest.fixture
def second(monkeypatch):
    """Set how many multiply-adds a second of a device is taken for."""
    monkeypatch.setattr(call_cache, "_calls", {})

    def set_to(work, device):
        units = device.limits.compute_units if device.limits.vector_width > 1 else 1
        monkeypatch.setattr(long_products, "TILE_WORK", ceil_div(work, units))
        monkeypatch.setattr(long_products, "TILE_WORK_IF_SLOW", work)
        forget_plans()

    yield set_to
    forget_plans()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_tiles_have_the_bits_of_the_whole(shape, transposed, device, second, monkeypatch):
    """A product that is cut has the same bits as the product in one piece."""
    if not device.shares_host_memory:
        pytest.skip("such devices get every product in tiles")
    monkeypatch.setattr(tiles, "LEAST_SIDE", 64)
    *batch, m, n, k = shape
    a = RNG.standard_normal((*batch, m, k), dtype=np.float32)
    b = RNG.standard_normal((n, k) if transposed else (k, n), dtype=np.float32)
    b = b.T if transposed else b
    whole = clgemm.matmul(a, b)
    second(ceil_div(whole.size * k, 5), device)
    made = []
    execute = launch.execute
    monkeypatch.setattr(launch, "execute", lambda *x: (made.append(x), execute(*x)))
    np.testing.assert_array_equal(clgemm.matmul(a, b), whole)
    updated = clgemm.sgemm(1.0, a, b, 2.0, whole) if not batch else None
    assert updated is None or updated.shape == whole.shape
    assert made


def test_the_part_of_a_tile_has_the_whole_depth():
    """A tile is planned as its rows of A times its columns of B, over all of k."""
    part = long_products._part(Problem.of(Shape(700, 500, 300), "float32"), (128, 64))
    assert [x.shape for x in part.layouts] == [(128, 300), (300, 64), (128, 64)]


def test_large_products_are_cut(device):
    """Large products are cut into tiles of half a second on a CPU with vectors."""
    if device.limits.vector_width == 1 or device.kind != "CPU":
        pytest.skip("sizes of such processors")
    work = long_products.TILE_WORK * device.limits.compute_units
    for shape in (Shape(20_000, 20_000, 20_000), Shape(60_000, 60_000, 60_000)):
        steps = long_products.tile_steps(device, Problem.of(shape, "float32"))
        if shape.work < 2 * work:
            continue
        assert steps != (shape.m, shape.n)
        assert steps[0] * steps[1] * shape.k < 2 * work or max(steps) <= 2 * tiles.LEAST_SIDE


def test_short_products_are_whole(device):
    """A short product is not cut."""
    problem = Problem.of(Shape(512, 512, 512), "float32")
    assert long_products.tile_steps(device, problem) == (512, 512)


def test_a_product_that_tiles_would_add_up_in_another_order_is_whole(device, second, monkeypatch):
    """A product is not cut if the plan of a tile adds up in another order."""
    problem = Problem.of(Shape(700, 500, 300), "float32")
    second(2**20, device)
    monkeypatch.setattr(tiles, "LEAST_SIDE", 64)
    orders = iter(range(1000))
    monkeypatch.setattr(long_products, "_order_of_sums", lambda _: next(orders))
    assert long_products.tile_steps(device, problem) == (700, 500)
