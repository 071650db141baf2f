"""The tiled family: its defaults, and how far its model is trusted."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from planned import LIMITS, TWO_CORES, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.tiled.config import TiledConfig
from clgemm.kernels.tiled.defaults import that_fit
from clgemm.kernels.tiled.family import TILED
from clgemm.kernels.tiled.plan import in_place_us

GPU = traits_with(LIMITS)
NVIDIA = traits_with(LIMITS, is_nvidia=True)
NEWER = traits_with(replace(LIMITS, asynchronous_copies=True), is_nvidia=True)


@pytest.mark.parametrize("shape", [Shape(4096, 4096, 4096), Shape(33, 65, 900), Shape(64, 64, 9)])
@pytest.mark.parametrize("traits", [GPU, NVIDIA])
def test_the_default_with_the_shortest_expected_time_is_first(shape, traits):
    """All configs that fit follow, each once."""
    choices = TILED.defaults(shape, traits)
    times = [TILED.estimate(shape, choice.config, traits) for choice in choices]
    assert times[0] == min(times)
    assert sorted(map(str, (choice.config for choice in choices))) == sorted(
        map(str, that_fit(traits))
    )


def test_a_device_that_no_config_fits_is_named():
    """The error says which family and which device."""
    tiny = traits_with(replace(LIMITS, local_memory_bytes=100))
    with pytest.raises(RuntimeError, match="no config of the tiled family fits Traits"):
        TILED.defaults(Shape(9, 9, 9), tiny)


def test_the_model_is_for_gpus():
    """It is trusted more for large products, and not at all on a CPU that plays a GPU."""
    large, small = Shape(1024, 1024, 1024), Shape(1024, 1024, 1023)
    assert 1 < TILED.slack(large, GPU) < TILED.slack(small, GPU) < 2
    assert TILED.slack(large, traits_with(LIMITS, "CPU")) == float("inf")
    assert not TILED.runs_on(traits_with(TWO_CORES, "CPU"))


def test_a_fallback_has_the_config_that_is_fastest_in_place():
    """It packs nothing of a small product that can be read in place."""
    shape = Shape(401, 403, 405)
    problem = Problem.of(shape, "float32")
    far = TILED.defaults(shape, NVIDIA)[-1]
    (launch,) = TILED.fallback(problem, far, NVIDIA)(problem).steps
    found = {
        choice: in_place_us(*problem.layouts, choice.config, NVIDIA.limits)
        for choice in TILED.candidates(problem, NVIDIA)
    }
    best = min(found, key=found.get).config
    assert plain(launch.config) == best


def test_a_fallback_has_the_choice_of_a_record_if_that_is_faster():
    """It need not be one of the defaults."""
    shape = Shape(401, 403, 405)
    problem = Problem.of(shape, "float32")
    found = TILED.defaults(shape, NVIDIA)[0]
    found = found._replace(config=replace(found.config, percent=50, swizzle=3))
    (launch,) = TILED.fallback(problem, found, NVIDIA)(problem).steps
    assert plain(launch.config) == found.config


def test_a_fallback_packs_where_that_saves_far_more_than_its_launches_cost():
    """Operands of odd strides, if they are large; small or aligned ones are read in place."""

    def families(m, n, k):
        shape = Shape(m, n, k)
        problem = Problem.of(shape, "float32")
        aligned = (x._replace(alignment_bytes=256) for x in problem.layouts)
        problem = Problem(*aligned, problem.precision)
        plan = TILED.fallback(problem, TILED.defaults(shape, NEWER)[0], NEWER)(problem)
        return [step.config.family for step in plan.steps]

    assert families(3001, 3003, 5005) == ["pack", "pack", "tiled"]
    assert families(701, 703, 705) == ["tiled"]
    assert families(3072, 3072, 5120) == ["tiled"]


def test_a_fallback_takes_no_config_that_would_pack_what_others_read_in_place():
    """One whose work-items are full of sums does, and is otherwise the fastest here."""
    shape = Shape(1001, 1001, 301)
    problem = Problem.of(shape, "float32")
    crowded = next(each for each in TILED.defaults(shape, NEWER) if each.config.is_crowded)
    (launch,) = TILED.fallback(problem, crowded, NEWER)(problem).steps
    assert not launch.config.is_crowded


def plain(variant):
    """Return the config that a launch's config was made from."""
    return TiledConfig(**{f.name: getattr(variant, f.name) for f in fields(TiledConfig)})


def test_tiles_that_are_not_square_cover_c_either_way():
    """A turned product has fewer tiles, unless stores against the rows cost more."""

    def tiles(m, n):
        choices = TILED.defaults(Shape(9, 9, 9), NEWER)
        return next(c for c in choices if (c.config.tile_m, c.config.tile_n) == (m, n))

    def turns(shape, choice):
        return TILED.is_faster_transposed(Problem.of(shape, "strict"), choice, NEWER)

    assert turns(Shape(32, 9000, 999), tiles(128, 16))
    assert not turns(Shape(9000, 32, 999), tiles(128, 16))
    assert not turns(Shape(128, 9000, 1), tiles(128, 16))
    assert not turns(Shape(32, 9000, 999), tiles(64, 64))
