"""What holds for the plans of all families: numbers and names, and no launch too large."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from planned import LIMITS, dense, make_plan, make_scaling_plan, matrices_of, work_of

from clgemm.core.plan import Element
from clgemm.kernels.blocked.family import register_config
from clgemm.kernels.direct.family import DirectConfig
from clgemm.kernels.pack.plan import VectorPackConfig, copy_plan, pack_config
from clgemm.kernels.skinny_gpu.family import skinny_lanes_config
from clgemm.kernels.tiled.family import lane_configs

CONFIG = replace(lane_configs()[1], in_place=False)
PACK = (pack_config(LIMITS, CONFIG.tile_m), pack_config(LIMITS, CONFIG.tile_n))
REGISTER = register_config(16, True, False)
VECTOR_PACK = (VectorPackConfig.of(REGISTER.tile_m, True),)
DIRECT = DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False)
SKINNY = skinny_lanes_config(2, LIMITS)
MANY_ROWS = dense(2**26, 8), dense(8, 2), dense(2**26, 2)
MANY_COLUMNS = dense(2, 8), dense(8, 2**26), dense(2, 2**26)
MANY_MATRICES = dense(3, 4, 2**26), dense(4, 5, 2**26), dense(3, 5, 2**26)


@pytest.mark.parametrize(
    ("config", "pack"),
    [(DIRECT, None), (SKINNY, None), (CONFIG, PACK), (REGISTER, VECTOR_PACK)],
    ids=lambda x: getattr(x, "family", ""),
)
@pytest.mark.parametrize("operands", [MANY_ROWS, MANY_COLUMNS, MANY_MATRICES])
def test_a_launch_has_no_more_work_items_than_every_device_takes(operands, config, pack):
    """Work-groups times their work-items stay below 2**31, and every multiply-add is made once."""
    made = make_plan(*operands, config, pack, LIMITS)
    assert max(step.groups * step.config.items for step in made.steps) < 2**31
    multiplied = [step for step in made.steps if step.config.family == config.family]
    matrices = list(map(matrices_of, multiplied))
    work = list(map(work_of, multiplied))
    m, n, k = operands[2].rows, operands[2].columns, operands[0].columns
    total = m * n * k * math.prod(operands[2].batch)
    assert sum(x * y for x, y in zip(matrices, work, strict=True)) == total


@pytest.mark.parametrize("shape", [(2**26, 2), (2, 2**30), (2**26, 3, 5)])
def test_copies_and_scalings_have_no_more_work_items_than_every_device_takes(shape):
    """Large ones are cut into launches, and each element is copied or scaled once."""
    *batch, m, n = shape
    copied = copy_plan(dense(m, n, *batch), LIMITS)
    scaled = make_scaling_plan(dense(m, n, *batch), DIRECT)
    for made, sizes in ((copied, ("rows", "columns")), (scaled, ("m", "n"))):
        assert max(step.groups * step.config.items for step in made.steps) < 2**31
        elements = [
            math.prod(step.arguments[size] for size in sizes) * matrices_of(step)
            for step in made.steps
        ]
        assert sum(elements) == math.prod(shape)


@pytest.mark.parametrize("family", ["a", "b"])
def test_steps_hold_numbers_and_names_only(family):
    """They hold nothing of a device: a plan can be kept, compared and hashed."""
    made = make_plan(dense(7, 8), dense(8, 9), dense(7, 9), CONFIG, PACK, LIMITS)
    assert hash(made) == hash(made)
    values = made.steps[0].arguments.values()
    assert all(isinstance(x, int | float | bytes | str | Element) for x in values)
    assert family in made.steps[0 if family == "b" else 1].arguments.values()
