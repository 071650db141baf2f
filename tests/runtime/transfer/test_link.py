"""Tests of one direction of the link."""

from __future__ import annotations

import threading

import numpy as np
import pyopencl as cl
import pytest
from staged import integers

from clgemm.runtime.transfer.crew import Copy
from clgemm.runtime.transfer.link import Link
from clgemm.runtime.transfer.pieces import Piece, Slot

COMPLETE = cl.command_execution_status.COMPLETE


@pytest.fixture
def slot(device):
    """Device memory for 24 elements."""
    slot = Slot()
    slot.buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 96)
    return slot


def link(device, is_up, is_slow=False):
    """A link with a queue of its own."""
    return Link([cl.CommandQueue(device.context)], [threading.RLock()], is_up, is_slow)


@pytest.mark.parametrize("is_slow", [False, True])
def test_there_and_back(device, slot, is_slow):
    """Pieces go to their places in the slot and come back in order."""
    up, down = link(device, True, is_slow), link(device, False, is_slow)
    sent = integers(3, 8)
    copies = [Copy.to_chunk(Piece((slot,), x, 8 * i, 8), x.copy(), i) for i, x in enumerate(sent)]
    events = [event for copy in copies for event in up.enqueue(copy, [[]])]
    up.flush()
    assert up
    for copy in copies:
        up.wait()
        assert up.is_over()
        assert up.take() is copy
    assert not up
    assert not up.is_over()
    chunks, results = np.zeros((3, 12), np.float32), np.zeros((3, 8), np.float32)
    for i in range(3):
        down.enqueue(Copy.from_chunk(Piece((slot,), results[i], 8 * i, 8), chunks[i]), [events])
    down.flush()
    while down:
        down.wait()
        assert down.take().tile is None
    np.testing.assert_array_equal(chunks[:, :8], sent)


def test_a_transfer_waits_for_what_comes_before_it(device, slot):
    """It is not over while that is not."""
    up, gate = link(device, True), cl.UserEvent(device.context)
    up.enqueue(Copy.to_chunk(Piece((slot,), integers(8), 0, 8), integers(8), 0), [[gate]])
    up.flush()
    assert not up.is_over()
    gate.set_status(COMPLETE)
    up.wait()
    assert up.is_over()


def test_a_piece_goes_to_all_its_slots(device):
    """It is over once it has arrived in each."""
    slots = Slot(0), Slot(1)
    for slot in slots:
        slot.buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 32)
    queues = [cl.CommandQueue(device.context) for _ in slots]
    up = Link(queues, [threading.RLock() for _ in slots], True, False)
    gate, sent = cl.UserEvent(device.context), integers(8)
    copy = Copy.to_chunk(Piece(slots, sent, 0, 8), sent.copy(), 0)
    events = up.enqueue(copy, [[], [gate]])
    up.flush()
    events[0].wait()
    assert not up.is_over()
    gate.set_status(COMPLETE)
    up.wait()
    assert up.take() is copy
    for slot, queue in zip(slots, queues, strict=True):
        found = np.zeros(8, np.float32)
        cl.enqueue_copy(queue, found, slot.buffer)
        np.testing.assert_array_equal(found, sent)
