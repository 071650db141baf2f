"""Tests of the memory for copies of resident arrays."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pytest
from staged import integers, limited

import clgemm
from clgemm.runtime import regions
from clgemm.runtime.transfer import pipeline
from clgemm.runtime.workspace import Workspace

pytestmark = pytest.mark.usefixtures("small_pieces", "nothing_stays")

SMALL = 4 * 1000  # bytes of the arrays in tests of the limit


def test_the_array_used_least_recently_makes_room(device, sent):
    """Within the share of the memory; what was dropped is sent again when it is needed."""
    x = integers(10, 25)
    arrays = [integers(25, 40) for _ in range(3)]
    with clgemm.device(limited(device, 2 * SMALL)), clgemm.resident(*arrays):
        assert sum(sent) == 3 * SMALL  # the first has made room for the last
        for i, copied in ((1, 0), (2, 0), (1, 0), (0, 1), (1, 0), (2, 1), (0, 1)):
            sent.clear()
            np.testing.assert_array_equal(clgemm.dot(x, arrays[i]), x @ arrays[i])
            assert sum(sent) == x.nbytes + copied * SMALL, (i, copied)


def test_a_larger_share_makes_more_room(device, sent):
    """The largest of those that living objects ask for."""
    x = integers(10, 25)
    first, second = integers(25, 40), integers(25, 40)
    chosen = clgemm.device(limited(device, SMALL))
    with chosen, clgemm.resident(first), clgemm.resident(second, share=0.5):
        sent.clear()
        for w in (first, second, first):
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert sum(sent) == 3 * x.nbytes


def test_an_array_that_does_not_fit_is_sent_each_time(device, sent):
    """Its products are right, and others keep their copies."""
    x, small, large = integers(10, 25), integers(25, 40), integers(25, 41)
    with clgemm.device(limited(device, SMALL)), clgemm.resident(small, large) as held:
        assert sum(sent) == SMALL
        sent.clear()
        for w in (large, small, large):
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert sum(sent) == 3 * x.nbytes + 2 * large.nbytes
        assert held.uses == 1


@pytest.mark.parametrize("end", ["release", "drop"])
def test_a_copy_lives_as_long_as_a_product_that_uses_it(tiled, end, monkeypatch):
    """A release or an eviction in the middle changes nothing, and the memory is freed after it."""
    w, x = integers(90, 90), integers(90, 90)
    expected = x @ w
    go, begun, lent = threading.Event(), threading.Event(), pipeline.lend
    held = clgemm.resident(w)
    copies = [weakref.ref(copy) for copy in regions._copies[tiled.context].values()]

    def lend_and_tell(*arguments):
        loan = lent(*arguments)
        begun.set()
        assert go.wait(60)
        return loan

    def product():
        with clgemm.device(tiled):
            return clgemm.sgemm(1.0, x, w, order="C")

    monkeypatch.setattr(pipeline, "lend", lend_and_tell)
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(product)
        try:
            assert begun.wait(60)
            if end == "release":
                held.release()
            else:
                regions.make_room(tiled)
            assert not any(regions._copies.values())
            assert [copy() is None for copy in copies] == [False]
            assert not result.done()
        finally:
            go.set()
        np.testing.assert_array_equal(result.result(60), expected)
        del result
    held.release()
    gc.collect()
    assert [copy() for copy in copies] == [None]


def test_copies_make_room_for_a_product(tiled, monkeypatch):
    """A product that finds no memory drops them, and is made."""
    w, x = integers(60, 50), integers(40, 60)
    allocate, left = Workspace.allocate, [1]

    def refuse_once(space, size_bytes):
        if left:
            left.pop()
            raise cl.MemoryError("refused")
        return allocate(space, size_bytes)

    with clgemm.resident(w) as held:
        with monkeypatch.context() as patch:
            patch.setattr(Workspace, "allocate", refuse_once)
            np.testing.assert_array_equal(clgemm.dot(x, x.T), x @ x.T)
        assert left == []
        assert not any(regions._copies.values())
        np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert held.uses == 1


FORKED = """
import os, sys
from dataclasses import replace
import numpy as np
import clgemm
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.device import Device
from clgemm.runtime import regions

device = Device(clgemm.devices()[0].cl_device, transfer=TransferConfig(2**30, 2))
w = (np.arange(2500, dtype=np.float32) % 8).reshape(50, 50).copy()
with clgemm.device(device), clgemm.accel.enabled(threshold=0):
    held = clgemm.resident(w)
    assert (clgemm.dot(w, w) == clgemm.dot(w, w)).all() and held.uses == 4
    expected = w @ w
    uses = held.uses
    child = os.fork()
    if not child:
        assert not regions._copies and not w.flags.writeable
        assert (w @ w == expected).all()
        assert held.uses == uses
        with clgemm.resident(w):
            pass
        held.release()
        w[0, 0] = 7
        assert (w @ w != expected).any()
        os._exit(23)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 23
    assert (clgemm.dot(w, w) == expected).all() and held.uses == uses + 2
    held.release()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_no_copies():
    """Its products are NumPy's, and it may release; the parent's copies are as they were."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
