"""The skinny_cpu family: which products have few rows, its configs and its plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, TWO_CORES, dense, make_plan, traits_with

from clgemm.core.problem import Problem, Shape
from clgemm.kernels.pack.plan import copy_config
from clgemm.kernels.skinny_cpu.family import SKINNY_CPU, skinny_config

CPU = traits_with(TWO_CORES, "CPU", is_vector_compiler=True)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ((64, 1100, 1000), True),
        ((1100, 64, 1000), True),
        ((65, 1000, 1000), False),
        ((1, 3, 2), True),
        ((1000, 65, 1), False),
    ],
)
def test_few_rows_or_columns_are_compared(shape, fits):
    """At most 64: one choice, which the planner compares with those of other families."""
    problem = Problem.of(Shape(*shape), "strict")
    choices = SKINNY_CPU.candidates(problem, CPU)
    assert choices == (SKINNY_CPU.defaults(problem.shape, CPU) if fits else ())


def test_the_large_operand_is_read_in_place():
    """Neither its rows nor its columns are contiguous: the product is another family's."""
    b = dense(500, 600)._replace(strides=(1200, 2))
    problem = Problem(dense(4, 500), b, dense(4, 600), "strict")
    assert not SKINNY_CPU.fits(problem)
    assert not SKINNY_CPU.takes_any_strides
    assert not SKINNY_CPU.runs_on(traits_with(LIMITS))


def test_the_operand_of_few_rows_is_copied_row_by_row():
    """Every choice copies by panels of one row."""
    for choice in (*SKINNY_CPU.defaults(Shape(4, 900, 900), CPU), SKINNY_CPU.plainest(CPU)):
        assert not list(SKINNY_CPU.problems(choice, TWO_CORES))
        assert [pack.panel for pack in choice.pack] == [1]


def test_edge_shapes_are_beside_a_strip_and_a_chunk():
    """All of them have few rows, and columns on both sides of a strip."""
    (choice,) = SKINNY_CPU.defaults(Shape(4, 900, 900), CPU)
    shapes, strip = SKINNY_CPU.edge_shapes(choice.config), choice.config.strip
    assert all(shape.m <= 8 for shape in shapes)
    assert {shape.n < strip for shape in shapes} == {True, False}


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_sums_fit_the_registers(width):
    """A single row has eight vectors of sums. Several rows leave some for the operands."""
    one, several = (skinny_config(rows, width, True) for rows in (1, 4))
    assert one.rows * one.vectors == 8
    assert several.rows * several.vectors == (16 if width == 16 else 12)
    assert one.strip == 64 * width
    assert several.strip % (several.vectors * width) == 0


def test_there_are_two_configs():
    """All numbers of rows above one share a config."""
    assert len({skinny_config(rows, 8, False) for rows in range(1, 9)}) == 2
    assert skinny_config(2, 8, False).prefetch == 0


@pytest.mark.parametrize(
    ("m", "k", "groups", "launches"), [(1024, 2048, 8, 1), (2048, 512, 16, 1), (128, 4096, 4, 2)]
)
def test_contiguous_columns_are_read_whole(m, k, groups, launches):
    """A work-group takes a few columns and all of k, unless that makes too few work-groups."""
    a, b, c = dense(m, k), dense(k, 1), dense(m, 1)
    copy = (copy_config(TWO_CORES),)
    made = make_plan(a, b, c, skinny_config(1, 16, True), copy, TWO_CORES)
    multiplying = [step for step in made.steps if step.config.family == "skinny_cpu"]
    assert [step.groups for step in multiplying] == [groups]
    assert len(made.steps) == launches


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
