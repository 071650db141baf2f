"""A BLAS sgemm in NumPy with planted faults, and whether the kit for tests finds them."""

from __future__ import annotations

import numpy as np


def stored(storage, leading, order, rows, columns):
    """The matrix in flat storage, as a view."""
    inner, outer = (rows, columns) if order == "F" else (columns, rows)
    if inner * outer == 0:
        return np.zeros((rows, columns), np.float32)
    view = np.lib.stride_tricks.as_strided(storage, (outer, inner), (4 * leading, 4))
    return view.T if order == "F" else view


def own_sgemm(p, fault=""):
    """A BLAS sgemm in NumPy, with a fault that is asked for."""
    rows_a = (p.k, p.m) if p.trans_a else (p.m, p.k)
    lda = max(1, rows_a[p.order == "C"]) if fault == "leading dimension ignored" else p.lda
    a = stored(p.a, lda, p.order, *rows_a)
    b = stored(p.b, p.ldb, p.order, *((p.n, p.k) if p.trans_b else (p.k, p.n)))
    c = stored(p.c, p.ldc, p.order, p.m, p.n)
    a, b = (a.T if p.trans_a else a), (b.T if p.trans_b else b)
    k = p.k - p.k % 4 if fault == "tail of k dropped" else p.k
    with np.errstate(all="ignore"):
        if fault == "float16 accumulation":
            total = np.zeros((p.m, p.n), np.float16)
            for i in range(k):
                total += np.outer(a[:, i], b[i]).astype(np.float16)
        else:
            total = a[:, :k].astype(np.float64) @ b[:k].astype(np.float64)
        result = p.alpha * total.astype(np.float64) if p.alpha else np.zeros(c.shape)
        if p.beta or fault == "beta read when 0":
            result = result + p.beta * c
    c[...] = result
    if fault == "writes beyond C" and c.size:
        p.c[: p.ldc] = 0
    if fault == "modifies A" and p.a.size:
        p.a[0] = 0


def is_wrong(problem, fault):
    """Whether the kit sees the fault in a problem; whatever a call wrote is put back."""
    try:
        own_sgemm(problem.blas, fault)
        problem.check(problem.c.view, "strict")
    except AssertionError:
        return True
    finally:
        for operand in (problem.a, problem.b, problem.c):
            operand.base[...] = operand.before
    return False
