"""Tests of which products the families of tensor cores take, without a device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import traits_with
from strategies import GPU_LIMITS as LIMITS
from strategies import rows

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.common.family import Choice
from clgemm.kernels.tensor_core.config import WgmmaConfig, WgmmaVariant
from clgemm.kernels.tensor_core.family import WGMMA
from clgemm.planning import planner

WIDE = WgmmaVariant(swizzle=16, guard=True, tile_n=256, stages=2)
IN_BYTES = replace(WIDE, guard=False, int8=True)
TRAITS = traits_with(LIMITS, is_nvidia=True, capability=(9, 0))


class Able:
    """A device with wgmma units."""

    kind, limits, traits = "GPU", LIMITS, TRAITS


def config_of(device, precision, *sizes):
    """The config of a product on tensor cores; None if another family makes it."""
    problem = sizes[0] if isinstance(sizes[0], Problem) else Problem.of(Shape(*sizes), precision)
    family, choice = planner.choose(device, problem)
    return family.variant_for(problem, choice.config) if family is WGMMA else None


@pytest.fixture
def no_records(monkeypatch):
    """Defaults serve, and wgmma works."""
    monkeypatch.setattr(planner, "instructions_of", lambda _: "wgmma")
    monkeypatch.setattr(planner, "tuned", lambda *_: None)


def test_strict_and_small_products_stay_plain(no_records):
    """Only the others ask for the tensor cores."""
    able, big = Able(), (4096, 4096, 4096)
    assert config_of(able, "float32", *big) == WIDE
    assert config_of(able, "fast", *big) == IN_BYTES
    assert config_of(able, "fast", 4096, 4096, 2047) == replace(WIDE, guard=False)
    assert config_of(able, "float32", 1024, 1024, 1024).guard
    assert config_of(able, "strict", *big) is None
    assert config_of(able, "fast", 8192, 8192, 32)
    assert config_of(able, "fast", 8192, 8192, 31) is None  # other kernels are as fast
    assert config_of(able, "fast", 200, 200, 300) is None
    assert config_of(able, "fast", 1024, 1024, 1024, 1000)
    assert config_of(able, "float32", 200, 200, 300, 2) is None
    assert config_of(able, "float32", 512, 512, 512, 20)
    assert config_of(able, "fast", 64, 128, 65536) is None  # too few tiles
    assert config_of(able, "fast", 1024, 1024, 16384)


@pytest.mark.parametrize(("parts", "takes"), [(256, True), (1000, False)])
def test_batches_of_many_launches_stay_plain(no_records, parts, takes):
    """Each part of a batch whose loops do not join takes its own launches."""
    x = rows(parts, 2, 1024, 1024)
    apart = x._replace(strides=(x.strides[0] + 8, *x.strides[1:]))
    assert bool(config_of(Able(), "fast", Problem(apart, apart, apart, "fast"))) == takes


def test_a_record_serves_where_its_tiles_do(monkeypatch):
    """With each call's own precision; not where its tiles would leave most of a device idle."""
    able, found, asked = Able(), WgmmaConfig(swizzle=4, tile_n=256, stages=2), []
    monkeypatch.setattr(planner, "instructions_of", lambda _: "wgmma")

    def tuned_of(_, family, *key):
        asked.append((family, key[0]))
        return Choice(found) if family == "tensor" else None

    monkeypatch.setattr(planner, "tuned", tuned_of)
    tuned = replace(WIDE, swizzle=4)
    big = 4096, 4096, 4096
    assert config_of(able, "float32", *big) == tuned
    assert config_of(able, "fast", *big) == replace(tuned, guard=False, int8=True)
    assert ("tensor", "large") in asked
    narrow = config_of(able, "float32", 1408, 1408, 1408)
    assert (narrow.tile_n, narrow.swizzle) == (128, 16)
    assert ("tensor", "medium") in asked
