"""Tests of the planner: the choice of family and config, and the plans."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from clgemm.core.costs import INTEL, POCL
from clgemm.core.plan import expected_us, least_us
from clgemm.core.problem import Layout, Problem, Shape
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import Choice
from clgemm.kernels.tiled import family as tiled
from clgemm.kernels.tiled.family import TILED, lane_configs
from clgemm.planning import planner
from clgemm.records.verdicts import about_instructions


@pytest.mark.parametrize("m", [1, 7, 31, 64, 200, 1000, 5000])
@pytest.mark.parametrize("n", [1, 9, 130, 2000])
@pytest.mark.parametrize("k", [1, 100, 3000])
def test_every_choice_fits_the_device(m, n, k, device):
    """For every shape, the chosen config keeps the device's limits."""
    family, choice = planner.choose(device, Problem.of(Shape(m, n, k), "float32"))
    configs = [choice.config, *(choice.pack or ())]
    assert not [problem for config in configs for problem in config.problems_on(device.limits)]
    assert len(choice.pack or ()) == len(family.packs)


class Stranger:
    """A device of unknown make, with given limits."""

    def __init__(self, platform, kind, limits):
        self.kind, self.limits = kind, limits
        width = limits.vector_width
        self.traits = Traits(limits, kind, is_nvidia="NVIDIA" in platform, register_width=width)


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
    """On unknown devices, every launch and all scratch memory keep the device's limits."""
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    device = STRANGERS[name]
    for m, n, k in SHAPES:
        for turned in (False, True):
            a = Layout((k, m), (m, 1), 64).transposed() if turned else Layout((m, k), (k, 1), 64)
            b, c = Layout((k, n), (n, 1), 64), Layout((m, n), (n, 1), 64)
            plan = planner.plan_of(device, Problem(a, b, c, "float32")).plan
            assert plan.steps
            for step in plan.steps:
                assert list(step.config.problems_on(device.limits)) == [], (m, n, k)
            assert max([0, *dict(plan.scratch).values()]) <= device.limits.allocation_bytes


@pytest.mark.parametrize("precision", ["strict", "float32"])
@pytest.mark.parametrize("shape", [(20, 20, 20), (7, 9, 3000), (1, 900, 900), (640, 640, 640, 3)])
def test_a_gpu_gets_the_plan_that_is_expected_to_be_fastest(monkeypatch, shape, precision):
    """No family has a choice with a shorter expected time; instructions must be there."""
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    device, problem = STRANGERS["NVIDIA"], Problem.of(Shape(*shape), precision)
    limits = device.limits

    def expected(family, choice):
        plan = planner.make_plan(device, problem, family, choice)
        return expected_us(plan, limits, planner.NEEDS_FALLBACK)

    chosen = expected(*planner.choose(device, problem))
    compared = [
        expected(family, choice)
        for family in planner.families(device)
        for choice in family.candidates(problem, device.traits)
    ]
    assert len(compared) > 1
    assert chosen == min(compared) or chosen <= 1.02 * least_us(limits)


@pytest.mark.parametrize(
    ("shape", "family"),
    [
        ((20, 20, 20), "direct"),
        ((16, 16, 16, 900), "direct"),
        ((1, 4096, 4096), "skinny_cpu"),
        ((3000, 2, 3000), "skinny_cpu"),
        ((3, 5, 3000), "direct"),
        ((1000, 1000, 1000), "blocked"),
    ],
)
@pytest.mark.parametrize("costs", [POCL, INTEL])
def test_a_cpu_gets_the_family_that_is_expected_to_be_fastest(monkeypatch, shape, family, costs):
    """Each family has one choice: a record's where that serves."""
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    limits = Limits(64 << 10, 4096, 2**32, 2, 16).with_costs(costs)
    device, problem = Stranger("PoCL", "CPU", limits), Problem.of(Shape(*shape), "strict")
    chosen, choice = planner.choose(device, problem)
    assert chosen.name == family
    times = {}
    for each in planner.families(device):
        for own in each.candidates(problem, device.traits):
            turned, _ = planner.oriented(problem, each, own, device.traits)
            plan = planner.make_plan(device, turned, each, own)
            times[each.name] = expected_us(plan, limits)
            assert each is not chosen or own == choice
    assert "blocked" in times
    assert times[family] <= 1.02 * min(times.values())


def test_a_record_is_taken_where_it_is_not_expected_to_be_much_slower(monkeypatch):
    """The tuner has found it the fastest of its class, so it has an advantage in the comparison.

    All candidates are within that advantage of one another; the plainest tiles are not.
    """
    device, shape = STRANGERS["NVIDIA"], Shape(1000, 1000, 1000)
    problem, traits = Problem.of(shape, "strict"), device.traits
    choices = sorted(
        TILED.candidates(problem, traits),
        key=lambda c: expected_us(planner.make_plan(device, problem, TILED, c), device.limits),
    )
    times = [
        expected_us(planner.make_plan(device, problem, TILED, c), device.limits) for c in choices
    ]
    monkeypatch.setattr(TILED.__class__, "slack", lambda *_: 1.01 * times[1] / times[0])
    for found, taken in ((choices[1], choices[1]), (TILED.plainest(traits), choices[0])):
        planner.choose.cache_clear()
        records = {"tiled": found}
        monkeypatch.setattr(planner, "tuned", lambda _, name, *__, of=records: of.get(name))
        assert planner.choose(device, problem) == (TILED, taken)
    planner.choose.cache_clear()


@pytest.mark.parametrize(
    ("shape", "family"),
    [((20, 20, 20, 1), "direct"), ((64, 64, 64, 1), "tiled"), ((16, 16, 16, 500), "direct")],
)
def test_other_devices_get_the_first_family_that_suits(monkeypatch, shape, family):
    """Expected times do not hold where a CPU emulates lanes."""
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    device = Stranger("rusticl", "CPU", Limits(64 << 10, 512, 2**32, 4, 1))
    assert planner.choose(device, Problem.of(Shape(*shape), "float32"))[0].name == family


def test_a_record_gives_way_where_its_tiles_suit_badly(monkeypatch):
    """A default replaces a record if the model expects it to be a quarter (large: 15 %) faster."""
    expected = {}
    monkeypatch.setattr(
        tiled, "tiled_estimate", lambda tiles, *_: SimpleNamespace(time=expected[tiles])
    )
    traits = STRANGERS["NVIDIA"].traits
    found, default = (Choice(config) for config in lane_configs()[:2])
    expected[default.config.tiles] = 1.0
    small, large = Shape(1000, 1000, 1000), Shape(1100, 1100, 1100)
    for time, serves in ((1.1, (True, True)), (1.2, (True, False)), (1.3, (False, False))):
        expected[found.config.tiles] = time
        assert tuple(TILED.serves(found, default, x, traits) for x in (small, large)) == serves


def test_plans_are_cached(device):
    """A repeated call makes no plan, nor does one of another order or precision on a CPU."""
    problem = Problem.of(Shape(7, 9, 8), "float32")
    plan, swapped, *_ = planner.plan_of(device, problem)
    assert planner.plan_of(device, problem).plan is plan
    assert planner.plan_of(device, problem._replace(precision="strict")).plan is plan
    again, other, *_ = planner.plan_of(device, problem.transposed())
    assert (again, other) == (plan, not swapped)


@pytest.mark.parametrize(
    ("capability", "instructions"),
    [
        ((9, 0), ["wgmma", "mma", None]),
        ((8, 0), ["mma", None]),
        ((8, 6), [None]),
        ((7, 0), [None]),
        ((10, 0), ["mma", None]),
    ],
)
def test_the_fastest_instructions_that_no_trial_has_rejected(capability, instructions, monkeypatch):
    """NVIDIA's devices have instructions by compute capability, and use what is not rejected."""
    rejected = []
    monkeypatch.setattr(planner, "where", lambda _: "here")
    monkeypatch.setattr(planner, "is_rejected", rejected.__contains__)
    limits, asked = STRANGERS["NVIDIA"].limits, planner.instructions_of.__wrapped__  # not cached
    nvidia, other = (
        SimpleNamespace(traits=Traits(limits, "GPU", is_nvidia=it_is, capability=capability))
        for it_is in (True, False)
    )
    for expected in instructions:
        assert asked(nvidia) == expected
        assert asked(other) is None
        rejected.append(about_instructions("here", expected))
