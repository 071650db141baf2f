"""Tests of the traits of a device."""

from __future__ import annotations

import pytest

from clgemm.core.config import Limits
from clgemm.core.traits import MANY_CORES, Traits


@pytest.mark.parametrize("width", [1, 2, 16])
@pytest.mark.parametrize("units", [1, MANY_CORES - 1, MANY_CORES])
def test_flags_follow_from_limits(width, units):
    """Vectors have more than one float; eight cores are many."""
    traits = Traits(Limits(2**15, 256, 2**30, units, width), "CPU")
    assert traits.has_vectors == (width > 1)
    assert traits.has_many_cores == (units >= 8)
