"""Configs with other values, for search spaces."""

from __future__ import annotations

from clgemm.kernels.common.search_space import changed, values_of
from clgemm.kernels.direct.config import DirectConfig

CONFIG = DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False)


def test_flags_stay_flags():
    """A changed config equals one that was made so, and its hash does too: flags become bool."""
    made = changed(CONFIG, {"fma": 1, "width": 4})
    assert made == DirectConfig(items_m=8, items_n=8, work_m=2, width=4, fma=True)
    assert made.fma is True
    assert hash(made) == hash(DirectConfig(8, 8, 2, 4, True))


def test_what_is_no_field_is_left_out():
    """A point may have values that only the packing takes."""
    assert changed(CONFIG, {"pack_depth": 64}) == CONFIG
    assert values_of(CONFIG, {"pack_depth": (8, 64), "width": (1, 2), "fma": (0, 1)}) == {
        "width": 2,
        "fma": 0,
    }
