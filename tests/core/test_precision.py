"""Tests of the precision of products."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

import clgemm
from clgemm.planning import planner
from clgemm.transfer import call_cache


@pytest.mark.parametrize("setting", ["strict", "fast"])
def test_precision_by_block_environment_and_argument(monkeypatch, setting):
    """The argument comes before the block, the block before the environment."""
    asked = []
    monkeypatch.setattr(planner, "plan_of", planner.plan_of.__wrapped__)  # not cached
    monkeypatch.setattr(call_cache, "_calls", {})
    chosen = planner.choose
    monkeypatch.setattr(planner, "choose", lambda d, p: asked.append(p.precision) or chosen(d, p))
    a, b = np.ones((80, 80), np.float32), np.ones((90, 90), np.float32)
    monkeypatch.setenv("CLGEMM_PRECISION", setting)
    clgemm.matmul(a, a)
    with clgemm.precision("float32"):
        clgemm.matmul(a, a)
        clgemm.sgemm(1.0, a, a, precision=setting)
    clgemm.precision("float32")(clgemm.dot)(b, b)
    clgemm.dot(b, b)
    # Where operands go to the device in tiles, a product is planned for more than once.
    assert [p for p, _ in groupby(asked)] == [setting, "float32", setting, "float32", setting]
    with pytest.raises(ValueError, match="'half'"):
        clgemm.precision("half")
