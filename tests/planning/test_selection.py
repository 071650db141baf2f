"""Defaults by kind of device, and the environment's word."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import clgemm
from clgemm.core.cache import cache_folder, program_cache_folder
from clgemm.core.config import Limits
from clgemm.core.layout import Layout
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.traits import Traits
from clgemm.hardware.traits import register_width
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.tiled import family as tiled
from clgemm.kernels.tiled.defaults import lane_configs
from clgemm.kernels.tiled.family import TILED
from clgemm.planning import planner, selection


@pytest.mark.parametrize("m", [1, 7, 31, 64, 200, 1000, 5000])
@pytest.mark.parametrize("n", [1, 9, 130, 2000])
@pytest.mark.parametrize("k", [1, 100, 3000])
def test_every_choice_fits_the_device(m, n, k, device):
    """Whatever the shape, the config keeps the device's limits."""
    family, choice = planner.choose(device, Problem.of(Shape(m, n, k), "float32"))
    configs = [choice.config, *(choice.pack or ())]
    assert not [problem for config in configs for problem in config.problems_on(device.limits)]
    assert len(choice.pack or ()) == len(family.packs)


def test_the_threshold_must_be_a_number(monkeypatch):
    """Anything else is an error that names it."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", "lots")
    with pytest.raises(ValueError, match="CLGEMM_THRESHOLD='lots' is not a whole number"):
        clgemm.dot(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e6", 10**6),
        (" 1000000 ", 10**6),
        ("2.5e3", 2500),
        ("0.0", 0),
        (str(2**63 + 1), 2**63 + 1),
    ],
)
def test_the_threshold_is_taken_in_any_notation(text, number, monkeypatch):
    """Whole numbers are; digits keep all their places."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", text)
    assert selection.threshold() == number


@pytest.mark.parametrize("text", ["1.5", "-1", "-1e6", "1e400", "inf", "nan", "abc", "1e-3", "1,0"])
def test_what_is_no_whole_number_is_no_threshold(text, monkeypatch):
    """Fractions, negative and infinite numbers, and words are refused, and named."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", text)
    with pytest.raises(ValueError, match=f"CLGEMM_THRESHOLD='{text}' is not a whole number"):
        selection.threshold()


def test_the_default_crossover(device, monkeypatch):
    """Small and skinny products are the host's; large ones the device's, if it is seen to win."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    assert selection.host_is_faster(10, 10, 10, 1)
    assert selection.host_is_faster(10_000, 1, 10_000, 1)
    wins = device.kind != "CPU" or (
        device.platform.startswith(("Portable Computing Language", "Intel"))
        and register_width(device) == 16
    )
    assert selection.host_is_faster(5000, 5000, 5000, 1) == (not wins)


@pytest.mark.parametrize(
    ("sizes", "host"),
    [
        ((1000, 1000, 1000, 1), True),
        ((1200, 1200, 1200, 1), False),
        ((4096, 128, 4096, 1), True),  # the way there takes longer than the host
        ((4096, 600, 4096, 1), False),
        ((256, 256, 65536, 1), True),
        ((128, 128, 128, 100), True),
        ((128, 128, 128, 1000), False),
        ((4096, 16, 4096, 100), True),
    ],
)
def test_the_crossover_of_a_device_that_operands_are_copied_to(sizes, host, monkeypatch):
    """Work, and how often each element that is moved takes part in it."""

    class Stand:
        kind, shares_host_memory, transfer = "GPU", False, None
        cl_device = SimpleNamespace(global_mem_size=2**34)

    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(selection, "get_device", Stand)
    monkeypatch.setattr(selection, "measured", lambda _: None)
    assert selection.host_is_faster(*sizes) == host


@pytest.mark.parametrize(
    ("platform", "vendor", "width"),
    [
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.0-rc1", "AuthenticAMD", 8),
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.0-rc1", "GenuineIntel", 16),
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.1+debian", "AuthenticAMD", 16),
        ("Intel(R) OpenCL, OpenCL 3.1 LINUX", "AuthenticAMD", 16),
    ],
)
def test_an_old_compiler_does_not_use_all_of_a_new_processor(platform, vendor, width):
    """Vectors as wide as the code that is made, not as the processor's."""

    class Stand:
        pass

    device, device.limits, device.cl_device = Stand(), Stand(), Stand()
    device.platform, device.cl_device.vendor, device.limits.vector_width = platform, vendor, 16
    assert register_width(device) == width


def test_the_cache_folder_can_be_moved(monkeypatch):
    """By CLGEMM_CACHE_DIR."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", "/somewhere")
    assert program_cache_folder() == Path("/somewhere/programs")
    monkeypatch.delenv("CLGEMM_CACHE_DIR")
    assert cache_folder().name == "clgemm"


class Stranger:
    """A device that nobody has seen."""

    def __init__(self, platform, kind, limits):
        self.kind, self.limits = kind, limits
        self.traits = Traits(limits, kind, is_nvidia="NVIDIA" in platform)


STRANGERS = {
    "NVIDIA": Stranger("NVIDIA CUDA, OpenCL 3.0", "GPU", Limits(48 << 10, 1024, 2**32, 20, 1)),
    "old NVIDIA": Stranger("NVIDIA CUDA, OpenCL 1.1", "GPU", Limits(16 << 10, 512, 2**27, 2, 1)),
    "AMD": Stranger("AMD Accelerated", "GPU", Limits(64 << 10, 256, 2**32, 60, 1)),
    "Intel": Stranger("Intel(R) OpenCL Graphics", "GPU", Limits(64 << 10, 512, 2**32, 96, 1)),
    "phone": Stranger("QUALCOMM Snapdragon(TM)", "GPU", Limits(32 << 10, 256, 2**28, 4, 1)),
    "least": Stranger("Embedded", "accelerator", Limits(16 << 10, 64, 2**24, 1, 1)),
}
SHAPES = [(m, n, k) for m in (1, 7, 64, 1000, 3000) for n in (3, 128, 2500) for k in (1, 100, 4096)]


@pytest.mark.parametrize("name", STRANGERS)
def test_defaults_are_safe_on_devices_that_nobody_has_seen(name, monkeypatch):
    """Every launch of every plan keeps to the device's limits, its scratch memory too."""
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    device = STRANGERS[name]
    for m, n, k in SHAPES:
        for turned in (False, True):
            a = Layout((k, m), (m, 1), 64).transposed() if turned else Layout((m, k), (k, 1), 64)
            b, c = Layout((k, n), (n, 1), 64), Layout((m, n), (n, 1), 64)
            plan, _ = planner.plan_of(device, Problem(a, b, c, "float32"))
            assert plan.steps
            for step in plan.steps:
                assert list(step.config.problems_on(device.limits)) == [], (m, n, k)
            assert max([0, *dict(plan.scratch).values()]) <= device.limits.allocation_bytes


@pytest.mark.parametrize(
    ("shape", "family"),
    [
        ((64, 64, 64, 1), "direct"),
        ((64, 64, 64, 20), "local"),
        ((20, 20, 20, 100), "local"),
        ((16, 16, 16, 500), "direct"),
        ((100, 100, 100, 1), "local"),
    ],
)
def test_small_matrices_have_tiles_where_they_come_in_stacks(monkeypatch, shape, family):
    """One alone is made without: fewer launches and barriers."""
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    problem = Problem.of(Shape(*shape), "float32")
    assert planner.family_for(STRANGERS["NVIDIA"], problem).name == family


def test_a_record_gives_way_where_its_tiles_suit_badly(monkeypatch):
    """To a default that the model expects to be a quarter faster; of large products, 15 %."""
    expected = {}
    monkeypatch.setattr(
        tiled, "local_spread", lambda config, *_: SimpleNamespace(time=expected[config])
    )
    traits = STRANGERS["NVIDIA"].traits
    found, default = (Choice(config) for config in lane_configs()[:2])
    expected[default.config] = 1.0
    small, large = Shape(1000, 1000, 1000), Shape(1100, 1100, 1100)
    for time, serves in ((1.1, (True, True)), (1.2, (True, False)), (1.3, (False, False))):
        expected[found.config] = time
        assert tuple(TILED.serves(found, default, x, traits) for x in (small, large)) == serves
