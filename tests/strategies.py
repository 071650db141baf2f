"""Hypothesis strategies for whole problems: shapes, views, scalars and expected results.

Also layouts and limits for tests of plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from clgemm.core.config import Limits
from clgemm.core.layout import Layout

UNIT_ROUNDOFF = 2.0**-24
# Lengths around the edges of every shipped tile and vector, and anything small.
EDGES = sorted(
    {max(0, t + d) for t in (0, 4, 8, 16, 24, 32, 64, 128) for d in (-1, 0, 1)} | {65, 130}
)


def sizes(largest: int = 130) -> st.SearchStrategy[int]:
    """Draw a dimension of a matrix, zero included."""
    edges = [edge for edge in EDGES if edge <= largest]
    return st.one_of(st.sampled_from(edges), st.integers(0, min(largest, 40)))


def gamma(n: int) -> float:
    """Return Higham's bound on n roundings, n u / (1 - n u)."""
    return n * UNIT_ROUNDOFF / (1 - n * UNIT_ROUNDOFF)


@dataclass
class Buffer:
    """A view of a larger array, whose other elements are guards."""

    base: np.ndarray
    view: np.ndarray
    before: np.ndarray  # the base as it was

    def untouched_outside(self, view: np.ndarray) -> bool:
        """Tell whether only elements of one view of the base have changed."""
        changed = self.base.view(np.int32) != self.before.view(np.int32)
        mask = np.zeros(self.base.shape, bool)
        mask.ravel()[(np.arange(self.base.size))[_positions(self.base, view)]] = True
        return not (changed & ~mask).any()

    def untouched(self) -> bool:
        """Tell whether the base is unchanged, bit for bit."""
        return np.array_equal(self.base.view(np.int32), self.before.view(np.int32))


def _positions(base: np.ndarray, view: np.ndarray) -> np.ndarray:
    """Return the indices of a view's elements in its base, raveled in C order."""
    first = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // 4
    offsets = np.zeros(view.shape, np.int64) + first
    for axis, stride in enumerate(view.strides):
        steps = np.arange(view.shape[axis]) * (stride // 4)
        offsets += steps.reshape([-1 if i == axis else 1 for i in range(view.ndim)])
    return offsets.ravel()


@st.composite
def buffers(draw: st.DrawFn, values: np.ndarray, guard: float = np.nan) -> Buffer:
    """Draw a view with `values`, of any order, stride, direction and offset, surrounded by NaN."""
    steps = [draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2])) for _ in values.shape]
    before = [draw(st.integers(0, 3)) for _ in values.shape]
    after = [draw(st.integers(0, 2)) for _ in values.shape]
    order = draw(st.permutations(range(values.ndim)))
    lengths = [
        b + max(0, (n - 1) * abs(s) + 1) + a
        for n, s, b, a in zip(values.shape, steps, before, after, strict=True)
    ]
    base = np.full([lengths[axis] for axis in order], guard, np.float32)
    turned = base.transpose(np.argsort(order))
    slices = []
    for n, s, b in zip(values.shape, steps, before, strict=True):
        window = slice(b, b + max(0, (n - 1) * abs(s) + 1), abs(s))
        slices.append(window)
    view = turned[tuple(slices)]
    view = view[tuple(slice(None, None, -1 if s < 0 else 1) for s in steps)]
    view[...] = values
    return Buffer(base, view, base.copy())


@dataclass
class Problem:
    """One call of sgemm and its parts."""

    alpha: float
    beta: float
    a: Buffer
    b: Buffer
    c: Buffer | None
    trans_a: int
    trans_b: int
    overwrite_c: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of sgemm."""
        c = None if self.c is None else self.c.view
        rest = (self.trans_a, self.trans_b, self.overwrite_c)
        return (self.alpha, self.a.view, self.b.view, self.beta, c, *rest)

    def operands(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return op(A), op(B) and C in float64; C is zero if it is not read."""
        a = self.a.view.astype(np.float64)
        b = self.b.view.astype(np.float64)
        a, b = (a.T if self.trans_a else a), (b.T if self.trans_b else b)
        c = np.zeros((a.shape[0], b.shape[1]))
        if self.c is not None and self.beta != 0:
            c = self.c.view.astype(np.float64)
        return a, b, c

    def expected(self) -> np.ndarray:
        """Return the result in float64."""
        a, b, c = self.operands()
        product = self.alpha * (a @ b) if self.alpha else np.zeros(c.shape)
        return product + (self.beta * c if self.beta else 0)

    def bound(self) -> np.ndarray:
        """Return the forward error bound, which holds for any order of float32 operations."""
        a, b, c = self.operands()
        magnitude = abs(self.alpha) * (abs(a) @ abs(b)) + abs(self.beta) * abs(c)
        return gamma(a.shape[1] + 2) * magnitude


SCALARS = st.sampled_from([0.0, 1.0, -1.0, 2.0, -3.0])


def integers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw values whose products sum exactly in float32, in any order."""
    return rng.integers(-8, 9, shape).astype(np.float32)


def reals(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw values over 40 powers of two either way, whose products neither under- nor overflow."""
    values = rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-40, 41, shape)
    return values.astype(np.float32)


@st.composite
def problems(
    draw: st.DrawFn, values: Any = integers, scalars: Any = SCALARS, largest: int = 130
) -> Problem:
    """Draw any call of sgemm on matrices; a `c` that is not read is NaN."""
    m, n, k = draw(sizes(largest)), draw(sizes(largest)), draw(sizes(largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    trans_a, trans_b = draw(st.sampled_from([0, 1, 2])), draw(st.sampled_from([0, 1, 2]))
    beta = draw(scalars)
    a = draw(buffers(values(rng, (k, m) if trans_a else (m, k))))
    b = draw(buffers(values(rng, (n, k) if trans_b else (k, n))))
    c = None
    if draw(st.booleans()):
        content = values(rng, (m, n)) if beta else np.full((m, n), np.nan, np.float32)
        c = draw(buffers(content, guard=12345.0))
    return Problem(draw(scalars), beta, a, b, c, trans_a, trans_b, draw(st.sampled_from([0, 1])))


# A large GPU's.
GPU_LIMITS = Limits(
    local_memory_bytes=48 * 1024,
    work_group_size=1024,
    allocation_bytes=2**40,
    compute_units=132,
    vector_width=1,
)


def rows(*shape: int, alignment: int = 64) -> Layout:
    """Return the layout of a row-major stack."""
    strides = [1]
    for length in shape[:0:-1]:
        strides.insert(0, strides[0] * length)
    return Layout(shape, tuple(strides), alignment)
