"""Tests of products that are cut because they take long."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.core.plan import ceil_div
from clgemm.core.problem import Problem, Shape
from clgemm.planning import cut
from clgemm.planning.cut import sizes_for
from clgemm.transfer import call_cache, multiply

RNG = np.random.default_rng(23)
SHAPES = [(700, 500, 300), (515, 777, 401), (900, 260, 90), (3, 300, 400, 200)]


@pytest.fixture
def second(monkeypatch):
    """Set how many multiply-adds a second of a device is taken for."""
    monkeypatch.setattr(call_cache, "_calls", {})

    def set_to(work, device):
        units = device.limits.compute_units if device.limits.vector_width > 1 else 1
        monkeypatch.setattr(cut, "PART_WORK", ceil_div(work, units))
        monkeypatch.setattr(cut, "PART_WORK_IF_SLOW", work)
        forget_plans()

    yield set_to
    forget_plans()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_parts_have_the_bits_of_the_whole(shape, transposed, device, second, monkeypatch):
    """A product that is cut has the same bits as the product in one piece."""
    if not device.shares_host_memory:
        pytest.skip("such devices get every product in tiles")
    monkeypatch.setattr(cut, "LEAST_SIDE", 64)
    *batch, m, n, k = shape
    a = RNG.standard_normal((*batch, m, k), dtype=np.float32)
    b = RNG.standard_normal((n, k) if transposed else (k, n), dtype=np.float32)
    b = b.T if transposed else b
    whole = clgemm.matmul(a, b)
    second(ceil_div(whole.size * k, 5), device)
    made = []
    execute = multiply.execute
    monkeypatch.setattr(multiply, "execute", lambda *x: (made.append(x), execute(*x)))
    np.testing.assert_array_equal(clgemm.matmul(a, b), whole)
    updated = clgemm.sgemm(1.0, a, b, 2.0, whole) if not batch else None
    assert updated is None or updated.shape == whole.shape
    assert made


def test_large_products_are_cut(device):
    """Large products are cut into parts of half a second on a CPU with vectors."""
    if device.limits.vector_width == 1 or device.kind != "CPU":
        pytest.skip("sizes of such processors")
    work = cut.PART_WORK * device.limits.compute_units
    for shape in (Shape(20_000, 20_000, 20_000), Shape(60_000, 60_000, 60_000)):
        steps = cut.part_sizes(device, Problem.of(shape, "float32"))
        if shape.work < 2 * work:
            continue
        assert steps != (shape.m, shape.n)
        assert steps[0] * steps[1] * shape.k < 2 * work or max(steps) <= 2 * cut.LEAST_SIDE


def test_short_products_are_whole(device):
    """A short product is not cut."""
    problem = Problem.of(Shape(512, 512, 512), "float32")
    assert cut.part_sizes(device, problem) == (512, 512)


def test_a_product_that_parts_would_add_up_in_another_order_is_whole(device, second, monkeypatch):
    """A product is not cut if the plan of a part adds up in another order."""
    problem = Problem.of(Shape(700, 500, 300), "float32")
    second(2**20, device)
    monkeypatch.setattr(cut, "LEAST_SIDE", 64)
    orders = iter(range(1000))
    monkeypatch.setattr(cut, "_order_of_sums", lambda _: next(orders))
    assert cut.part_sizes(device, problem) == (700, 500)


sizes = st.integers(1, 5000)


@given(
    batch=st.lists(st.integers(1, 5), max_size=2),
    m=sizes,
    n=sizes,
    k=sizes,
    most=st.integers(1, 10**9),
)
def test_parts_have_about_the_work_that_was_asked_for(batch, m, n, k, most):
    """A part has little more work than asked for, unless its sides have the least length."""
    shape = (*batch, m, n)
    steps = sizes_for(shape, k, most)
    assert len(steps) == len(shape)
    assert all(1 <= step <= size for step, size in zip(steps, shape, strict=True))
    smallest = k * (cut.LEAST_SIDE + cut.GRAIN) ** 2
    # A side is rounded up to whole grains, by half of the shortest side at most.
    assert k * math.prod(steps) <= max(3 * most, 2 * smallest)


def test_batches_are_cut_by_matrix_before_matrices_are():
    """A matrix of a batch is cut only if it is too large by itself."""
    assert sizes_for((8, 512, 512), 512, 512**3) == (1, 512, 512)
    assert sizes_for((8, 512, 512), 512, 2 * 512**3) == (2, 512, 512)
    assert sizes_for((5, 512, 512), 512, 3 * 512**3) == (3, 512, 512)
    assert sizes_for((3, 1024, 1024), 512, 512**3) == (1, 512, 512)


def test_no_small_part_is_left_at_the_end_of_an_axis():
    """The last part of an axis has at least half of the length of the others."""
    steps = sizes_for((60_000, 60_000), 60_000, 2**36)
    assert 60_000 % steps[0] > steps[0] // 2
