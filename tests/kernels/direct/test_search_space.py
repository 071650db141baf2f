"""The search space of the direct family."""

from __future__ import annotations

from planned import LIMITS, TWO_CORES, traits_with

from clgemm.kernels.direct.family import DIRECT


def space_of(traits):
    """Return the space around the plainest config."""
    return DIRECT.search_space(DIRECT.plainest(traits), traits)


def test_large_work_groups_are_tried_on_lanes_only():
    """A work-group of a CPU has few work-items: each fills a core's vectors."""
    on_lanes, on_vectors = space_of(traits_with(LIMITS)), space_of(traits_with(TWO_CORES, "CPU"))
    assert max(on_lanes.values["items_m"]) == 32
    assert max(on_vectors.values["items_m"]) == 8
    assert on_lanes.coarse != on_vectors.coarse


def test_coarse_values_are_values():
    """The coarse grid lies in the space."""
    for traits in (traits_with(LIMITS), traits_with(TWO_CORES, "CPU")):
        space = space_of(traits)
        for names, rows in space.coarse.items():
            for row in rows:
                assert all(x in space.values[name] for name, x in zip(names, row, strict=True))
