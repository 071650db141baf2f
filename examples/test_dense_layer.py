"""An example of a project's tests that check clgemm with Hypothesis on arbitrary shapes.

The project has one function, a dense layer of a neural network for NumPy arrays. It runs the layer
on OpenCL by passing clgemm in place of NumPy. The strategies, the error bound and the fixture
`opencl_device` come from clgemm: the tests run once for each OpenCL device.

    python -m pytest examples/test_dense_layer.py
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clgemm
from clgemm.testing import error_bound, matrices, sides, stacks

pytestmark = pytest.mark.usefixtures("opencl_device")
# No wide data: the second test scales it by powers of two.
DATA = ("ones", "integers", "normal", "cancelling", "outlier")


def dense_layer(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, xp: ModuleType) -> np.ndarray:
    """Return max(0, x W + b) for a batch of any shape: (..., inputs) gives (..., outputs)."""
    return np.maximum(xp.matmul(x, weights) + bias, 0)


@st.composite
def layers(draw):
    """Draw a batch of any shape, perhaps empty, and a layer's weights and biases."""
    inputs, outputs = draw(sides(40)), draw(sides(40))
    x = draw(stacks(sides(5), inputs, max_dims=2, data=DATA))
    weights = draw(matrices(inputs, outputs, data=DATA))
    return x, weights, draw(matrices(1, outputs, data=DATA))[0]


@settings(deadline=None)
@given(layers())
def test_the_layer_is_the_same_on_opencl(layer):
    """The layer has the same shape and dtype on OpenCL, and values within rounding errors."""
    x, weights, bias = layer
    expected = dense_layer(x, weights, bias, np)
    result = dense_layer(x, weights, bias, clgemm)
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    # The biases are added as C is: with beta = 1. Each side may have that error.
    bound = error_bound(x, weights, beta=1.0, c=np.broadcast_to(bias, result.shape))
    assert (abs(result - expected) <= 2 * bound).all()


@settings(deadline=None)
@given(layers(), st.integers(-3, 3))
def test_the_layer_is_homogeneous(layer, power):
    """The layer scales with powers of two: relu(2^p x W + 2^p b) = 2^p relu(x W + b)."""
    x, weights, bias = layer
    scale = np.float32(2.0**power)
    scaled = dense_layer(scale * x, weights, scale * bias, clgemm)
    expected = scale * dense_layer(x, weights, bias, clgemm)
    # The scaled operand may lie otherwise in memory, and be summed in another order.
    bound = error_bound(scale * x, weights, 1.0, 1.0, np.broadcast_to(scale * bias, scaled.shape))
    assert (abs(scaled - expected) <= 2 * bound).all()
