"""Products of few rows or columns on tensor cores: which they are, and their plans.

Their results are tested with the other tensor families', in test_tensor.py.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from planned import make_plan, traits_with
from strategies import GPU_LIMITS, rows

from clgemm.core.plan import Element
from clgemm.core.problem import Layout, Problem
from clgemm.kernels.common.family import Choice
from clgemm.kernels.tensor_core.narrow import (
    NARROW,
    NarrowConfig,
)
from clgemm.planning import planner

FEW = NarrowConfig(columns=64, ahead=2)
FEWER = NarrowConfig(columns=16, ahead=1)
MORE = NarrowConfig(columns=128, ahead=2)


LIMITS = replace(GPU_LIMITS, fused_split_k=True)
TRAITS = traits_with(LIMITS, is_nvidia=True, capability=(9, 0))


def columns(*shape):
    return rows(*shape[:-2], shape[-1], shape[-2]).transposed()


def product(m, n, k, *batch):
    return rows(*batch, m, k), rows(*batch, k, n), rows(*batch, m, n)


def test_the_larger_operand_is_read_where_it_lies():
    """Whichever it is: rows of C change places with columns; the smaller one is packed."""
    (step,) = make_plan(*product(64, 4096, 4096), FEW, None, LIMITS).steps
    sizes = {"m": 4096, "n": 64, "k": 4096, "slice_k": 1024}
    place = {"a": "b", "a_offset": Element("b", 0), "a_row": 1, "a_column": 4096}
    assert step.arguments.items() >= (sizes | place).items()
    assert not step.config.along_k
    (step,) = make_plan(*product(4096, 64, 4096), FEW, None, LIMITS).steps
    place = {"a": "a", "a_offset": Element("a", 0), "a_row": 4096, "a_column": 1}
    assert step.arguments.items() >= place.items()
    assert step.config.along_k


def test_configs_of_plans_fit_the_device():
    """With slices of k and without, and for stacks."""
    for layouts in (product(64, 4096, 4096), product(40_000, 20, 600), product(30, 600, 700, 5)):
        for step in make_plan(*layouts, FEW, None, LIMITS).steps:
            step.config.require(LIMITS)


@pytest.mark.parametrize(
    ("a", "load"),
    [
        (rows(1000, 512), 4),
        (rows(1000, 514), 2),
        (rows(1000, 513), 1),
        (rows(1000, 512, alignment=8), 2),
        (Layout((1000, 512), (513, 1), 64), 1),
        (columns(1000, 512), 2),
        (columns(999, 512), 1),
    ],
)
def test_the_widest_loads_that_fit(a, load):
    """Whole rows of aligned vectors; of neighbouring rows two, which one work-item splits."""
    (step,) = make_plan(a, rows(512, 40), rows(1000, 40), FEW, None, LIMITS).steps
    assert step.config.load_a == load


def test_work_groups_fill_the_device():
    """By slices of k, where there are not as many tiles as compute units; not where k is short."""
    for shape, groups in (
        ((64, 4096, 4096), 128),
        ((64, 128 * 132, 4096), 132),
        ((64, 128 * 140, 4096), 4 * 140),  # 1.06 rounds
        ((64, 512, 40), 4),
    ):
        (step,) = make_plan(*product(*shape), FEW, None, LIMITS).steps
        assert step.groups == groups


def test_slices_are_added_up_by_the_last_work_group():
    """Or by a launch of their own, where work-groups do not see what others have written."""
    plan = make_plan(*product(64, 4096, 4096), FEW, None, LIMITS)
    assert plan.steps[0].config.fused_split_k
    assert plan.steps[0].arguments["slices_out"] == "partial"
    assert plan.steps[0].arguments["counters"] == "counters"
    assert dict(plan.scratch)["partial"] == 4 * 4 * 64 * 4096
    alone = replace(LIMITS, fused_split_k=False)
    plan = make_plan(*product(64, 4096, 4096), FEW, None, alone)
    assert [step.config.family for step in plan.steps] == ["tensor_narrow", "reduce"]
    assert not plan.steps[0].config.fused_split_k


def test_repeated_matrices_are_packed_once():
    """Scratch for as many chunks as there are, and each matrix's place among them."""
    a, b, c = rows(3, 30, 640), rows(2, 3, 640, 800), rows(2, 3, 30, 800)
    plan = make_plan(a.broadcast((2, 3)), b, c, FEW, None, LIMITS)
    (step,) = plan.steps
    assert step.arguments["packed"] == "packed_b"
    assert struct.unpack("4q", step.arguments["packed_strides"]) == (0, 0, 0, 10)
    assert step.arguments["packs"] == 3 * 10
    methods = 3  # halves, and twice as many chunks in tf32
    assert dict(plan.scratch)["packed_b"] == methods * 3 * 10 * (64 * 64 * 4 + 128)


@pytest.mark.parametrize(
    ("shape", "chosen"),
    [
        ((64, 4096, 4096), 64),
        ((4096, 20, 4096), 32),
        ((3, 8192, 8192), 16),
        ((2, 4096, 4096), None),  # skinny_gpu
        ((64, 16384, 512), 64),
        ((128, 11712, 15744), 128),
        ((4096, 190, 4096), 96),
        ((64, 1024, 1024, 16), 64),
        ((64, 2048, 127, 16), None),  # the error bound is not proved for so small a k
        ((2048, 2048, 2048), None),
        ((64, 128, 128), None),
    ],
)
def test_which_products_these_are(monkeypatch, shape, chosen):
    """Where there are wgmma units, and IEEE multiply-adds are not asked for."""
    monkeypatch.setattr(planner, "instructions_of", lambda _: "wgmma")
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    m, n, k, *batch = shape
    for precision in ("float32", "fast"):
        problem = Problem(*product(m, n, k, *batch), precision)
        family, choice = planner.choose(Able(), problem)
        assert (choice.config.columns if family is NARROW else None) == chosen
    strict = problem._replace(precision="strict")
    assert planner.choose(Able(), strict)[0] is not NARROW
    monkeypatch.setattr(planner, "instructions_of", lambda _: "mma")
    assert planner.choose(Able(), problem)[0] is not NARROW


class Able:
    """A device with these traits. Each is another one, for the planner's caches."""

    traits, limits = TRAITS, TRAITS.limits


def test_operands_that_cannot_be_loaded_go_elsewhere():
    """Neither rows nor columns of the larger one are neighbours; the smaller one may lie anyhow."""
    apart = Layout((4096, 4096), (9000, 2), 64)
    few = Layout((64, 4096), (9000, 2), 64)
    c, wide = rows(64, 4096), rows(4096, 4096)
    assert not NARROW.fits(Problem(few, apart, c, "fast"))
    assert NARROW.fits(Problem(few, wide, c, "fast"))


def test_products_take_it(device, monkeypatch):
    """The way from operands to launches, whatever the device."""
    monkeypatch.setattr(planner, "choose", lambda *_: (NARROW, Choice(FEW)))
    plan, swapped, *_ = planner.plan_of.__wrapped__(
        device, Problem(*product(4096, 64, 4096)[:2], columns(4096, 64), "float32")
    )
    assert swapped
    assert plan.steps[0].config.family == "tensor_narrow"
