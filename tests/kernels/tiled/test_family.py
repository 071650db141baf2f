"""The tiled family: its defaults, and how far its model is trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, TWO_CORES, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.tiled.defaults import single_loads_config, that_fit
from clgemm.kernels.tiled.family import TILED

GPU = traits_with(LIMITS)
NVIDIA = traits_with(LIMITS, is_nvidia=True)


@pytest.mark.parametrize("shape", [Shape(4096, 4096, 4096), Shape(33, 65, 900), Shape(64, 64, 9)])
@pytest.mark.parametrize("traits", [GPU, NVIDIA])
def test_the_default_with_the_shortest_expected_time_is_first(shape, traits):
    """All configs that fit follow, each once."""
    choices = TILED.defaults(shape, traits)
    times = [TILED.estimate(shape, choice.config, traits) for choice in choices]
    assert times[0] == min(times)
    assert sorted(map(str, (choice.config for choice in choices))) == sorted(
        map(str, that_fit(traits))
    )


def test_a_device_that_no_config_fits_is_named():
    """The error says which family and which device."""
    tiny = traits_with(replace(LIMITS, local_memory_bytes=100))
    with pytest.raises(RuntimeError, match="no config of the tiled family fits Traits"):
        TILED.defaults(Shape(9, 9, 9), tiny)


def test_the_model_is_for_gpus():
    """It is trusted more for large products, and not at all on a CPU that plays a GPU."""
    large, small = Shape(1024, 1024, 1024), Shape(1024, 1024, 1023)
    assert 1 < TILED.slack(large, GPU) < TILED.slack(small, GPU) < 2
    assert TILED.slack(large, traits_with(LIMITS, "CPU")) == float("inf")
    assert not TILED.runs_on(traits_with(TWO_CORES, "CPU"))


def test_a_fallback_takes_the_config_for_single_loads():
    """On NVIDIA's GPUs, operands that are loaded float by float get small work-groups."""
    shape = Shape(1001, 1003, 1005)
    problem = Problem.of(shape, "float32")
    choice = TILED.defaults(shape, NVIDIA)[0]
    launches = TILED.fallback(problem, choice, NVIDIA)(problem).steps
    (config,) = (step.config for step in launches if step.config.family == "tiled")
    single = single_loads_config(NVIDIA)
    assert (config.tile_m, config.tile_n, config.buffers) == (single.tile_m, single.tile_n, 1)
