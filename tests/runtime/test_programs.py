"""Tests of how often programs, kernels and buffers are made, and of a full disk."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

import clgemm
from clgemm.core.config import variant_of
from clgemm.core.shapes import Shape
from clgemm.hardware import pocl_space
from clgemm.hardware.traits import POCL
from clgemm.kernels.blocked.config import BlockedVariant
from clgemm.kernels.blocked.family import BLOCKED
from clgemm.kernels.direct.config import DirectConfig
from clgemm.kernels.sources import text_of
from clgemm.runtime import operands, programs, workspace

RNG = np.random.default_rng(2014)


@pytest.fixture
def counts(monkeypatch):
    """Count the programs that are built, and the kernels and buffers that are created."""
    counted = {"programs": 0, "kernels": 0, "views": 0, "scratch": 0}

    def counting(name, original):
        def call(*arguments, **keywords):
            counted[name] += 1
            return original(*arguments, **keywords)

        return call

    monkeypatch.setattr(programs, "build", counting("programs", programs.build))
    monkeypatch.setattr(cl, "Kernel", counting("kernels", cl.Kernel))
    monkeypatch.setattr(operands.cl, "Buffer", counting("views", cl.Buffer))
    return counted


@pytest.fixture
def fresh(device):
    """Choose the device in a context of its own, without programs and scratch memory."""
    with clgemm.device(clgemm.Device(device.cl_device)) as fresh:
        yield fresh


@pytest.mark.parametrize("small", [workspace.SMALL_SCRATCH_BYTES, -1])
@pytest.mark.parametrize("n", [5, 150])
def test_a_second_call_of_a_kind_creates_nothing_but_views(n, small, fresh, counts, monkeypatch):
    """A repeated call makes no program, kernel or scratch buffer.

    Where the device shares host memory, it makes a buffer over each operand. Large scratch memory
    returns to the pool.
    """
    monkeypatch.setattr(workspace, "SMALL_SCRATCH_BYTES", small)
    a, b, c = (np.ones((n, n), np.float32) for _ in range(3))
    clgemm.sgemm(1.0, a, b, 0.5, c, overwrite_c=1)
    assert counts["programs"] > 0
    assert counts["kernels"] >= counts["programs"]  # one for each launch
    pool = workspace.workspace(fresh.queue)._pool
    held, active = pool.managed_bytes, pool.active_blocks
    counts.update(dict.fromkeys(counts, 0))
    for other in (a, b.copy(), np.asfortranarray(a)[::-1][::-1].T):
        clgemm.sgemm(2.0, other, b, 0.0, c, overwrite_c=1)
    assert counts["programs"] == counts["kernels"] == 0
    assert counts["views"] == (9 if fresh.shares_host_memory else 0)
    assert pool.managed_bytes == held
    assert pool.active_blocks == (active if small > 0 else 0)


def test_small_scratch_memory_grows(fresh):
    """Small scratch memory is replaced by larger memory, which smaller products use too."""
    space = workspace.workspace(fresh.queue)
    for n in (150, 300, 150, 300):
        a, b = (RNG.integers(-4, 5, (n, n)).astype(np.float32) for _ in range(2))
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
        if n == 300:
            largest = dict(space._memory.scratch)
        assert space._pool.active_blocks == len(space._memory.scratch)
    assert space._memory.scratch == largest


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


def test_a_folder_that_cannot_be_written_is_no_obstacle(fresh, monkeypatch, tmp_path, caplog):
    """If the cache folder cannot be written, programs are built and used all the same."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(blocked))
    with caplog.at_level(logging.DEBUG, "clgemm"):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, [[2.0]], [[3.0]]), [[6.0]])
    assert "building DirectConfig" in caplog.text


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


def test_a_source_that_does_not_compile_says_why(device):
    """The error for a source that does not compile includes the compiler's log."""
    with pytest.raises(cl.RuntimeError, match="BUILD_PROGRAM_FAILURE"):
        programs.build(device, "__kernel void broken( { }", ())


@pytest.fixture
def full(device, monkeypatch):
    """Return a PoCL device in a context of its own, on a disk that is full."""
    if not device.platform.startswith(POCL):
        pytest.skip("only PoCL compiles on disk")
    monkeypatch.setenv("POCL_CACHE_DIR", "/full/folder")
    monkeypatch.setattr(pocl_space.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    return clgemm.Device(device.cl_device)


def test_a_full_disk_is_named(full, monkeypatch):
    """If PoCL's disk is full, the error names folder, reason and remedy in short."""
    said = r"no space left in /full/folder, where PoCL compiles: .*POCL_CACHE_DIR"
    with clgemm.device(full), pytest.raises(OSError, match=said) as caught:
        clgemm.sgemm(1.0, [[2.0]], [[3.0]])
    assert caught.value.errno == errno.ENOSPC
    assert "-D" not in str(caught.value)
    free = [2**30, 0]  # it fills up amid the build
    monkeypatch.setattr(
        pocl_space.shutil, "disk_usage", lambda _: SimpleNamespace(free=free.pop(0))
    )
    with pytest.raises(OSError, match=said) as caught:
        programs.build(full, "__kernel void broken( { }", ())
    assert isinstance(caught.value.__cause__, cl.RuntimeError)  # with the log


def test_a_full_disk_is_numpys_business_when_accelerated(full, caplog):
    """If PoCL's disk is full, accelerated NumPy multiplies, with one warning of one line."""
    a = np.ones((40, 40), np.float32)
    with caplog.at_level(logging.WARNING, "clgemm"), clgemm.accel.enabled(0, full):
        assert ((a @ a) == 40).all()
    (record,) = caplog.records
    assert "no space left in /full/folder" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root mounts")
def test_pocl_on_a_full_disk_is_one_clear_error(device, tmp_path):
    """On a really full disk, PoCL gives one clear error and does not end the process."""
    if not device.platform.startswith(POCL):
        pytest.skip("only PoCL compiles on disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    program = """
import clgemm
from clgemm.kernels.direct.config import DirectConfig
try: clgemm.sgemm(1.0, [[2.0]], [[3.0]])
except (OSError, RuntimeError) as error: print(error)
"""
    folders = {"POCL_CACHE_DIR": f"{tmp_path}/pocl", "CLGEMM_CACHE_DIR": f"{tmp_path}/clgemm"}
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | folders | paths | {"CLGEMM_DEVICE": POCL},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert f"no space left in {tmp_path}/pocl" in done.stdout, done.stderr
    assert done.returncode == 0
