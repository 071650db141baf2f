"""An example of a project's tests that check clgemm with Hypothesis on arbitrary shapes.

The project has one function, a dense layer of a neural network for NumPy arrays. It runs the layer
on OpenCL by passing clgemm in place of NumPy.

    python -m pytest examples/test_dense_layer.py
"""

from __future__ import annotations

from types import ModuleType

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clgemm


def dense_layer(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, xp: ModuleType) -> np.ndarray:
    """Return max(0, x W + b) for a batch of any shape: (..., inputs) gives (..., outputs)."""
    return np.maximum(xp.matmul(x, weights) + bias, 0)


@pytest.fixture(autouse=True, scope="module")
def everything_on_the_device():
    """Run all products on the device; small ones would stay on the host otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLGEMM_THRESHOLD", "0")
        yield


@st.composite
def layers(draw):
    """Draw a batch of any shape, perhaps empty, and a layer's weights and biases."""
    batch = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    inputs, outputs = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    values = st.floats(-100, 100, width=32)
    return (
        draw(hnp.arrays(np.float32, (*batch, inputs), elements=values, fill=values)),
        draw(hnp.arrays(np.float32, (inputs, outputs), elements=values, fill=values)),
        draw(hnp.arrays(np.float32, (outputs,), elements=values, fill=values)),
    )


@settings(deadline=None)
@given(layers())
def test_the_layer_is_the_same_on_opencl(layer):
    """The layer has the same shape and dtype on OpenCL, and values within rounding errors."""
    x, weights, bias = layer
    expected = dense_layer(x, weights, bias, np)
    result = dense_layer(x, weights, bias, clgemm)
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    magnitude = np.matmul(abs(x), abs(weights), dtype=np.float64) + abs(bias)
    # Each side may have the error of (inputs + 1) roundings.
    assert (abs(result - expected) <= 2 * (len(weights) + 1) * 2.0**-24 * magnitude).all()


@settings(deadline=None)
@given(layers(), st.integers(-3, 3))
def test_the_layer_is_homogeneous(layer, power):
    """The layer scales with powers of two: relu(2^p x W + 2^p b) = 2^p relu(x W + b)."""
    x, weights, bias = layer
    scale = np.float32(2.0**power)
    scaled = dense_layer(scale * x, weights, scale * bias, clgemm)
    np.testing.assert_allclose(scaled, scale * dense_layer(x, weights, bias, clgemm), rtol=1e-6)
