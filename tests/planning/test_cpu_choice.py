"""Tests of the products that a CPU device makes faster than the host's BLAS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.cpu_costs import INTEL, POCL
from clgemm.core.traits import MANY_CORES
from clgemm.planning import cpu_choice
from clgemm.planning.cpu_choice import (
    COUNTED_A,
    COUNTED_B,
    LEAST_COUNTED,
    is_quick_loop,
    may_suit,
    suits,
)
from clgemm.planning.loop_times import BatchKind


def sides(most: int) -> st.SearchStrategy[int]:
    """Lengths up to the given one, half of them short."""
    return st.integers(1, most) | st.integers(1, 16)


@pytest.mark.parametrize(
    ("sizes", "is_narrow", "intel", "pocl"),
    [
        ((5, 2000, 300, 1), True, True, True),
        ((5, 600, 300, 1), True, True, False),
        ((5, 600, 600, 1), False, True, False),
        ((600, 5, 600, 1), False, False, False),
        ((5, 1500, 600, 1), False, True, True),
        ((12, 600, 600, 1), False, True, False),
        ((31, 200, 600, 1), True, True, False),
        ((63, 500, 600, 1), False, True, False),
        ((180, 200, 200, 1), True, True, False),
        ((300, 250, 200, 1), True, True, True),
        ((1000, 1000, 1000, 1), False, False, False),
        ((1000, 1000, 1000, 1), True, True, True),
        ((4000, 4000, 4000, 1), False, False, False),
        ((1700, 1700, 4, 1), True, True, True),
        ((2900, 2900, 2, 1), False, True, False),
        ((3, 70, 322, 15), True, True, False),
        ((3, 300, 322, 62), True, True, True),
        ((45, 380, 7, 30), True, True, False),
        ((45, 380, 8, 100), True, True, True),
        ((66, 66, 2363, 1), True, True, True),
        ((29, 23, 8904, 1), True, True, False),
        ((29, 23, 5000, 1), False, False, False),
        ((7, 23, 4000, 1), True, False, False),
        ((200, 200, 100, 5), False, True, False),
        ((200, 200, 100, 12), False, True, True),
        ((1, 4000, 4000, 1), True, False, False),
        ((4000, 4000, 1, 1), True, False, False),
    ],
)
def test_what_suits_a_cpu(sizes, is_narrow, intel, pocl, monkeypatch):
    """Few rows or columns and batches do soonest, and sooner with Intel's runtime."""
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: is_narrow)
    assert (suits(*sizes, INTEL, True), suits(*sizes, POCL, True)) == (intel, pocl)
    if is_narrow:
        assert (suits(*sizes, INTEL, False), suits(*sizes, POCL, False)) == (intel, pocl)


def test_a_transposed_b_takes_the_host_longer(monkeypatch):
    """OpenBLAS's kernels for AVX-512 more than twice as long for an element."""
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: False)
    for costs, k in ((INTEL, 800), (POCL, 1600)):
        assert not suits(8, 200, k, 1, costs, True)
        assert suits(8, 200, k, 1, costs, True, is_b_transposed=True)
        assert may_suit(8, 200, 800, 1, is_b_transposed=True) == (
            cpu_choice.has_avx512() and cpu_choice.usable_processors() < MANY_CORES
        )


@pytest.mark.parametrize(
    ("sizes", "intel", "pocl"),
    [
        ((7, 1500, 3000, 1), True, True),
        ((1500, 7, 3000, 1), True, True),
        ((1500, 7, 800, 1), True, False),
        ((48, 2400, 1200, 1), True, True),
        ((2000, 46, 1000, 1), True, True),
        ((100, 100, 100, 1), False, False),
        ((300, 300, 300, 1), False, False),
        ((1000, 1000, 1000, 1), True, True),
        ((4000, 4000, 4000, 1), True, True),
        ((1, 4000, 4000, 1), False, False),
        ((57, 278, 3, 600), True, True),
        ((44, 213, 29, 50), True, False),
        ((44, 213, 29, 25), False, False),
        ((200, 200, 100, 1000), True, True),
        ((400, 1, 100, 200), False, False),
    ],
)
def test_on_intels_processors_the_device_suits_sooner(sizes, intel, pocl, monkeypatch):
    """Though the host's BLAS uses AVX-512."""
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: False)
    assert (suits(*sizes, INTEL, False), suits(*sizes, POCL, False)) == (intel, pocl)


@pytest.mark.parametrize(
    ("sizes", "is_narrow", "intel", "pocl"),
    [
        ((1, 59, 252, 255), True, True, True),
        ((10, 264, 5, 453), True, True, True),
        ((48, 3, 8, 200), True, False, False),
        ((16, 64, 64, 40), True, True, False),
        ((16, 64, 64, 100), True, True, True),
        ((2, 445, 5, 318), False, True, False),
        ((9, 1, 300, 400), True, False, False),
        ((4, 16, 16, 64), True, False, False),
    ],
)
def test_batches_that_share_b(sizes, is_narrow, intel, pocl, monkeypatch):
    """NumPy takes longer for many short matrices, but for those with few columns."""
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: is_narrow)
    found = (suits(*sizes, costs, True, kind=BatchKind.FOLDED) for costs in (INTEL, POCL))
    assert tuple(found) == (intel, pocl)
    assert suits(*sizes, INTEL, False, kind=BatchKind.FOLDED) == intel


@pytest.mark.parametrize("is_narrow", [False, True])
@given(
    m=sides(3000),
    n=sides(3000),
    k=sides(3000),
    matrices=st.just(1) | sides(300),
    kind=st.sampled_from(BatchKind),
    is_b_transposed=st.booleans(),
)
def test_none_is_missed_by_the_quick_bounds(is_narrow, m, n, k, matrices, kind, is_b_transposed):
    """By which products are known as small from the sizes of operands, without their shapes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_choice, "has_narrow_kernels", lambda: is_narrow)
        patch.setattr(cpu_choice, "has_avx512", lambda: True)
        patch.setattr(cpu_choice, "usable_processors", lambda: 2)
        how = {"kind": kind, "is_b_transposed": is_b_transposed}
        of_both = [suits(m, n, k, matrices, INTEL, is_amd, **how) for is_amd in (True, False)]
        found = any(of_both)
        assert may_suit(m, n, k, matrices, **how) == found
        for is_amd in (True, False):
            assert found or not suits(m, n, k, matrices, POCL, is_amd, **how)
    if found and matrices > 1:
        is_quick = is_quick_loop(m, n, k, matrices)
        assert not (is_quick and m * n * k * matrices < LEAST_COUNTED)
    elif found:
        assert m * n * k >= LEAST_COUNTED - COUNTED_A * m * k - COUNTED_B * k * n
