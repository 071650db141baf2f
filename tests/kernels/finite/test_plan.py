"""The launch that tells whether elements are finite: its config, its numbers, and what it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from planned import LIMITS, TWO_CORES

from clgemm.core.problem import Layout
from clgemm.kernels.finite.plan import (
    LEAST_ELEMENTS_OF_VECTORS,
    FiniteConfig,
    count_flags,
    finite_plan,
)
from clgemm.runtime.operands import Matrix
from clgemm.runtime.workspace import workspace


@pytest.mark.parametrize(
    ("group", "width", "problem"),
    [
        (0, 4, "group=0 is less than 1"),
        (64, 3, "width=3 is not one of (1, 2, 4, 8, 16)"),
        (64, 1, "width=1 is no vector"),
    ],
)
def test_broken_constraints_are_named(group, width, problem):
    """A single element is no vector: OpenCL C compares it to 1, not to all bits."""
    assert list(FiniteConfig(group, width).problems()) == [problem]


BEFORE, BETWEEN = 5, 3  # elements that do not belong to what is looked at
LAYOUT = Layout((1, 1), (1, 1), 4)  # not read


def flags_of(elements, device):
    """The flags of elements, which lie in the middle of a buffer that also takes the flags."""
    count = count_flags(elements.size, device.limits)
    first = BEFORE + elements.size + BETWEEN
    whole = np.full(first + count + 1, np.nan, np.float32)
    whole[BEFORE : BEFORE + elements.size] = elements
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(device.context, flags, hostbuf=whole)
    matrices = {"a": Matrix(buffer, BEFORE, LAYOUT), "c": Matrix(buffer, first, LAYOUT)}
    plan = finite_plan(elements.size, device.limits)
    event = workspace(device.queue).run(plan, device, matrices)
    after = np.empty_like(whole)
    cl.enqueue_copy(device.queue, after, buffer, wait_for=[event])
    np.testing.assert_array_equal(after[:first], whole[:first])
    assert np.isnan(after[-1])
    found = after[first:-1]
    assert set(found) <= {0.0, 1.0}
    return found


@given(
    st.integers(1, 100_000),
    st.sampled_from([np.nan, -np.nan, np.inf, -np.inf]),
    st.randoms(use_true_random=False),
)
@example(LEAST_ELEMENTS_OF_VECTORS, np.nan, None)
@example(LEAST_ELEMENTS_OF_VECTORS + 1, np.inf, None)
@example(15, np.inf, None)
def test_one_element_that_is_not_finite_is_found(device, count, value, random):
    """In whichever place; without it, all elements are finite, however large or small they are."""
    elements = np.resize(np.array([3.4e38, -3.4e38, 1e-45, -0.0, 1.5], np.float32), count)
    assert (flags_of(elements, device) == 1).all()
    elements[count - 1 if random is None else random.randrange(count)] = value
    assert (flags_of(elements, device) == 0).sum() == 1


@pytest.mark.parametrize(("elements", "groups"), [(1, 1), (4096, 1), (4097, 2), (10**9, 64)])
def test_large_results_get_no_more_work_groups_than_run_at_once(elements, groups):
    """Each reads more then."""
    limits = replace(LIMITS, compute_units=8)
    assert count_flags(elements, limits) == groups
    assert finite_plan(elements, limits) is finite_plan(elements, limits)


def test_a_work_item_of_a_cpu_reads_vectors_alone():
    """It has no others to share a group with."""
    (step,) = finite_plan(10**6, TWO_CORES).steps
    assert (step.config.items, step.groups) == (1, 8)
