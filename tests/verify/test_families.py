"""Tests of the verification of kernel families."""

from __future__ import annotations

import numpy as np
import pytest

from clgemm.core.shapes import Shape
from clgemm.kernels import family_named
from clgemm.planning.planner import families
from clgemm.runtime.workspace import Workspace
from clgemm.verify import families as each_family
from clgemm.verify.tally import Tally

SEED = 27


def never():
    """There is no time."""
    return False


@pytest.fixture
def one_choice(monkeypatch):
    """Only the first config of each family: each is compiled."""
    choices = each_family.choices_of
    monkeypatch.setattr(each_family, "choices_of", lambda *which: choices(*which)[:1])


def test_a_family_is_verified_by_products_of_its_own(device, one_choice):
    """Each config makes products that keep the bound, and is named in the record."""
    tally, rng = Tally(), np.random.default_rng(SEED)
    each_family.verify_family(device, family_named("direct"), tally, rng, never)
    (count,) = tally.families["direct"].values()
    assert count.products == each_family.LEAST_PRODUCTS
    assert count.elements > 0
    assert tally.failures == 0, tally.messages
    assert tally.configs["direct"][0]["family"] == "direct"


def test_every_config_makes_products_whatever_the_time(device, monkeypatch):
    """In both modes of a family that has two; too large products are left out."""
    direct = family_named("direct")
    configs = [direct.plainest(device.traits), *direct.defaults(Shape(9, 9, 9), device.traits)]
    monkeypatch.setattr(each_family, "choices_of", lambda *_: configs)
    monkeypatch.setattr(each_family, "modes_of", lambda _: ("strict", "float32"))
    tally, rng = Tally(), np.random.default_rng(SEED)
    each_family.verify_family(device, direct, tally, rng, never)
    assert len(tally.configs["direct"]) == 2
    counts = tally.families["direct"]
    assert {mode: count.products for mode, count in counts.items()} == {"strict": 4, "float32": 4}
    monkeypatch.setattr(each_family, "MOST_WORK", 0)
    each_family.verify_family(device, direct, tally, rng, never)
    assert counts["strict"].products == 4


def test_a_family_goes_on_while_there_is_time(device, one_choice):
    """It begins anew with other operands when every case is done."""
    tally, rng, left = Tally(), np.random.default_rng(SEED), iter([True] * 9)
    direct = family_named("direct")
    each_family.verify_family(device, direct, tally, rng, lambda: next(left, False))
    assert tally.of_family("direct", "strict").products > 5
    assert tally.failures == 0, tally.messages


@pytest.mark.parametrize(
    ("fault", "said"),
    [("scale", "elements are wrong"), ("guard", "memory around C was written"), ("error", "boom")],
)
def test_a_wrong_product_of_a_family_is_counted_and_named(
    fault, said, device, one_choice, monkeypatch
):
    """A forgotten scale, a write beyond C and an error each are failures."""
    run = Workspace.run

    def wrong(self, plan, device, matrices, alpha, beta):
        if fault == "error":
            raise RuntimeError("boom")
        run(self, plan, device, matrices, alpha + 1, beta)

    real = each_family.on_device

    def placed(device, operand):
        view, base = real(device, operand)
        if fault == "guard":
            base[...] = 3.0
        return view, base

    if fault == "guard":
        monkeypatch.setattr(each_family, "on_device", placed)
    else:
        monkeypatch.setattr(Workspace, "run", wrong)
    tally, rng = Tally(), np.random.default_rng(SEED)
    left = iter([True] * 5)
    each_family.verify_family(device, family_named("direct"), tally, rng, lambda: next(left, False))
    assert tally.failures > 0
    assert said in "".join(tally.messages)
    assert "direct DirectConfig(" in tally.messages[0]


def test_every_family_of_a_device_has_configs_and_edge_shapes(device):
    """Nothing that a product may use is left out of verification."""
    for family in families(device):
        assert each_family.choices_of(device, family)
        assert {mode for _, _, mode in each_family.cases_of(device, family)} == set(
            each_family.modes_of(family)
        )
