"""The kernel that makes results symmetric."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.plan import LAST_ITEM
from clgemm.core.problem import Layout
from clgemm.kernels.mirror.plan import MirrorConfig, MirrorTileConfig, TrianglesConfig, mirror_plan
from clgemm.runtime.operands import Matrix
from clgemm.runtime.workspace import workspace

GUARD = 77.0


@given(st.lists(st.integers(1, 3), max_size=4), st.integers(1, 100), st.data())
def test_one_triangle_is_copied_to_the_other(device, batch, n, data):
    """Of matrices of any strides; nothing else changes, and one of the triangles stays."""
    axes = data.draw(st.permutations(range(len(batch) + 2)))
    gap = data.draw(st.integers(0, 3))
    sizes = [*batch, n, n]
    whole = np.full([sizes[axis] + gap for axis in axes] or [1], GUARD, np.float32)
    places = np.argsort(axes)
    c = whole[tuple(slice(sizes[axis]) for axis in axes)].transpose(places)
    c[...] = np.random.default_rng(n).standard_normal(c.shape)
    before, around = c.copy(), np.count_nonzero(whole == GUARD)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(device.context, flags, hostbuf=whole)
    layout = Layout(c.shape, tuple(s // 4 for s in c.strides), 4)
    plan = mirror_plan(layout, device.limits)
    event = workspace(device.queue).run(plan, device, {"c": Matrix(buffer, 0, layout)})
    cl.enqueue_copy(device.queue, whole, buffer, wait_for=[event])
    np.testing.assert_array_equal(c, c.swapaxes(-1, -2))
    assert np.array_equal(np.triu(c), np.triu(before)) or np.array_equal(
        np.tril(c), np.tril(before)
    )
    assert np.count_nonzero(whole == GUARD) == around


def test_launches_fit_every_device(device):
    """Large batches are cut; small work-groups have smaller tiles."""
    limits = replace(device.limits, vector_width=1)
    steps = mirror_plan(Layout((70_000, 900, 900), (810_000, 900, 1), 64), limits).steps
    assert len(steps) > 1
    assert all(step.groups * step.config.items <= LAST_ITEM for step in steps)
    (step,) = mirror_plan(Layout((9, 9), (9, 1), 4), replace(limits, work_group_size=16)).steps
    assert step.config.items <= 16
    on_cpu = replace(device.limits, vector_width=16)
    steps = mirror_plan(Layout((2**23, 900, 900), (810_000, 900, 1), 64), on_cpu).steps
    assert len(steps) > 1
    assert all(step.groups <= LAST_ITEM and step.config.items == 1 for step in steps)
    assert not list(step.config.problems())


@pytest.mark.parametrize(
    "config",
    [
        *(MirrorConfig(0, 1), MirrorConfig(8, 3), MirrorTileConfig(0), MirrorTileConfig(8)),
        *(TrianglesConfig(0, 1, True, True), TrianglesConfig(32, 1, False, False)),
        TrianglesConfig(32, 3, True, True),
    ],
)
def test_wrong_sizes_have_a_problem(config):
    assert list(config.problems())
