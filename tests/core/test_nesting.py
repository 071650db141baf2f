"""Tests of products that start inside another product of the same thread."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from whole_numbers import whole

import clgemm
from clgemm.core.nesting import NestedCallError, non_reentrant
from clgemm.runtime import programs


class Stop(BaseException):
    """The exception of the tests' signal handlers."""


def test_a_product_while_programs_are_built(device, monkeypatch):
    """In a nested call NumPy makes host products; sgemm and device arrays raise an error."""
    a, b = whole(70, 60), whole(60, 50)
    fresh = clgemm.Device(device.cl_device)
    placed = [cl_array.to_device(fresh.queue, x) for x in (a, b)]
    build, errors, results = programs.build, [], []

    def building(*arguments):
        results.extend((clgemm.matmul(a, b), clgemm.dot(a, b)))
        results.extend((clgemm.tensordot(a, b, 1), clgemm.inner(a, b.T)))
        for call in (lambda: clgemm.sgemm(1.0, a, b), lambda: clgemm.matmul(*placed)):
            with pytest.raises(RuntimeError, match="while another one is being prepared") as caught:
                call()
            errors.append(caught.type)
        return build(*arguments)

    monkeypatch.setattr(programs, "build", building)
    with clgemm.device(fresh):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert errors
    assert set(errors) == {NestedCallError}
    for result in results:
        np.testing.assert_array_equal(result, a @ b)


def test_a_refusal_outlives_no_call():
    """A non-reentrant function can be called again after an exception inside it."""

    @non_reentrant
    def enter(action):
        return action()

    def interrupt():
        raise Stop

    with pytest.raises(Stop) as kept:  # and with it the frames
        enter(interrupt)
    assert enter(lambda: 1) == 1
    assert kept.type is Stop
    with pytest.raises(NestedCallError):
        enter(lambda: enter(lambda: 1))
