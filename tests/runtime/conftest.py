"""Fixtures for the tests of the runtime."""

from __future__ import annotations

import pyopencl as cl
import pytest

import clgemm
from clgemm.planning import planner
from clgemm.runtime import call_cache, operands, programs


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


@pytest.fixture
def planned(monkeypatch):
    """Return the list of problems that are planned during a test, with an empty call cache."""
    calls, plan = [], planner.plan_of

    def counting(*arguments):
        calls.append(arguments)
        return plan(*arguments)

    monkeypatch.setattr(planner, "plan_of", counting)
    monkeypatch.setattr(call_cache, "_calls", {})
    return calls
