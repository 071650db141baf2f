"""The search space of the skinny_cpu family."""

from __future__ import annotations

from dataclasses import replace

from planned import TWO_CORES, traits_with

from clgemm.kernels.skinny_cpu.family import SKINNY_CPU


def test_every_point_has_whole_strips():
    """A point counts the spans of a strip, so that no vectors leave a rest."""
    traits = traits_with(replace(TWO_CORES, vector_width=8), "CPU", is_vector_compiler=True)
    space = SKINNY_CPU.search_space(SKINNY_CPU.plainest(traits), traits)
    assert space.values["width"] == (2, 4, 8)
    point = {name: values[-1] for name, values in space.values.items()}
    for vectors in space.values["vectors"]:
        for spans in space.values["spans"]:
            there = point | {"vectors": vectors, "spans": spans}
            choice = space.make(there)
            assert not list(choice.config.problems())
            assert space.read(choice) == there
    assert space.make(point).pack[0].depth == point["copy_depth"]


def test_without_a_compiler_for_vectors_nothing_is_prefetched():
    """The only distance is 0."""
    traits = traits_with(TWO_CORES, "CPU", is_vector_compiler=False)
    space = SKINNY_CPU.search_space(SKINNY_CPU.plainest(traits), traits)
    assert space.values["prefetch"] == (0,)
