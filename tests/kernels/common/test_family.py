"""What all families share, by the example of two; choices, search spaces and samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, TWO_CORES, dense, traits_with

from clgemm.core.problem import SHAPE_CLASSES, Problem, Shape, fresh, shape_class
from clgemm.kernels import FAMILIES, NAMED
from clgemm.kernels.common.family import Choice, changed, tile_edges, values_of
from clgemm.kernels.direct.family import DIRECT, DirectConfig
from clgemm.kernels.pack.plan import pack_config
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


@pytest.mark.parametrize("family", NAMED.values(), ids=lambda family: family.name)
def test_what_the_tuner_begins_with_lies_in_its_space(family):
    """The coarse grid does, and the point of a default makes that again; on lanes or on vectors."""
    on_lanes = traits_with(LIMITS, is_nvidia=True, capability=(9, 0))
    for traits in filter(family.runs_on, (on_lanes, traits_with(TWO_CORES, "CPU"))):
        assert family.for_vectors in (None, traits.has_vectors)
        default = family.defaults(SHAPE, traits)[0]
        space = family.search_space(default, traits)
        for names, rows in space.coarse.items():
            for row in rows:
                assert all(x in space.values[name] for name, x in zip(names, row, strict=True))
        assert space.make(space.read(default)) == default


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


@pytest.mark.parametrize("name", SHAPE_CLASSES)
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_samples_stand_for_their_class(name, kind):
    """Each is of its class, and so is what the winner is checked on again."""
    every = [family.samples(kind).get(name, ()) for family in FAMILIES]
    assert any(every)
    for shape in {shape for shapes in every for shape in shapes}:
        assert shape_class(*shape) == shape_class(*fresh(shape)) == name
        assert fresh(shape) != shape


def test_edges_of_a_tile_are_beside_it():
    """Each side of C is beside one and two tiles; there is a batch, and a sum of odd length."""
    shapes = tile_edges(128, 64, 16)
    assert {127, 129, 255, 256} <= {shape.m for shape in shapes}
    assert {63, 65, 127, 128} <= {shape.n for shape in shapes}
    assert any(shape.matrices > 1 for shape in shapes)
    assert any(shape.k % 2 and shape.k > 16 for shape in shapes)
