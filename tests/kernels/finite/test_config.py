"""The config of the kernel that tells whether elements are finite."""

from __future__ import annotations

import pytest

from clgemm.kernels.finite.config import FiniteConfig


def test_a_work_group_has_work_items_and_one_mark_in_local_memory():
    """What the device's limits are compared with."""
    config = FiniteConfig(group=64, width=4)
    assert (config.items, config.local_memory_bytes) == (64, 4)
    assert not list(config.problems())


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
