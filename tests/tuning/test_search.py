"""Tests of the space of choices that the tuner searches."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from clgemm.core.problem import Shape
from clgemm.core.traits import Limits, Traits
from clgemm.kernels import family_named
from clgemm.kernels.common.family import Choice
from clgemm.kernels.pack.plan import pack_config
from clgemm.kernels.tiled.family import lane_configs
from clgemm.planning import planner
from clgemm.records.tuned import problems_of
from clgemm.tuning.search import search, space_of

BIG = Limits(2**20, 1024, 2**30, 8, 16)


def test_what_was_made_by_hand_is_in_the_space(device):
    """A choice becomes a point and that point the choice."""
    for family in planner.families(device):
        choices = family.defaults(Shape(1024, 1024, 1024), device.traits)
        space = space_of(family.name, choices[0], device.traits)
        for choice in (*choices, family.plainest(device.traits)):
            if space.values:  # tensor_narrow is not tuned
                assert space.choice(space.point(choice)) == choice


@pytest.mark.parametrize("limits", [BIG, Limits(32 * 1024, 256, 2**28, 8, 4)])
@pytest.mark.parametrize(
    "family",
    [
        "tiled",
        "blocked",
        "skinny_cpu",
        "skinny_gpu",
        "direct",
        "tensor",
        "exact_int32",
        "exact_complex128",
    ],
)
def test_points_keep_the_limits(family, limits, device):
    """In the grid, next to one another, or after a jump; a broken constraint makes no choice."""
    # Its work-groups are as large as the device lets them be; the other has more to search there.
    if family in ("skinny_gpu", "exact_complex128"):
        limits = replace(limits, vector_width=1)
    if family == "tensor":  # whose work-groups have 384 work-items
        limits = replace(limits, work_group_size=1024)
    traits = Traits(limits, device.kind, is_vector_compiler=True)
    default = family_named(family).plainest(traits)
    space, rng = space_of(family, default, traits), Random(0)
    base = space.point(default)
    grid = space.sketch(base)
    assert len({space.choice(point) for point in grid}) == len(grid) >= 6
    neighbours = 0
    for point in rng.sample(grid, 6):
        choice = space.choice(point)
        assert not problems_of(choice, limits)
        assert space.choice(space.point(choice)) == choice
        jumps = [space.jump(point, steps, rng) for steps in (3, len(point))]
        for other in (*space.neighbours(point), *jumps):
            made = space.choice(other)
            assert made is None or not problems_of(made, limits)
            neighbours += made is not None
    assert neighbours > (5 if family == "tensor" else 15)


BIG = Limits(2**20, 1024, 2**30, 8, 16)


def searched(score, seconds=400):
    """What a search finds in the local family within so many trials, from its plainest config."""
    plain = Choice(lane_configs()[-1], tuple(pack_config(BIG, 16) for _ in range(2)))
    space, spent = space_of("tiled", plain, Traits(BIG, "GPU")), []

    def counted(point):
        spent.append(space.choice(point))
        return score(spent[-1].config)

    seed = space.point(plain)

    def left():
        return 1 - len(spent) / seconds

    best = search(space, [seed], space.sketch(seed), counted, left, Random(3))
    assert len(set(spent)) == len(spent)
    return best and space.choice(best).config, len(spent)


def test_the_search_climbs():
    """To the top of a hill with a ridge along it, within a small part of the space."""

    def hill(c):
        even = abs(np.log2(c.tile_m / c.tile_n))
        far = abs(np.log2(c.work_m * c.work_n / 64)) + abs(np.log2(c.tile_k / 16))
        return 10 - even - far - abs(np.log2(c.tile_m / 128)) + 0.1 * c.buffers

    best, spent = searched(hill)
    assert (best.tile_m, best.tile_n, best.tile_k, best.buffers) == (128, 128, 16, 2)
    assert best.work_m * best.work_n == 64
    assert spent <= 402


def test_the_search_crosses_valleys():
    """Large tiles are found although every way to them, from small ones, leads down first."""

    def two_hills(c):
        sides = c.tile_m, c.tile_n, 16 * c.work_m, 16 * c.work_n
        small = sum(abs(np.log2(side / 32)) for side in sides)
        large = sum(abs(np.log2(side / 128)) for side in sides)
        return max(1 - small / 10, 1.5 - large / 2, 0.1)

    best, _ = searched(two_hills, seconds=100)
    assert (best.tile_m, best.tile_n, best.work_m, best.work_n) == (128, 128, 8, 8)


def test_values_that_are_always_rejected_are_left_alone():
    """After a few rejections; a space where all is rejected has no best."""
    bad = []

    def score(c):
        bad.append(c.fma and c.tile_m > 16)
        return 0.0 if c.fma else 1.0 + c.tile_k

    best, _ = searched(score)
    assert best.tile_k == 32
    assert sum(bad) <= 3
    assert searched(lambda _: 0.0)[0] is None
