"""Tests of how often programs, kernels and buffers are made, and of a full disk."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from pyopencl import invoker

import clgemm
from clgemm.core.config import variant_of
from clgemm.core.problem import Shape
from clgemm.hardware.device import Device
from clgemm.hardware.traits import POCL
from clgemm.kernels.blocked.family import BLOCKED, BlockedVariant
from clgemm.kernels.direct.family import DirectConfig
from clgemm.kernels.sources import text_of
from clgemm.runtime import programs

RNG = np.random.default_rng(2014)


def test_a_change_of_order_needs_no_new_program(fresh, counts):
    """Other orders and transposes of the operands need few or no further programs.

    A CPU packs A or reads it in place with the same programs. On other devices, each operand may be
    read transposed: four kernels. Where these share host memory, an operand of double strides is
    packed, and the other operand may be read transposed: four more kernels, and packing.
    """
    a, b = RNG.random((150, 150)).astype(np.float32), np.ones((150, 150), np.float32)
    clgemm.sgemm(1.0, a, b)
    clgemm.sgemm(1.0, a, b, order="C")
    built = counts["programs"]
    for x in (a, a.T, a[::-1], a[:, ::-1]):
        for trans_b in (0, 1):
            clgemm.sgemm(1.0, x, b, trans_b=trans_b)
            clgemm.sgemm(1.0, x, b, trans_b=trans_b, order="C")
    on_lanes = 9 if fresh.shares_host_memory else 4
    assert counts["programs"] <= (built if fresh.limits.vector_width > 1 else on_lanes)


def test_pyopencl_makes_what_a_kernel_is_called_by_once(device, monkeypatch):
    """From then on for all kernels of that name. Those with typed arguments are left to it."""
    made, original = [], invoker.generate_enqueue_and_set_args

    def counted(*arguments, **keywords):
        made.append(arguments[3])
        return original(*arguments, **keywords)

    monkeypatch.setattr(invoker, "generate_enqueue_and_set_args", counted)
    programs._keep_invokers.cache_clear()
    programs._keep_invokers()
    for n in range(41, 45):  # each shape has a kernel of its own
        x = RNG.random((n, n)).astype(np.float32)
        np.testing.assert_allclose(clgemm.sgemm(1.0, x, x), x @ x, rtol=1e-4)
    assert len(made) <= 2
    source = "__kernel void fill(__global float* x, const float y) { x[get_global_id(0)] = y; }"
    kernel = cl.Program(device.context, source).build().fill
    kernel.set_scalar_arg_dtypes([None, np.float32])
    assert made[-1] is not None
    x = cl.array.zeros(device.queue, 5, np.float32)
    kernel(device.queue, (5,), None, x.data, 3)
    assert (x.get() == 3).all()
    monkeypatch.undo()
    programs._keep_invokers.cache_clear()


def test_a_config_that_does_not_fit_is_refused(device):
    """A config beyond the device's limits raises ValueError before anything is compiled."""
    config = DirectConfig(items_m=10**6, items_n=1, work_m=1, width=1, fma=False)
    with pytest.raises(ValueError, match=r"1000000 work-items .* exceed the device's"):
        programs.kernel(device, config)


@pytest.mark.parametrize("packs", [False, True])
def test_a_compiler_unrolls_what_it_is_told_to(packs, device, monkeypatch, tmp_path):
    """PoCL's compiler unrolls all loops as asked; otherwise its log would have a warning."""
    if not device.platform.startswith(POCL):
        pytest.skip(
            "Intel's compiler warns of loops that it does not name; others have no register"
        )
    config = BLOCKED.defaults(Shape(512, 512, 512), device.traits)[0].config
    config = variant_of(BlockedVariant, replace(config, in_place=not packs), packs=packs)
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    # A source that no cache of the runtime's own knows.
    source = f"{text_of(type(config))}\n__kernel void unknown_{time.time_ns()}(void) {{}}"
    program = programs.build(device, source, config.macros(), config.standard, config.options)
    log = program.get_build_info(device.cl_device, cl.program_build_info.LOG)
    assert "unroll" not in log, log


def test_every_kernel_is_built_with_the_options_of_its_device(device, monkeypatch):
    """The options in a device's limits reach its compiler."""
    built, fresh = [], Device(device.cl_device)
    fresh.__dict__["limits"] = replace(device.limits, build_options=("-DOF_THIS_DEVICE=1",))
    monkeypatch.setattr(programs, "build", lambda *arguments: built.append(arguments))
    config = DirectConfig(items_m=8, items_n=8, work_m=1, width=1, fma=False)
    with pytest.raises(TypeError):  # there is no program
        programs.kernel(fresh, config)
    assert "-DOF_THIS_DEVICE=1" in built[0][-1]


def test_a_source_that_does_not_compile_says_why(device):
    """The error for a source that does not compile includes the compiler's log."""
    with pytest.raises(cl.RuntimeError, match="BUILD_PROGRAM_FAILURE"):
        programs.build(device, "__kernel void broken( { }", ())
