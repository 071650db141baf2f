"""The config of the direct family."""

from __future__ import annotations

from clgemm.kernels.direct.config import DirectConfig


def test_every_field_is_a_macro():
    """The kernel is compiled for its config alone: it gets nothing else but the product."""
    config = DirectConfig(items_m=4, items_n=8, work_m=2, width=16, fma=True)
    assert dict(config.macros()) == {
        "ITEMS_M": 4, "ITEMS_N": 8, "WORK_M": 2, "WIDTH": 16, "FMA": 1
    }  # fmt: skip
    assert config.items == 32
    assert config.local_memory_bytes == 0
