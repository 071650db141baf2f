"""Plans of packing and copying."""

from __future__ import annotations

from planned import kernels

from clgemm.core.layout import Layout
from clgemm.kernels.pack.config import PackConfig
from clgemm.kernels.pack.plan import make_copy_plan


def test_a_copy_is_one_launch():
    """A batch of any strides is copied by one launch."""
    made = make_copy_plan(Layout((3, 4, 5), (100, 1, 4)), PackConfig(panel=1, depth=64, group=8))
    assert kernels(made) == ["pack"]
