"""The fit of the constants of expected times to measured plans."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pyopencl as cl
import pytest
from planned import TWO_CORES, traits_with
from strategies import GPU_LIMITS

from clgemm.core import cache
from clgemm.core.costs import H200, INTEL, POCL
from clgemm.core.problem import Shape
from clgemm.planning import planner
from clgemm.records import verdicts
from clgemm.trials import calibration, worker

LIMITS = replace(GPU_LIMITS, compute_units=132, fused_split_k=True)


class Gpu:
    """A device with wgmma units and without records."""

    kind, limits = "GPU", LIMITS
    traits = traits_with(LIMITS, is_nvidia=True, capability=(9, 0))


def plans_of(device, shapes):
    """The plans of products that a device would measure."""
    return [plan for shape in shapes for plan, _ in calibration._plans(device, shape)]


@pytest.fixture(scope="module")
def plans():
    """The plans that a GPU would measure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "instructions_of", lambda _: "wgmma")
        patch.setattr(planner, "tuned", lambda *_: None)
        return plans_of(Gpu(), calibration.SHAPES)


def timed(plans, costs, noise=0.0):
    """The plans with the times that a device of these constants would take."""
    random = np.random.default_rng(0).standard_normal(len(plans))
    times = calibration.expected_times(plans, LIMITS, costs) * np.exp(noise * random)
    return [calibration.TimedPlan(*each) for each in zip(plans, times.tolist(), strict=True)]


def test_every_constant_that_is_no_ratio_is_in_one_group():
    """A new constant of the model must get its place."""
    grouped = [name for names in calibration.GROUPS.values() for name in names]
    assert len(set(grouped)) == len(grouped)
    ratios = {
        *("vector_load", "transposed", "one_buffer", "copied", "few_lanes", "tail", "tile_end"),
        *("narrow_load", "copied_narrow", "copied_transposed", "against_rows"),
        *("unaligned_store", "scattered"),
        *(
            "store_bytes",
            "aligned_store_bytes",
            "outer_load",
            "skinny_row",
            "dots_row",
            "tensor_wide",
            "tensor_tail",
            "mma",
        ),
        *("tensor_strided", "tensor_last_tile", "tensor_unaligned", "narrow_single"),
    }
    assert set(grouped) | ratios == set(asdict(H200))
    assert not set(grouped) & ratios


def test_plans_of_all_families_are_measured(plans):
    """Those of a GPU, and several of each product."""
    families = {plan.steps[0].config.family for plan in plans}
    assert families >= {"direct", "outer_product", "skinny_gpu", "tiled", "tensor_narrow"}
    assert len(plans) > 2 * calibration.LEAST_PLANS


@pytest.mark.parametrize("seed", range(4))
def test_a_device_that_is_slower_in_parts_is_found(plans, seed):
    """From exact times, its constants come out; from noisy ones, nearly the same times."""
    factors = np.random.default_rng(seed).normal(0.5, 0.6, len(calibration.GROUPS))
    slower = calibration.scaled(factors)
    exact = calibration.fitted(timed(plans, slower), LIMITS)
    expected = calibration.expected_times(plans, LIMITS, slower)
    found = calibration.expected_times(plans, LIMITS, exact)
    np.testing.assert_allclose(found, expected, rtol=0.05)
    noisy = calibration.fitted(timed(plans, slower, 0.15), LIMITS)
    found = calibration.expected_times(plans, LIMITS, noisy)
    assert np.median(np.abs(np.log(found / expected))) < 0.12


def test_outliers_count_less(plans):
    """A tenth of the plans that took twenty times as long change little."""
    slower = calibration.scaled(np.full(len(calibration.GROUPS), 0.7))
    spoilt = [
        each._replace(taken_us=20 * each.taken_us) if i % 10 == 0 else each
        for i, each in enumerate(timed(plans, slower))
    ]
    found = calibration.expected_times(plans, LIMITS, calibration.fitted(spoilt, LIMITS))
    expected = calibration.expected_times(plans, LIMITS, slower)
    assert np.median(np.abs(np.log(found / expected))) < 0.1


def test_nothing_is_fitted_to_few_plans_or_without_need(plans):
    """An H200's constants are found where they fit as well, and replace what was kept before."""
    slower = calibration.scaled(np.full(len(calibration.GROUPS), 0.7))
    assert calibration.fitted(timed(plans, slower)[: calibration.LEAST_PLANS - 1], LIMITS) is None
    assert calibration.fitted(timed(plans, H200), LIMITS) == H200


def test_plans_are_measured_on_the_device(device, monkeypatch):
    """Each has a time above 0; what the device has no memory for is left out."""
    monkeypatch.setattr(calibration, "SHAPES", (Shape(20, 30, 10), Shape(40, 50, 2, 3)))
    found = calibration.timed_plans(device, 60.0)
    assert found
    assert all(each.taken_us > 0 for each in found)
    assert calibration.timed_plans(device, -1.0) == []

    def refuse(*_):
        raise cl.MemoryError("refused")

    monkeypatch.setattr(calibration, "_matrices", refuse)
    assert calibration.timed_plans(device, 60.0) == []


def test_constants_with_one_factor_scale_all_times(plans):
    """Rates fall by the factor by which times grow."""
    slower = calibration.scaled(np.full(len(calibration.GROUPS), np.log(2.0)))
    before, after = (calibration.expected_times(plans, LIMITS, x) for x in (H200, slower))
    np.testing.assert_allclose(after, 2 * before)


class Cpu:
    """A CPU of two cores, without records."""

    kind, limits = "CPU", TWO_CORES
    traits = traits_with(TWO_CORES, "CPU", register_width=16, is_vector_compiler=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_cpu_that_is_slower_in_parts_is_found(seed, monkeypatch):
    """From exact times, its constants come out; with those of one that is known, they are those."""
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    plans = plans_of(Cpu(), calibration.CPU_SHAPES)
    assert {plan.steps[-1].config.family for plan in plans} >= {"direct", "skinny_cpu", "blocked"}
    assert len(plans) >= calibration.LEAST_PLANS
    factors = np.random.default_rng(seed).normal(0.3, 0.5, len(calibration.CPU_GROUPS))
    for own in (calibration.scaled(factors, POCL), INTEL):
        times = calibration.expected_times(plans, TWO_CORES, own)
        timed = [calibration.TimedPlan(*each) for each in zip(plans, times.tolist(), strict=True)]
        found = calibration.fitted(timed, TWO_CORES)
        assert found == INTEL or own is not INTEL
        np.testing.assert_allclose(
            calibration.expected_times(plans, TWO_CORES, found), times, rtol=0.1
        )


def test_every_constant_of_a_cpu_that_is_no_ratio_is_in_one_group():
    """As those of a GPU."""
    grouped = [name for names in calibration.CPU_GROUPS.values() for name in names]
    assert sorted([*grouped, "skinny_again", "direct_strided"]) == sorted(asdict(POCL))


def test_the_known_are_not_calibrated(device, alone, monkeypatch):
    """CPUs and GPUs with wgmma units have constants; others have them once they were measured."""
    gpu = Gpu()
    gpu.name, gpu.runtime = "A new GPU", "Its driver"
    assert not calibration.is_unknown(gpu)
    gpu.traits = replace(Gpu.traits, capability=(8, 6))
    assert calibration.is_unknown(gpu)
    verdicts.keep_costs(gpu.name, gpu.runtime, H200, 30)
    assert not calibration.is_unknown(gpu)
    assert device.kind == "GPU" or not calibration.is_unknown(device)


def test_what_is_measured_is_kept_and_used(device, alone, monkeypatch):
    """The device's plans go by it at once. What takes long is left out."""
    short, long = Shape(20, 30, 10), Shape(1000, 1000, 1000)
    for name in ("SHAPES", "CPU_SHAPES"):
        monkeypatch.setattr(calibration, name, (short, long))
    monkeypatch.setattr(calibration, "LONGEST_US", 1.0)
    monkeypatch.setattr(calibration, "LEAST_PLANS", 1)
    monkeypatch.setattr(calibration, "_has_core", lambda: True)
    planned = []
    plans = calibration._plans
    monkeypatch.setattr(calibration, "_plans", lambda d, s: planned.append(s) or plans(d, s))
    before = device.limits
    try:
        assert calibration.calibrate(device) > 0
        assert planned == [short]
        kept = verdicts.measured_costs(device.name, device.runtime)
        assert kept is not None
        assert device.limits == before.with_costs(kept.costs)
    finally:
        cache.remember(verdicts._costs_key(device.name, device.runtime), None)
        cache.forget_plans()
    assert device.limits == before


def test_nothing_is_measured_on_a_busy_machine(device, alone, monkeypatch):
    """Nor kept."""
    monkeypatch.setattr(calibration, "_has_core", lambda: False)
    assert calibration.calibrate(device) == 0
    assert verdicts.measured_costs(device.name, device.runtime) is None


def test_plans_are_prepared_once_the_device_is_calibrated(device, monkeypatch):
    """They depend on it."""
    monkeypatch.setattr(worker, "is_unknown", lambda _: True)
    jobs = [name for name, _ in worker.missing(device)]
    assert jobs[-1] == "calibrate"
    assert "plan" not in jobs


def test_a_machine_that_was_busy_at_first_is_asked_again(device, alone, monkeypatch):
    """The few plans of a quiet end keep nothing; a product of unknown speed is not begun with."""
    looks = iter([False, True, True])
    monkeypatch.setattr(calibration, "_has_core", lambda: next(looks))
    for name in ("SHAPES", "CPU_SHAPES"):
        shapes = (Shape(20, 30, 10), Shape(3000, 3000, 3000), Shape(30, 20, 10), Shape(9, 9, 9))
        monkeypatch.setattr(calibration, name, shapes)
    planned, plans = [], calibration._plans
    monkeypatch.setattr(calibration, "_plans", lambda d, s: planned.append(s) or plans(d, s))
    assert calibration.calibrate(device) > 0
    assert planned == [Shape(30, 20, 10), Shape(9, 9, 9)]
    assert verdicts.measured_costs(device.name, device.runtime) is None
