"""Fixtures for the tests of the runtime."""

from __future__ import annotations

import threading

import pyopencl as cl
import pytest

import clgemm
from clgemm.runtime import programs


@pytest.fixture
def counts(monkeypatch):
    """Count the programs that this thread builds, and the kernels and buffers that it creates."""
    thread = threading.get_ident()
    counted = {"programs": 0, "kernels": 0, "views": 0, "scratch": 0}

    def counting(name, original):
        def call(*arguments, **keywords):
            counted[name] += threading.get_ident() == thread
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
