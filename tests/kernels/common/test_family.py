"""What all families share, by the example of two."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, dense, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.direct.family import DIRECT
from clgemm.kernels.pack.defaults import pack_config
from clgemm.kernels.tiled.family import TILED

TRAITS = traits_with(LIMITS)
SHAPE = Shape(1000, 1000, 1000)
TILES = TILED.plainest(TRAITS)


def test_a_record_serves_while_its_estimate_is_near_the_defaults(monkeypatch):
    """It may take so many times the default's estimate; a family without a model takes any."""
    times = {4: 1.0, 8: 1.2, 16: 1.3}
    monkeypatch.setattr(type(TILED), "estimate", lambda *of: times[of[2].tile_k])
    monkeypatch.setattr(type(TILED), "slack", lambda *_: 1.2)
    default, near, far = (Choice(replace(TILES.config, tile_k=k), TILES.pack) for k in times)
    assert TILED.serves(near, default, SHAPE, TRAITS)
    assert not TILED.serves(far, default, SHAPE, TRAITS)
    plain = DIRECT.plainest(TRAITS)
    assert DIRECT.serves(plain, DIRECT.defaults(SHAPE, TRAITS)[0], SHAPE, TRAITS)


def test_panels_that_are_no_tiles_are_a_problem():
    """A choice whose packing makes other panels than its kernel reads is refused by name."""
    assert not list(TILED.problems(TILES, LIMITS))
    tile = TILES.config.tile_m
    wrong = TILES._replace(pack=(pack_config(LIMITS, tile), pack_config(LIMITS, 2 * tile)))
    assert list(TILED.problems(wrong)) == [
        f"panels of {(tile, 2 * tile)} rows do not make tiles of {(tile, tile)}"
    ]


def test_the_limits_of_a_device_count_if_they_are_given():
    """Without limits, a choice breaks only its own constraints."""
    large = Choice(replace(TILES.config, tile_k=2**14), TILES.pack)
    assert not list(TILED.problems(large))
    assert any("local memory" in problem for problem in TILED.problems(large, LIMITS))


def test_configs_of_other_families_are_refused():
    """A family does not take another one's choice for its own."""
    with pytest.raises(AssertionError):
        DIRECT.config_of(TILES)
    with pytest.raises(AssertionError):
        TILED.packing(Choice(TILES.config, (TILES.config,)))


def test_a_fallback_is_the_plan_of_the_same_choice():
    """A family without a plainer way is its own fallback."""
    problem = Problem(dense(9, 7), dense(7, 5), dense(9, 5), "strict")
    choice = DIRECT.plainest(TRAITS)
    fallback = DIRECT.fallback(problem, choice, TRAITS)
    (step,) = fallback(problem).steps
    for plan in (DIRECT.plan, DIRECT.trial_plan):
        (same,) = plan(problem, choice, TRAITS, fallback).steps
        assert same.config == step.config == choice.config
        assert same.arguments == step.arguments
