"""Tests of the products that a CPU device makes faster than the host's BLAS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.cpu_costs import INTEL, INTEL_MANY_CORES, POCL, POCL_MANY_CORES
from clgemm.core.traits import MANY_CORES
from clgemm.planning import cpu_choice
from clgemm.planning.cpu_choice import (
    COUNTED_A,
    COUNTED_B,
    LEAST_COUNTED,
    MOST,
    Cpu,
    both_us,
    is_quick_loop,
    may_suit,
    suits,
)
from clgemm.planning.host_times import BatchKind


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
    assert (suits(*sizes, Cpu(INTEL, True)), suits(*sizes, Cpu(POCL, True))) == (intel, pocl)
    if is_narrow:
        assert (suits(*sizes, Cpu(INTEL, False)), suits(*sizes, Cpu(POCL, False))) == (intel, pocl)


def test_a_transposed_b_takes_the_host_longer(monkeypatch):
    """OpenBLAS's kernels for AVX-512 more than twice as long for an element."""
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: False)
    for costs, k in ((INTEL, 800), (POCL, 1600)):
        assert not suits(8, 200, k, 1, Cpu(costs, True))
        assert suits(8, 200, k, 1, Cpu(costs, True), is_b_transposed=True)
        monkeypatch.setattr(cpu_choice, "usable_processors", lambda: 2)
        assert may_suit(8, 200, 800, 1, is_b_transposed=True) == cpu_choice.has_avx512()


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
    assert (suits(*sizes, Cpu(INTEL, False)), suits(*sizes, Cpu(POCL, False))) == (intel, pocl)


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
    found = (suits(*sizes, Cpu(costs, True), kind=BatchKind.FOLDED) for costs in (INTEL, POCL))
    assert tuple(found) == (intel, pocl)
    assert suits(*sizes, Cpu(INTEL, False), kind=BatchKind.FOLDED) == intel


@pytest.mark.parametrize(
    ("sizes", "how", "intel", "pocl"),
    [
        # m, n, k and matrices, as measured on 16 cores of an Intel Xeon: microseconds of NumPy with
        # Intel's runtime and of that, and with PoCL 5.0 and of that.
        ((2367, 3391, 3585, 1), {}, True, True),  # 47400, 30900; 47400, 31400
        ((3457, 3455, 2497, 1), {}, True, True),  # 51500, 34700; 51500, 33900
        ((1217, 321, 961, 1), {"copied": 1217 * 961}, True, True),  # 2130, 901; 1910, 863
        ((1848, 1848, 1848, 1), {"is_b_transposed": True}, True, True),  # 10500, 7490
        ((868, 102, 594, 1), {"copied": 868 * 594}, True, True),  # 622, 341; 585, 340
        ((868, 102, 594, 1), {}, False, False),
        ((257, 127, 191, 1), {}, False, False),  # 40, 112; 40, 142
        ((70, 104, 2799, 1), {}, False, False),  # 142, 266; 142, 302
        ((1, 879, 886, 1), {"copied": 886}, False, False),  # 37, 148; 36, 153
        ((2, 140, 230, 32), {"copied": 32 * 140 * 230}, True, True),  # 1094, 224; 946, 269
        ((2, 263, 52, 628), {}, True, True),  # 4150, 371; 2270, 342
        ((92, 257, 97, 198), {"kind": BatchKind.FOLDED}, True, True),  # 7460, 833; 7150, 838
        ((177, 287, 67, 10), {}, True, True),  # 574, 144; 573, 180
        ((148, 5, 57, 19), {}, False, False),  # 34, 101; 32, 126
        ((105, 30, 25, 224), {}, True, True),  # 497, 277; 530, 379
        ((5000, 5000, 40, 4), {}, True, True),  # not measured: large matrices
    ],
)
def test_what_suits_many_cores(sizes, how, intel, pocl, monkeypatch):
    """Products that are larger, and batches and copies, which NumPy makes by a single thread."""
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: False)
    monkeypatch.setattr(cpu_choice, "has_avx512", lambda: True)
    monkeypatch.setattr(cpu_choice, "is_openblas", lambda: True)
    monkeypatch.setattr(cpu_choice, "usable_processors", lambda: 16)
    found = [suits(*sizes, Cpu(x, False, 16), **how) for x in (INTEL_MANY_CORES, POCL_MANY_CORES)]
    assert found == [intel, pocl]
    assert may_suit(*sizes, **how) == intel


def test_more_cores_share_multiply_adds_but_not_calls(monkeypatch):
    """Up to as many as are known; of other processors, only few cores are."""
    monkeypatch.setattr(cpu_choice, "has_narrow_kernels", lambda: False)
    monkeypatch.setattr(cpu_choice, "is_openblas", lambda: True)
    small, large = (10, 10, 10, 1), (4000, 4000, 4000, 1)
    for few, many, costs in ((2, MANY_CORES - 1, POCL), (MANY_CORES, MOST, POCL_MANY_CORES)):
        for sizes, share in ((small, 1.0), (large, few / many)):
            before = both_us(*sizes, Cpu(costs, False, few))
            after = both_us(*sizes, Cpu(costs, False, many))
            assert after == pytest.approx([share * x for x in before], rel=0.2)
    assert both_us(*large, Cpu(POCL, False, 1)) == both_us(*large, Cpu(POCL, False, 2))
    assert both_us(*large, Cpu(POCL_MANY_CORES, False, MOST + 1)) is None
    assert both_us(*large, Cpu(POCL_MANY_CORES, True, MOST)) is None
    assert not suits(*large, Cpu(POCL_MANY_CORES, False, MOST + 1))
    assert both_us(*large, Cpu(POCL_MANY_CORES, False, MOST)) is not None
    for name, unknown in (("has_narrow_kernels", True), ("is_openblas", False)):
        with monkeypatch.context() as patch:
            patch.setattr(cpu_choice, name, lambda unknown=unknown: unknown)
            assert both_us(*large, Cpu(POCL_MANY_CORES, False, MOST)) is None
            assert both_us(*large, Cpu(POCL, False, 2)) is not None


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize(
    ("units", "costs"), [(2, (INTEL, POCL)), (16, (INTEL_MANY_CORES, POCL_MANY_CORES))]
)
@given(
    m=sides(3000),
    n=sides(3000),
    k=sides(3000),
    matrices=st.just(1) | sides(300),
    kind=st.sampled_from(BatchKind),
    is_b_transposed=st.booleans(),
)
def test_none_is_missed_by_the_quick_bounds(
    is_narrow, units, costs, m, n, k, matrices, kind, is_b_transposed
):
    """By which products are known as small from the sizes of operands, without their shapes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_choice, "has_narrow_kernels", lambda: is_narrow)
        patch.setattr(cpu_choice, "has_avx512", lambda: True)
        patch.setattr(cpu_choice, "is_openblas", lambda: True)
        patch.setattr(cpu_choice, "usable_processors", lambda: units)
        sizes, how = (m, n, k, matrices), {"kind": kind, "is_b_transposed": is_b_transposed}
        quickest, other = costs
        found = any(suits(*sizes, Cpu(quickest, is_amd, units), **how) for is_amd in (True, False))
        assert may_suit(*sizes, **how) == found
        for is_amd in (True, False):
            assert found or not suits(*sizes, Cpu(other, is_amd, units), **how)
    if found and matrices > 1:
        is_quick = is_quick_loop(m, n, k, matrices)
        assert not (is_quick and m * n * k * matrices < LEAST_COUNTED)
    elif found:
        assert m * n * k >= LEAST_COUNTED - COUNTED_A * m * k - COUNTED_B * k * n
