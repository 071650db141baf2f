"""The search space of the skinny_gpu family."""

from __future__ import annotations

from planned import LIMITS, traits_with

from clgemm.kernels.skinny_gpu.family import SKINNY_GPU

TRAITS = traits_with(LIMITS)
SPACE = SKINNY_GPU.search_space(SKINNY_GPU.plainest(TRAITS), TRAITS)


def test_a_points_chunk_suits_the_rows():
    """In the coarse grid, more rows have shorter chunks: A's part of local memory stays the same.

    All of them leave configs that the largest work-groups can run.
    """
    point = {name: values[0] for name, values in SPACE.values.items()} | {"group": 1024}
    pairs = SPACE.coarse["rows", "chunk"]
    assert {rows * chunk for rows, chunk in pairs} == {1024, 4096}
    for rows, chunk in pairs:
        choice = SPACE.make(point | {"rows": rows, "chunk": chunk, "abreast": 8})
        assert not list(choice.config.problems())


def test_the_hints_of_a_launch_are_not_searched():
    """Which loads the last cache keeps depends on the product: a plan decides it."""
    assert {"cached_loads", "along_k", "fused_split_k"}.isdisjoint(SPACE.values)
    assert "ahead" in SPACE.values
