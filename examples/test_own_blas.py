"""An example of tests of a BLAS-like routine of one's own, with the kit that tests clgemm.

The routine multiplies column-major matrices in flat storage, as SciPy's BLAS does, in blocks of k.
No OpenCL device is needed.

    python -m pytest examples/test_own_blas.py
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from clgemm.testing import BlasCall, assert_bitwise_repeatable, gemm_problems

BLOCK_K = 8


def matrix(storage: np.ndarray, leading: int, rows: int, columns: int) -> np.ndarray:
    """Return the column-major matrix that begins flat storage, as a view."""
    if rows == 0 or columns == 0:
        return np.zeros((rows, columns), np.float32)
    strides = storage.itemsize, storage.itemsize * leading
    return np.lib.stride_tricks.as_strided(storage, (rows, columns), strides)


def own_sgemm(p: BlasCall) -> None:
    """Compute C = alpha op(A) op(B) + beta C in place."""
    a = matrix(p.a, p.lda, *((p.k, p.m) if p.trans_a else (p.m, p.k)))
    b = matrix(p.b, p.ldb, *((p.n, p.k) if p.trans_b else (p.k, p.n)))
    c = matrix(p.c, p.ldc, p.m, p.n)
    a, b = (a.T if p.trans_a else a), (b.T if p.trans_b else b)
    # With beta = 0 what C holds does not count, not even NaN.
    c[...] = np.float32(p.beta) * c if p.beta else 0
    if p.alpha:
        for first in range(0, p.k, BLOCK_K):
            block = slice(first, first + BLOCK_K)
            c += np.float32(p.alpha) * (a[:, block] @ b[block])


@settings(deadline=None)
@given(gemm_problems(storage="F"))
def test_the_product_is_within_float32s_error_bound(problem):
    """Every element keeps the bound of float32 sums, and nothing but C is written."""
    # Each block's sum is scaled: more roundings than the k + 2 of "strict".
    own_sgemm(problem.blas)
    problem.check(problem.c.view, precision="float32")


@settings(deadline=None)
@given(gemm_problems(storage="F"))
def test_the_same_call_gives_the_same_bits(problem):
    """The routine is deterministic."""

    def multiplied(c: np.ndarray) -> np.ndarray:
        own_sgemm(problem.blas._replace(c=c))
        return c

    assert_bitwise_repeatable(multiplied, problem.blas.c.copy())
