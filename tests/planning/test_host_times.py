"""Tests of how long NumPy takes for products and batches."""

from __future__ import annotations

from clgemm.planning.host_times import SHARED, XEON, XEON_16, BatchKind, LoopTimes


def test_each_part_counts():
    """The call, the multiply-adds, and the elements of the three matrices."""
    own, one_b, folded = BatchKind
    times = LoopTimes(call=5.0, multiply_add=1.0, a=1000.0, b=100.0, one_b=10.0, c=0.5)
    assert times.of(2, 3, 4, own) == 5 + 24 + 1000 * 8 + 100 * 12 + 0.5 * 6
    assert times.of(2, 3, 4, one_b) == times.of(2, 3, 4, folded) == 5 + 24 + 8000 + 10 * 12 + 3


def test_a_copy_of_operands_counts_where_many_cores_wait_for_it():
    """One thread makes it. More cores share the multiply-adds only."""
    sizes, own = (300, 400, 500), BatchKind.OWN_B
    assert XEON.of(*sizes, copied=1000) == XEON.of(*sizes)
    assert XEON_16.of(*sizes, copied=1000) == XEON_16.of(*sizes) + 1000 * XEON_16.copied
    shared = XEON_16.of(*sizes) - XEON_16.of(*sizes, share=0.5)
    assert abs(shared - 0.5 * 300 * 400 * 500 * XEON_16.multiply_add) < 1e-6
    assert XEON_16.of(*sizes, is_b_transposed=True) > XEON_16.of(*sizes)
    batch = XEON_16.of_batch(*sizes, 7, own)
    assert XEON_16.of_batch(*sizes, 7, own, 1000) == batch + 1000 * XEON_16.copied


def test_all_threads_share_large_matrices_of_a_batch():
    """On many cores, that has a cost of its own."""
    own, k = BatchKind.OWN_B, SHARED // 64
    assert XEON_16.of_batch(8, 8, k, 3, own) == 3 * XEON_16.loop.of(8, 8, k, own)
    assert XEON_16.of_batch(8, 8, k + 1, 3, own) == 3 * XEON_16.shared_loop.of(8, 8, k + 1, own)
    assert XEON.of_batch(8, 8, k + 1, 3, own) == 3 * XEON.loop.of(8, 8, k + 1, own)
