"""The search space of the blocked family."""

from __future__ import annotations

from dataclasses import replace

from planned import TWO_CORES, traits_with

from clgemm.kernels.blocked.family import BLOCKED


def space_of(width, compiles_vectors):
    """Return the space of a CPU whose vectors have so many floats."""
    limits = replace(TWO_CORES, vector_width=width)
    traits = traits_with(limits, "CPU", is_vector_compiler=compiles_vectors)
    return BLOCKED.search_space(BLOCKED.plainest(traits), traits)


def test_vectors_are_as_wide_as_the_devices_at_most():
    """Wider ones would be taken apart by the compiler."""
    assert space_of(16, True).values["width"] == (4, 8, 16)
    assert space_of(8, True).values["width"] == (4, 8)
    assert space_of(2, True).values["width"] == (2,)


def test_prefetches_are_tried_where_the_compiler_has_them():
    """Elsewhere the only distance is 0."""
    for name in ("prefetch", "prefetch_a", "pack_prefetch"):
        assert len(space_of(8, True).values[name]) > 1
        assert space_of(8, False).values[name] == (0,)


def test_a_point_has_blocks_in_rows_and_columns():
    """Panels of another height keep the block's rows: only their number changes."""
    space = space_of(8, True)
    point = {name: values[0] for name, values in space.values.items()}
    point |= {"vectors": 1, "width": 8, "block_rows": 512, "block_columns": 96, "pack_rows": 128}
    for work_m in (4, 8):
        choice = space.make(point | {"work_m": work_m})
        assert choice.config.block_m * work_m == 512
        assert choice.config.block_n * 8 == 96
        assert choice.pack[0].panel * choice.pack[0].panels == 128
        assert space.read(choice) == point | {"work_m": work_m}
