"""What no kernel may do at its edges: write beside its memory, or let it matter what lies there."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from kernels.test_kernels import FMA, ODD_TILES, WIDE, force, name
from strategies import integers

import clgemm
from clgemm import verify
from clgemm.hardware.device import Device, identity
from clgemm.hardware.traits import POCL
from clgemm.kernels.tiled.family import TILED
from clgemm.planning import planner
from clgemm.records.tuned import choice_as_dict
from clgemm.runtime import workspace as workspace_module
from clgemm.runtime.workspace import Workspace

GUARD_BYTES, GUARD = 2**16, 0x5A
FAMILIES = [family.name for family in planner.FAMILIES if not family.instructions]
# Of each family: enough for its edge shapes in several layouts.
PRODUCTS = 12


@pytest.fixture
def guarded(device, monkeypatch):
    """The device in a context of its own, with guards behind all scratch memory."""
    made = []

    def allocate(space, size_bytes):
        whole = cl.Buffer(space.queue.context, cl.mem_flags.READ_WRITE, size_bytes + GUARD_BYTES)
        pattern = np.full(1, GUARD, np.uint8)
        cl.enqueue_fill_buffer(space.queue, whole, pattern, size_bytes, GUARD_BYTES)
        made.append((space.queue, whole, size_bytes))
        return whole

    monkeypatch.setattr(Workspace, "allocate", allocate)
    # Each call has scratch memory of its own size: none is shared that is larger.
    monkeypatch.setattr(workspace_module, "SMALL_SCRATCH_BYTES", -1)
    with clgemm.device(Device(device.cl_device)) as chosen:
        yield chosen, made


def broken(made):
    """The sizes of the scratch memory that was written beyond its end."""
    found = []
    for queue, whole, size_bytes in made:
        behind = np.empty(GUARD_BYTES, np.uint8)
        cl.enqueue_copy(queue, behind, whole, src_offset=size_bytes)
        if (behind != GUARD).any():
            found.append(size_bytes)
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_every_default_config_launches_and_keeps_to_its_memory(name, guarded):
    """Each config of a family is right on the device, and writes only scratch memory and C."""
    device, made = guarded
    family = next(x for x in planner.FAMILIES if x.name == name)
    if family not in planner.families(device):
        pytest.skip("the device is not given this family")
    tally, left = verify.Tally(), iter([True] * PRODUCTS)
    rng = np.random.default_rng(27)
    verify.verify_family(device, family, tally, rng, lambda: next(left, False))
    assert tally.failures == 0, tally.messages
    defaults = (x for shape in verify.SHAPES for x in family.defaults(shape, device.traits))
    assert all(choice_as_dict(choice) in tally.configs[name] for choice in defaults)
    assert broken(made) == []


def test_packed_panels_end_where_their_memory_ends(guarded):
    """Operands in any order are packed into panels, of whole and of cut depth."""
    _, made = guarded
    rng = np.random.default_rng(7)
    for m, n, k in ((64, 64, 64), (96, 128, 200), (33, 65, 17), (128, 48, 1)):
        a, b = integers(rng, (m, 2 * k))[:, ::2], integers(rng, (2 * k, n))[::2]
        columns = [np.asfortranarray(x) for x in (a, b)]
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
        np.testing.assert_array_equal(clgemm.sgemm(1.0, *columns), a @ b)
    assert broken(made) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses mprotect")
def test_no_kernel_touches_what_lies_beside_its_operands(device):
    """Operands between pages that nobody may read: a load too many would end the process."""
    if not device.shares_host_memory:
        pytest.skip("operands are copied to the device")
    tests = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join(map(str, (tests, tests / "helpers", tests.parent)))
    done = subprocess.run(
        [sys.executable, "-m", "guard_pages", *identity(device)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    families = [*4 * ["skinny_gpu"], "outer_product", *2 * ["tiled"], "skinny_cpu"]
    if device.platform.startswith(POCL):
        families = families[-1:]
    said = "\n".join(["by the planner", *families, ""])
    assert (done.returncode, done.stdout) == (0, said), done.stderr


@pytest.mark.parametrize("config", [ODD_TILES, WIDE], ids=name)
def test_whole_tiles_are_added_to_aligned_memory(config, device, monkeypatch):
    """Vectors that are stored where C is aligned keep what beta times C adds."""
    force(config, device, monkeypatch)
    rng = np.random.default_rng(7)
    m, n = 2 * config.tile_m, 4 * config.tile_n
    a, b, c = integers(rng, (m, 40)), integers(rng, (40, n)), integers(rng, (m, n))
    x, y, z = (cl_array.to_device(device.queue, each) for each in (a, b, c))
    clgemm.sgemm(2.0, x, y, -3.0, z, overwrite_c=1, order="C")
    np.testing.assert_array_equal(z.get(), 2 * (a @ b) - 3 * c)


@pytest.mark.parametrize("is_turned", [False, True], ids=["as it is", "transposed"])
@pytest.mark.parametrize("config", [ODD_TILES, WIDE, FMA], ids=name)
def test_elements_beside_each_other_are_stored_wherever_they_begin(
    config, is_turned, device, monkeypatch
):
    """Rows of C of any length and alignment, whole and cut tiles, a short and a long k."""
    force(config, device, monkeypatch)
    monkeypatch.setattr(TILED, "is_faster_transposed", lambda *_: is_turned)
    rng = np.random.default_rng(11)
    m, columns = config.tile_m + 3, (config.tile_n, 2 * config.tile_n + 5)
    for first, n, apart, k in product(range(4), columns, range(4), (17, 300)):
        pitch = n + apart
        a, b = integers(rng, (m, k)), integers(rng, (k, n))
        before = integers(rng, (first + m * pitch,))
        x, y, memory = (cl_array.to_device(device.queue, each) for each in (a, b, before))
        z = cl_array.Array(
            device.queue, (m, n), np.float32, data=memory.base_data, offset=4 * first,
            strides=(4 * pitch, 4),
        )  # fmt: skip
        clgemm.matmul(x, y, out=z)
        expected = before.copy()
        expected[first:].reshape(m, pitch)[:, :n] = a @ b
        np.testing.assert_array_equal(memory.get(), expected)


@pytest.mark.parametrize("config", [ODD_TILES, WIDE, FMA], ids=name)
def test_elements_that_are_not_beside_each_other_are_stored_one_by_one(config, device, monkeypatch):
    """Every other column of C is written, and beta times C is added to it."""
    force(config, device, monkeypatch)
    rng = np.random.default_rng(12)
    m, n, k = config.tile_m + 1, 2 * config.tile_n - 1, 9
    a, b, before = integers(rng, (m, k)), integers(rng, (k, n)), integers(rng, (m, 2 * n))
    after = before.copy()
    clgemm.sgemm(2.0, a, b, -3.0, after[:, ::2], overwrite_c=1)
    expected = before.copy()
    expected[:, ::2] = 2 * (a @ b) - 3 * before[:, ::2]
    np.testing.assert_array_equal(after, expected)
