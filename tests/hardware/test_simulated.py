"""Tests on simulated GPUs: plans fit, products are right, faulty kernels are replaced."""

from __future__ import annotations

import importlib
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pyopencl.array as cl_array
import pytest
import simulated
import workers
from stand_ins import compile_plainly

import clgemm
from clgemm.bench.cases import Bounds, random_cases
from clgemm.core.cache import forget_plans
from clgemm.core.config import Launch
from clgemm.core.costs import H200
from clgemm.core.problem import Layout, Problem, Shape
from clgemm.core.traits import LONGEST_US, MOST_SLOWER
from clgemm.hardware import choice
from clgemm.hardware import device as devices
from clgemm.hardware.device import where
from clgemm.kernels.exact.plan import exact_plan
from clgemm.kernels.exact.types import Types
from clgemm.planning import planner
from clgemm.records import verdicts
from clgemm.records.tuned import as_json
from clgemm.runtime import exact, readiness
from clgemm.trials import calibration

pytestmark = pytest.mark.one_device

DOCS = Path(__file__).resolve().parents[2] / "docs"
CASES = random_cases(60, 3, Bounds())
SHAPES = (140, 141, 900), (300, 257, 64), (5, 700, 90), (3, 4, 9000)
rng = np.random.default_rng(1)
NAMES = [each["name"] for each in simulated.OTHERS]
NAMES += ["Radeon RX Vega 64", "Radeon RX 6800 XT", "Iris Xe", "Arc A770"]
# Those with kernels that the others have not: a CPU's runtime takes seconds to build them.
UNLIKE = ["Mali-G71", "Apple M1", "GeForce GTX 680", "Radeon RX 6800 XT"]


@pytest.fixture(params=NAMES)
def gpu(request, device, alone, monkeypatch, tmp_path):
    """Return a simulated GPU, which every process finds in place of the device."""
    compile_plainly(device, monkeypatch)  # in workers, too
    monkeypatch.syspath_prepend(DOCS)
    reported = simulated.devices()[request.param]
    (tmp_path / "shipped.json").write_text(as_json([]))
    workers.plant(
        *(monkeypatch, "none"),
        PLANTED_RECORDS=str(tmp_path / "shipped.json"),
        PLANTED_REPORTS=json.dumps(reported),
    )
    for kind, attribute, value in simulated.replacements(reported):
        monkeypatch.setattr(kind, attribute, value)
    found = devices.present.__wrapped__()  # as a new process finds them
    for module in (devices, choice):
        monkeypatch.setattr(module, "present", lambda: found)
    (made,) = (each for each in found.devices if each.cl_device == device.cl_device)
    with clgemm.device(made):
        yield made
    workers.begin_anew()


def test_plans_fit_the_device(gpu):
    """No work-group, no local memory and no buffer is larger than the device says."""
    d = gpu.cl_device
    problem_of = importlib.import_module("family_costs").problem_of
    for case, precision in itertools.product(CASES, ("strict", "float32")):
        problem = problem_of(case, precision)
        plan = planner.plan_of(gpu, problem).plan
        for step in plan.steps:
            fits(step.config, d)
        assert max((size for _, size in plan.scratch), default=0) <= d.max_mem_alloc_size


def fits(config, d):
    """Require that a kernel's work-groups fit a device."""
    assert config.items <= d.max_work_group_size
    assert config.items <= d.max_work_item_sizes[0]
    assert config.local_memory_bytes <= d.local_mem_size


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "f2", "f8", "c8", "b1"])
def test_plans_of_other_dtypes_fit_the_device(gpu, dtype):
    """As those of float32; a device without float64 is given none."""
    types = Types(dtype, dtype, dtype)
    if not exact.computes(gpu, types):
        assert dtype == "f8"
        assert not gpu.cl_device.double_fp_config
        return
    for n in (3, 64, 500, 4096):
        layout = Layout((n, n), (n, 1))
        for step in exact_plan(layout, layout, layout, types, gpu.limits).plan.steps:
            fits(step.config, gpu.cl_device)


@pytest.mark.parametrize("gpu", UNLIKE, indirect=True)
def test_products_are_right(gpu, device):
    """In host arrays and device arrays, of all sizes of tiles, and of integers.

    An integrated GPU uses host arrays in place, if the device that stands for it does.
    """
    assert choice.checked([gpu])[0].reason == ""
    assert gpu.is_integrated == bool(gpu.cl_device.host_unified_memory)
    assert gpu.shares_host_memory == (gpu.is_integrated and device.shares_host_memory)
    for m, n, k in SHAPES:
        a, b = (rng.integers(-8, 9, size).astype(np.float32) for size in ((m, k), (k, n)))
        expected = a @ b
        for precision in ("strict", "float32"):
            result = clgemm.sgemm(1.0, a, b, precision=precision)
            np.testing.assert_array_equal(result, expected)
        x, y = (cl_array.to_device(gpu.queue, z) for z in (a, b))
        np.testing.assert_array_equal(clgemm.matmul(x, y).get(), expected)
        i, j = (z.astype(np.int32) for z in (a, b))
        np.testing.assert_array_equal(clgemm.matmul(i, j), i @ j)


@pytest.mark.parametrize("gpu", ["Apple M1"], indirect=True)
def test_a_driver_that_crashes_in_host_memory_is_sent_its_arrays(gpu, monkeypatch):
    """The device stays in use, and the crash is not repeated."""
    workers.plant(monkeypatch, "host memory")
    assert choice.checked([gpu])[0].reason == ""
    assert not gpu.shares_host_memory
    assert verdicts.known(verdicts.about_host_memory(where(gpu))).reason
    a, b = (rng.integers(-8, 9, size).astype(np.float32) for size in ((140, 37), (37, 141)))
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)


def test_no_launch_keeps_a_display_waiting(gpu):
    """Expected times bound it, and a smaller bound holds as long as they are another GPU's."""
    calibrated = gpu.limits.with_costs(calibration.scaled(np.full(len(calibration.GROUPS), 3.0)))
    assert gpu.limits.longest_us == LONGEST_US / MOST_SLOWER
    assert gpu.limits.with_costs(H200).longest_us == gpu.limits.longest_us
    assert calibrated.longest_us == LONGEST_US
    for limits in (gpu.limits, calibrated):
        forget_plans()  # which reads the limits anew
        gpu.limits = limits
        for n in (2000, 12_000):
            for is_half in (False, True):
                problem = Problem.of(Shape(n, n, n), "strict")._replace(is_symmetric=is_half)
                steps = planner.plan_of(gpu, problem).plan.steps
                for step in steps:
                    launch = Launch(step.groups, step.arguments, limits)
                    assert step.config.microseconds(launch) <= limits.longest_us
                work = sum(_work(step) for step in steps if "k" in step.arguments)
                assert work <= (0.7 if is_half else 1) * n**3


def _work(step):
    """The multiply-adds of a launch."""
    return math.prod(step.arguments[size] for size in "mnk") * (
        0.5 if getattr(step.config, "triangle", False) else 1
    )


@pytest.mark.parametrize("gpu", ["Mali-G71", "Radeon RX 6800 XT", "Apple M1"], indirect=True)
def test_a_config_that_its_compiler_refuses_is_replaced(gpu, monkeypatch):
    """The product is right, and the device stays in use."""
    problem = Problem.of(Shape(140, 141, 37), "strict")
    found = planner.plan_of(gpu, problem)
    refused = found.choice.config
    text = json.dumps([f"{refused.entry}(", refused.macros(), False])
    workers.plant(monkeypatch, "refuses", PLANTED_CONFIG=text)
    a, b = (rng.integers(-8, 9, size).astype(np.float32) for size in ((140, 37), (37, 141)))
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b, precision="strict"), a @ b)
    workers.begin_anew()
    assert readiness.planned(gpu, problem).choice.config != refused
    assert choice.checked([gpu])[0].reason == ""


def test_a_calibration_finds_how_fast_the_device_is(gpu):
    """From times with noise, of plans that such a device would measure."""
    plans = [plan for shape in calibration.SHAPES for plan, _ in calibration._plans(gpu, shape)]
    factors = rng.normal(1.5, 0.6, len(calibration.GROUPS))
    slower = calibration.scaled(factors)
    expected = calibration.expected_times(plans, gpu.limits, slower)
    times = expected * np.exp(0.15 * rng.standard_normal(len(plans)))
    timed = [calibration.TimedPlan(*each) for each in zip(plans, times.tolist(), strict=True)]
    fitted = calibration.fitted(timed, gpu.limits)
    found = calibration.expected_times(plans, gpu.limits, fitted)
    assert np.median(np.abs(np.log(found / expected))) < 0.12
