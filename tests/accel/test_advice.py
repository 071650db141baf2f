"""What a profile says of operands that are sent to a device again and again."""

from __future__ import annotations

import numpy as np
import pytest
from injection import TRANSFER

import clgemm
from clgemm.accel import advice
from clgemm.accel.advice import advisor

SIDE = 300


@pytest.fixture
def profiled(device, monkeypatch):
    """Everything runs with a profile, on a device to which operands are sent."""
    monkeypatch.setattr(advice, "LEAST_SECONDS", 0)
    own = clgemm.Device(device.cl_device, transfer=TRANSFER)
    with clgemm.device(own), clgemm.accel.enabled(0, profile=True):
        yield


rng = np.random.default_rng(1)


def random(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def test_an_operand_that_is_sent_again_and_again_is_named(profiled):
    """With its variable, shape and line, how often, and what `resident` would save."""
    w = random(SIDE, SIDE)
    for _ in range(8):
        random(SIDE + 1, SIDE) @ w
    (text,) = advisor.sentences()
    assert text.startswith(f"`w` ({SIDE} x {SIDE}, test_advice.py:"), text
    assert "was sent 8 times; `with clgemm.resident(w)` would save about" in text


def test_views_are_named_by_their_array(profiled):
    weights = random(SIDE, SIDE)
    for _ in range(8):
        np.dot(random(SIDE + 1, SIDE), weights.T)
    (text,) = advisor.sentences()
    assert "clgemm.resident(weights)" in text


def test_attributes_are_named(profiled):
    class Layer:
        def __init__(self):
            self.weights = random(SIDE, SIDE)

        def __call__(self, x):
            return x @ self.weights

    layer = Layer()
    for _ in range(8):
        layer(random(SIDE + 1, SIDE))
    (text,) = advisor.sentences()
    assert "`self.weights`" in text
    assert "clgemm.resident(self.weights)" in text


def test_what_changes_or_is_resident_is_no_advice(profiled):
    """Nor what is sent a few times, or is small."""
    w, small = random(SIDE, SIDE), random(8, 8)
    for number in range(1, 9):
        w += number
        random(SIDE + 1, SIDE) @ w
        small @ small
    for _ in range(advice.LEAST_TIMES - 2):
        random(SIDE + 1, SIDE) @ w
    with clgemm.resident(w):
        for _ in range(8):
            random(SIDE + 1, SIDE) @ w
    assert advisor.sentences() == ()


def test_results_that_become_operands_are_named(profiled):
    """They come to the host and go back."""
    x = random(SIDE, SIDE)
    for _ in range(2 * advice.LEAST_TIMES):
        x = x @ random(SIDE, SIDE)
    (text,) = advisor.sentences()
    assert text.startswith(f"results were operands of later products {2 * advice.LEAST_TIMES - 1}")
    assert "pyopencl" in text


def test_nothing_is_remembered_without_a_profile_or_of_the_last_one(device):
    own = clgemm.Device(device.cl_device, transfer=TRANSFER)
    w = random(SIDE, SIDE)
    with clgemm.device(own), clgemm.accel.enabled(0):
        for _ in range(8):
            random(SIDE + 1, SIDE) @ w
    assert advisor.sentences() == ()
    with clgemm.accel.enabled(0, profile=True):
        assert advisor.sentences() == ()
