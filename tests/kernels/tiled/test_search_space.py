"""The search space of the tiled family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, traits_with

from clgemm.core.shapes import Shape
from clgemm.kernels.tiled.family import TILED
from clgemm.kernels.tiled.search_space import MOST_SUMS

TRAITS = traits_with(LIMITS)
SPACE = TILED.search_space(TILED.plainest(TRAITS), TRAITS)
POINT = {name: values[0] for name, values in SPACE.values.items()}


@pytest.mark.parametrize(("work_m", "work_n", "made"), [(12, 12, True), (16, 12, False)])
def test_kernels_that_would_spill_are_not_made(work_m, work_n, made):
    """A work-item has at most 144 sums."""
    point = POINT | {"work_m": work_m, "work_n": work_n, "items_m": 8, "items_n": 8, "tile_k": 16}
    assert (work_m * work_n <= MOST_SUMS) == made
    assert (SPACE.make(point) is not None) == made


def test_tiles_follow_from_work_items_and_their_work():
    """A point's tiles have so many work-items of so many rows and columns, and its packing fits."""
    point = POINT | {"items_m": 8, "items_n": 16, "work_m": 4, "work_n": 8, "tile_k": 16}
    choice = SPACE.make(point)
    assert (choice.config.tile_m, choice.config.tile_n) == (32, 128)
    assert not list(TILED.problems(choice))


def test_coarse_tiles_are_nearly_square():
    """No side of a tile in the coarse grid is more than twice the other."""
    for items_m, items_n, work_m, work_n in SPACE.coarse["items_m", "items_n", "work_m", "work_n"]:
        assert 1 / 2 <= items_m * work_m / (items_n * work_n) <= 2


def test_asynchronous_copies_are_searched_where_devices_have_them():
    """On other devices every point stays without them."""
    assert SPACE.values["asynchronous"] == SPACE.values["registers"] == (0,)
    traits = traits_with(replace(LIMITS, asynchronous_copies=True), is_nvidia=True)
    space = TILED.search_space(TILED.plainest(traits), traits)
    point = {name: values[0] for name, values in space.values.items()}
    point |= {"items_m": 8, "items_n": 8, "work_m": 4, "work_n": 4, "tile_k": 16}
    made = space.make(point | {"asynchronous": 1, "buffers": 3, "registers": 128}).config
    assert (made.asynchronous, made.buffers, made.registers) == (True, 3, 128)
    assert not list(made.problems_on(traits.limits))
    assert {"asynchronous", "registers"} <= set(space.read(space.make(point)))


def test_the_defaults_of_nvidias_gpus_are_points():
    """Each is made again from its values, with the percent that was measured."""
    traits = traits_with(replace(LIMITS, asynchronous_copies=True), is_nvidia=True)
    for choice in TILED.defaults(Shape(512, 512, 512), traits):
        space = TILED.search_space(choice, traits)
        assert space.make(space.read(choice)) == choice
