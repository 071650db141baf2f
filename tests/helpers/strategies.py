"""Short names for clgemm.testing's strategies, and layouts and limits for tests of plans."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from clgemm.core.problem import Layout
from clgemm.core.traits import Limits
from clgemm.testing import DATA, EXACT, GemmProblem, Operand, gemm_problems, layouts, sides
from clgemm.testing.problems import made

Buffer, Problem, sizes = Operand, GemmProblem, sides
SCALARS = st.sampled_from([0.0, 1.0, -1.0, 2.0, -3.0])


def buffers(values: np.ndarray, guard: float = np.nan) -> st.SearchStrategy[Operand]:
    """Draw a view with `values`, of any order, stride, direction and offset, and guards."""
    return layouts(values.ndim).map(lambda layout: layout.place(values, guard))


def integers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw values whose products sum exactly in float32, in any order."""
    return rng.integers(-8, 9, shape).astype(np.float32)


reals = partial(made, "wide")


def problems(
    values: Any = integers, scalars: Any = SCALARS, largest: int = 130, **options: Any
) -> st.SearchStrategy[GemmProblem]:
    """Draw any call of sgemm on matrices, exact in float32 or of every family of data."""
    data = EXACT if values is integers else tuple(DATA)
    return gemm_problems(max_side=largest, data=data, alpha=scalars, beta=scalars, **options)


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
