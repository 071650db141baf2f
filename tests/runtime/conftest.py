"""Fixtures for the tests of the runtime."""

from __future__ import annotations

import pyopencl as cl
import pytest

import clgemm
from clgemm.runtime import programs


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
    monkeypatch.setattr(cl, "Buffer", counting("views", cl.Buffer))
    return counted


@pytest.fixture
def fresh(device):
    """Choose the device in a context of its own, without programs and scratch memory."""
    with clgemm.device(clgemm.Device(device.cl_device)) as fresh:
        yield fresh
