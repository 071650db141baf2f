"""Tests of call signatures: which calls share a plan."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from whole_numbers import got, whole

import clgemm
from clgemm.runtime import call_cache, launch


def test_every_layout_has_a_signature_of_its_own(planned, placed):
    """Each layout of operands is planned once and multiplied right: orders, batches, vectors."""
    a, b, stack = whole(40, 40), whole(40, 40), whole(3, 40, 40)
    cases = [
        (a, b), (a, np.asfortranarray(b)), (np.asfortranarray(a), b), (stack, b), (a, stack),
        (a[0].copy(), b), (a, b[0].copy()),
    ]  # fmt: skip
    for _ in range(2):
        for x, y in cases:
            np.testing.assert_array_equal(got(clgemm.matmul(placed(x), placed(y))), x @ y)
    assert len(planned) == len(cases)


def test_an_offset_is_the_calls_own(planned, device):
    """Views that begin at other elements with the same alignment share a signature."""
    x, y = whole(6, 32, 48), whole(48, 16)
    on_device, b = (cl_array.to_device(device.queue, z) for z in (x, y))
    for i in (0, 3, 1):
        np.testing.assert_array_equal(clgemm.matmul(on_device[i], b).get(), x[i] @ y)
    assert len(planned) == 1


def test_precision_belongs_to_the_signature(planned, placed, monkeypatch):
    """Each call looks at the precision of the block and of the environment."""
    a, b = placed(whole(16, 16)), placed(whole(16, 16))
    clgemm.matmul(a, b)
    with clgemm.precision("strict"):
        clgemm.matmul(a, b)
    assert [problem.precision for _, problem in planned] == ["float32", "strict"]
    monkeypatch.setenv("CLGEMM_PRECISION", "half")
    with pytest.raises(ValueError, match="'half'"):
        clgemm.matmul(a, b)


def test_another_device_in_mid_call_is_not_kept_for_the_first(planned, device, monkeypatch):
    """A call is not cached if a signal handler chose another device after its signature."""
    if not device.shares_host_memory:
        pytest.skip("what goes through transfers is not kept")
    other = clgemm.Device(device.cl_device)
    multiply = launch.multiply

    def choosing(*arguments, **keywords):
        with clgemm.device(other):
            return multiply(*arguments, **keywords)

    monkeypatch.setattr(launch, "multiply", choosing)
    a, b = whole(16, 16), whole(16, 16)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert not call_cache._calls
