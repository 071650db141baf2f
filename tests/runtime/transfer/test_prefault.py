"""Tests of giving pages to memory before it is written."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from staged import TINY, integers

import clgemm
from clgemm.hardware.device import Device
from clgemm.runtime.transfer import prefault

pytestmark = pytest.mark.usefixtures("small_pieces")


@pytest.mark.parametrize("by_populating", [True, False])
def test_prefaulted_memory_can_be_written(by_populating):
    """Whole pages and parts of them at both ends; what lies around keeps its contents."""
    array = np.full(5 * prefault.FLOATS_PER_PAGE, 3, np.float32)
    inside = slice(7, -9)
    prefault.prefault(array[inside], by_populating)
    assert (array[:7] == 3).all()
    assert (array[-9:] == 3).all()
    array[inside] = 4
    assert (array[inside] == 4).all()


def test_a_late_prefault_does_not_spoil_a_result(device, monkeypatch):
    """The result comes after all that writes to its memory."""
    touch = prefault.prefault
    config = replace(TINY, prefault="touch")
    gate = threading.Event()
    threading.Timer(0.1, gate.set).start()

    def late(memory, by_populating):
        gate.wait(10)
        touch(memory, by_populating)

    monkeypatch.setattr("clgemm.runtime.transfer.staging.prefault", late)
    with clgemm.device(Device(device.cl_device, transfer=config)):
        a = integers(200, 200)
        np.testing.assert_array_equal(clgemm.dot(a, a), a @ a)
