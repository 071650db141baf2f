"""Tests of rung 20's kernels ``pack`` and ``fallback`` on every device.

The assembly of ``pack`` is replaced by OpenCL C, so that what it packs can be compared anywhere.
"""

from __future__ import annotations

import re

import numpy as np
import pyopencl as cl
import pytest

from clgemm.hardware.choice import devices
from clgemm.hardware.device import Device
from clgemm.ladder.measure import kernel_text
from clgemm.runtime import programs

SIDE, TILE_K = 128, 64
PART_BYTES = 2 * SIDE * TILE_K
TILE_BYTES = 2 * PART_BYTES + 128
TOP, LEAST_SCALE = 14, -63
UNTOUCHED = 7

# The same as the assembly does, in OpenCL C.
IN_OPENCL_C = {
    "halves": """static inline uint halves(const float first, const float second) {
  ushort both[2];
  vstore_half_rte(first, 0, (half*)both);
  vstore_half_rte(second, 1, (half*)both);
  return both[0] | (uint)both[1] << 16;
}""",
    "floats": """static inline float2 floats(const uint both) {
  ushort two[2] = {(ushort)both, (ushort)(both >> 16)};
  return (float2)(vload_half(0, (half*)two), vload_half(1, (half*)two));
}""",
    "largest_of": "static inline uint largest_of(const uint x) { return x; }",
}
MACROS = (("STAGES", 1), ("SWIZZLE", 1))
WORK_ITEMS = 256
able = [d for d in devices() if d.limits.work_group_size >= WORK_ITEMS and "Oclgrind" not in d.name]
on_every_device = pytest.mark.parametrize("device", able, ids=lambda d: d.name)


def pack_text(number: int = 20) -> str:
    """Return the kernels of rung 19 or 20 up to ``pack``, without assembly."""
    names = {19: "19_split_operands.cl", 20: "20_guard.cl"}
    text = kernel_text(names[number]).partition("// Barriers in local memory")[0]
    for name, function in IN_OPENCL_C.items():
        text, count = re.subn(rf"static inline \w+ {name}\(.*?^}}", lambda _, f=function: f, text,
                              flags=re.DOTALL | re.MULTILINE)  # fmt: skip
        assert count == 1, name
    each = "if (item % 32 == 0) atomic_max(&largest, size);"  # for each sub-group
    assert text.count(each) == 1
    text = text.replace(each, "atomic_max(&largest, size);")
    assert "asm" not in re.sub(r"//.*", "", text)
    return text


def fallback_text() -> str:
    """Return the kernel ``fallback`` with its macros."""
    text = kernel_text("20_guard.cl")
    macros = re.findall(r"^#define (?:SIDE|ITEMS) .*$", text, re.MULTILINE)
    assert len(macros) == 2
    return "\n".join([*macros, "// C = A*B in plain" + text.partition("// C = A*B in plain")[2]])


class Packed:
    """What ``pack`` makes of an operand, of 128 rows for each panel."""

    def __init__(self, device: Device, x: np.ndarray, along_rows: bool, number: int = 20) -> None:
        rows, k = x.shape
        queue = cl.CommandQueue(device.context, device.cl_device)
        steps = (1, rows) if along_rows else (k, 1)
        memory = np.asarray(x, order="F" if along_rows else "C").ravel(order="K")
        flags = cl.mem_flags
        source = cl.Buffer(device.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=memory)
        count = rows // SIDE * (k // TILE_K)
        tiles = np.zeros(count * TILE_BYTES, np.uint8)
        packed = cl.Buffer(device.context, flags.READ_WRITE, tiles.nbytes)
        unsafe = cl.Buffer(device.context, flags.READ_WRITE, 4)
        program = programs.build(device, pack_text(number), MACROS)
        if number == 20:
            cl.Kernel(program, "start")(queue, (1,), (1,), unsafe)
        kernel = cl.Kernel(program, "pack")
        more = [unsafe] if number == 20 else []
        kernel.set_args(*map(np.int32, (k, *steps)), source, packed, *more)
        grid = (WORK_ITEMS * (rows // SIDE), k // TILE_K)
        cl.enqueue_nd_range_kernel(queue, kernel, grid, (WORK_ITEMS, 1))
        cl.enqueue_copy(queue, tiles, packed)
        flag = np.zeros(1, np.uint32)
        if number == 20:
            cl.enqueue_copy(queue, flag, unsafe)
        self.unsafe = int(flag[0])
        tiles = tiles.reshape(rows // SIDE, k // TILE_K, TILE_BYTES)
        self.scales = tiles[..., 2 * PART_BYTES :][..., :4].copy().view(np.float32)[..., 0]
        self.high, self.low = (
            self._matrix(tiles[..., part * PART_BYTES : (part + 1) * PART_BYTES]) for part in (0, 1)
        )

    def _matrix(self, part: np.ndarray) -> np.ndarray:
        """Return a part as a matrix, from [panel][depth][core][row][8]."""
        panels, depths, _ = part.shape
        halves = part.copy().view(np.float16).reshape(panels, depths, TILE_K // 8, SIDE, 8)
        return halves.transpose(0, 3, 1, 2, 4).reshape(panels * SIDE, depths * TILE_K)

    def scale_of_elements(self) -> np.ndarray:
        """Return each element's scale."""
        return np.repeat(np.repeat(self.scales, SIDE, 0), TILE_K, 1).astype(np.float64)


@on_every_device
@pytest.mark.parametrize("number", [19, 20])
@pytest.mark.parametrize("along_rows", [True, False], ids=["A", "B"])
def test_pack_splits_every_element_at_its_place(device, along_rows, number):
    """Parts and scales are those of the header's formulas, in the header's layout."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2 * SIDE, 3 * TILE_K)).astype(np.float32)
    x[:SIDE, :TILE_K] *= np.float32(1e-12)
    x[SIDE:, TILE_K : 2 * TILE_K] *= np.float32(1e15)
    x[0] = 0
    packed = Packed(device, x, along_rows, number)
    tiles = np.abs(x).reshape(2, SIDE, 3, TILE_K).max(axis=(1, 3)).astype(np.float64)
    np.testing.assert_array_equal(packed.scales, 2.0 ** (np.floor(np.log2(tiles)) - TOP))
    scaled = (x / packed.scale_of_elements()).astype(np.float32)
    high = scaled.astype(np.float16)
    np.testing.assert_array_equal(packed.high, high)
    np.testing.assert_array_equal(packed.low, (scaled - high).astype(np.float16))
    too_small = (x != 0) & (np.abs(scaled) < 2 / 128)  # k = 192 counts as 128
    assert packed.unsafe == (number == 20 and too_small.any())


@on_every_device
def test_scales_are_limited(device):
    """Scales lie between 2**-63 and 2**63, also for tiles of zeros and of large numbers."""
    x = np.zeros((SIDE, 3 * TILE_K), np.float32)
    x[:, TILE_K : 2 * TILE_K] = 2.0**77
    x[:, 2 * TILE_K :] = 2.0**-60
    packed = Packed(device, x, False)
    np.testing.assert_array_equal(packed.scales[0], [2.0**-63, 2.0**63, 2.0**-63])
    assert np.isfinite(packed.high).all()
    assert not packed.unsafe


K = 8 * TILE_K  # 512
LEAST = 2.0 ** (1 - 9 - TOP)  # 2/k over the scale of a tile of ones
VALUES = [(np.nan, 1), (np.inf, 1), (-np.inf, 1), (2.0**78, 1), (-(2.0**127), 1), (1e-40, 1)]
VALUES += [
    (LEAST, 0),
    (-LEAST, 0),
    (LEAST * (1 - 2.0**-24), 1),
    (-LEAST / 2, 1),
    (0.0, 0),
    (-0.0, 0),
]


@on_every_device
@pytest.mark.parametrize(("value", "unsafe"), VALUES)
def test_pack_notices_what_cannot_be_split(device, value, unsafe):
    """The flag is 1 for Inf, NaN, 2**78 and elements below 2/k over the scale, and 0 for others."""
    x = np.ones((SIDE, K), np.float32)
    x[77, 300] = value
    assert Packed(device, x, True).unsafe == unsafe


@on_every_device
@pytest.mark.parametrize(("size", "unsafe"), [(2.0**78, 1), (2.0**78 * (1 - 2.0**-24), 0)])
def test_pack_notices_tiles_that_are_too_large(device, size, unsafe):
    """Elements of 2**78 are unsafe even where all are as large; the next smaller ones are not."""
    assert Packed(device, np.full((SIDE, K), size, np.float32), True).unsafe == unsafe


@on_every_device
@pytest.mark.parametrize("unsafe", [0, 1])
def test_the_fallback_multiplies_if_it_must(device, unsafe):
    """The fallback is exact on small integers if the flag is 1, and leaves C alone if it is 0."""
    m, n, k = 256, 384, 72
    rng = np.random.default_rng(6)
    a = np.asfortranarray(rng.integers(-9, 10, (m, k)), np.float32)
    b = np.asfortranarray(rng.integers(-9, 10, (k, n)), np.float32)
    c = np.full((n, m), UNTOUCHED, np.float32)  # column-major
    queue = cl.CommandQueue(device.context, device.cl_device)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    flag = np.array([unsafe], np.uint32)
    buffers = [
        cl.Buffer(device.context, flags, hostbuf=x)
        for x in (a.ravel(order="F"), b.ravel(order="F"), c, flag)
    ]
    kernel = cl.Kernel(programs.build(device, fallback_text(), ()), "fallback")
    kernel.set_args(*map(np.int32, (m, n, k)), *buffers)
    cl.enqueue_nd_range_kernel(
        queue, kernel, (WORK_ITEMS * (m // SIDE), n // SIDE), (WORK_ITEMS, 1)
    )
    cl.enqueue_copy(queue, c, buffers[2])
    expected = a.astype(np.int64) @ b.astype(np.int64) if unsafe else np.full((m, n), UNTOUCHED)
    np.testing.assert_array_equal(c.T, expected)
