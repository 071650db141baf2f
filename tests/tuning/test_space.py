"""Tests of the space of choices that the tuner searches."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from clgemm.core.config import Limits
from clgemm.core.shapes import Shape
from clgemm.core.traits import Traits
from clgemm.kernels import family_named
from clgemm.planning import planner
from clgemm.records.record import problems_of
from clgemm.tuning.space import space_of

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
    "family", ["tiled", "blocked", "skinny_cpu", "skinny_gpu", "direct", "tensor"]
)
def test_points_keep_the_limits(family, limits, device):
    """In the grid, next to one another, or after a jump; a broken constraint makes no choice."""
    if family == "skinny_gpu":  # whose work-groups are as large as the device lets them be
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
