"""Tests of plans in words."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from clgemm.bench import contenders, plans
from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE
from clgemm.core.precision import precision
from clgemm.kernels import FAMILIES


@pytest.mark.parametrize("case", [Case("", 64, 64, 64), Case("", 9, 8, 7, "T", "S", batch=3)])
def test_a_plan_names_its_family_its_config_and_its_launches(device, case):
    """The family is one that makes products, and one of the launches is of it."""
    call = contenders.prepare("clgemm", case, DEVICE, device)
    with precision("strict"):
        found = plans.described(*call.matrices, device)
    assert found["family"] in {family.name for family in FAMILIES}
    counts = dict(reversed(each.split(" ", 1)) for each in found["launches"].split(", "))
    assert int(counts[found["family"]]) >= 1
    assert all(text.partition("=")[2].isdecimal() for text in found["config"].split(", "))


def test_products_in_tiles_have_no_single_plan(monkeypatch):
    """Host arrays that reach a device through transfers are multiplied in tiles."""
    monkeypatch.setattr(plans, "transfer_config", lambda _: object())
    a = np.zeros((2, 2), np.float32)
    assert plans.described(a, a, a, None) == {
        "family": "",
        "config": "",
        "launches": "tiles, with transfers",
    }


def test_the_launch_that_multiplies_is_found():
    """It is the first one of a family that makes products; a lonely other launch stands alone."""
    steps = [SimpleNamespace(config=SimpleNamespace(family=name)) for name in NAMES]
    assert plans.main_step(steps) is steps[1]
    assert plans.main_step(steps[:1]) is steps[0]


NAMES = "pack", "tiled", "reduce", "direct"
