"""The order of tiles, as kernels compute it on a device."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.plan import tiles_of

# Writes the place of each tile, and how many there are.
KERNEL = """
__kernel void places(const int tiles_m, const int tiles_n, const int swizzle, const int tile_m,
                     const int tile_n, __global int* to) {
  const uint i = get_global_id(0);
  const Place place = swizzled(i, tiles_m, tiles_n, swizzle, tile_m, tile_n);
  to[2 * i] = place.m;
  to[2 * i + 1] = place.n;
  if (i == 0) to[2 * get_global_size(0)] = tiles_of_rows(tiles_m, tiles_n, tile_m, tile_n);
}
"""


@pytest.fixture(scope="module")
def programs(device):
    """The kernel for all tiles, and for those of a triangle."""
    text = resources.files("clgemm").joinpath("kernels/common/swizzle.cl").read_text()
    program = cl.Program(device.context, text + KERNEL)
    other = cl.Program(device.context, text + KERNEL)
    return program.build(["-DTRIANGLE=0"]).places, other.build(["-DTRIANGLE=1"]).places


def places(device, kernel, count, *sizes):
    """The places of so many tiles, and how many there are by the kernel's own count."""
    found = np.zeros(2 * count + 1, np.int32)
    buffer = cl.Buffer(device.context, cl.mem_flags.WRITE_ONLY, found.nbytes)
    kernel(device.queue, (count,), None, *map(np.int32, sizes), buffer)
    cl.enqueue_copy(device.queue, found, buffer)
    return [*zip(found[:-1:2].tolist(), found[1::2].tolist(), strict=True)], int(found[-1])


@given(
    m=st.integers(1, 700),
    more=st.integers(0, 300),
    sides=st.sampled_from([(16, 16), (32, 64), (64, 16), (128, 256), (128, 16), (16, 128)]),
    swizzle=st.sampled_from([1, 2, 3, 8, 16]),
    is_half=st.booleans(),
)
def test_each_tile_has_one_number(device, programs, m, more, sides, swizzle, is_half):
    """Of a triangle, those that reach the diagonal or lie right of it; of C, all."""
    n, (tile_m, tile_n) = m + more, sides
    rows, columns = -(-m // tile_m), -(-n // tile_n)
    wanted = [
        (i, j)
        for i in range(rows)
        for j in range(columns)
        if not is_half or (j + 1) * tile_n > i * tile_m
    ]
    assert tiles_of(m, n, tile_m, tile_n, is_half) == len(wanted)
    sizes = rows, columns, swizzle, tile_m, tile_n
    found, count = places(device, programs[is_half], len(wanted), *sizes)
    assert count == len(wanted)
    assert sorted(found) == wanted
