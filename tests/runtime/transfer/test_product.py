"""Tests of what the device computes with each tile."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
from staged import integers

from clgemm.runtime.memory import place
from clgemm.runtime.transfer.product import TiledProduct
from clgemm.runtime.workspace import workspace


def test_only_the_first_tile_of_a_block_scales_it(device):
    """C is scaled by beta once, and the other tiles along k add to it."""
    a, b, c = integers(20, 60), integers(60, 30), integers(20, 30)
    space = workspace(device.queue)
    product = TiledProduct(2.0, -3.0, "strict", device, space)
    on_device = cl_array.to_device(device.queue, c)
    event = None
    for first in (0, 20, 40):
        x = cl_array.to_device(device.queue, np.ascontiguousarray(a[:, first : first + 20]))
        y = cl_array.to_device(device.queue, b[first : first + 20])
        matrices = [place(each) for each in (x, y, on_device)]
        bound = product.bind(*(each.layout for each in matrices))
        before = [*x.events, *y.events, *on_device.events, *([event] if event else [])]
        event = product.enqueue(bound, *matrices, first == 0, before)
        event.wait()
    np.testing.assert_array_equal(on_device.get(), 2 * (a @ b) - 3 * c)


def test_without_a_precision_the_operands_are_not_read(device):
    """The product is then a scaling: NaN in A and B does not spread."""
    nan, c = np.full((20, 20), np.nan, np.float32), integers(20, 20)
    product = TiledProduct(0.0, 2.0, None, device, workspace(device.queue))
    operands = [cl_array.to_device(device.queue, x) for x in (nan, nan, c)]
    device.queue.finish()
    matrices = [place(x) for x in operands]
    bound = product.bind(*(each.layout for each in matrices))
    product.enqueue(bound, *matrices, True, []).wait()
    np.testing.assert_array_equal(operands[-1].get(), 2 * c)
