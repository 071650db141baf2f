"""The config of the kernel that adds up partial products."""

from __future__ import annotations

from dataclasses import replace

from clgemm.kernels.split_k.config import ReduceConfig

CONFIG = ReduceConfig(group=64, parts=8, width=4)


def test_every_work_item_has_a_vector_in_local_memory():
    """Those that share an element add up what they hold there."""
    assert CONFIG.local_memory_bytes == 4 * 64 * 4
    assert CONFIG.items == 64


def test_parts_divide_a_work_group():
    """Otherwise some work-items would have no element."""
    assert not list(CONFIG.problems())
    (problem,) = replace(CONFIG, parts=7).problems()
    assert problem == "group=64 is not a multiple of parts=7"
