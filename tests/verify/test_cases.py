"""Tests of the operands of verification."""

from __future__ import annotations

import numpy as np

from clgemm.planning import planner
from clgemm.verify.cases import operands_for


def test_operands_of_verification_are_those_of_the_seed():
    """The same seed gives the same operands, so that a failure can be repeated."""
    direct = next(x for x in planner.FAMILIES if x.name == "direct")
    (shape, *_) = direct.edge_shapes(direct.config(1, 1, 2, 4, False))
    one, other = (
        operands_for(np.random.default_rng(3), direct, shape, "strict", 2) for _ in range(2)
    )
    np.testing.assert_array_equal(one.a.base, other.a.base)
    assert one.c.view.strides == other.c.view.strides
