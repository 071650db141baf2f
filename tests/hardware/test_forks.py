"""Tests of OpenCL in forked processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A forked child process multiplies on its parent's queue and arrays, or on its own. An alarm ends
# the child if it hangs.
FORKING = """
import os, signal, sys
import numpy as np, pyopencl as cl, pyopencl.array, clgemm
before, call = sys.argv[1:]
x, out = np.ones((64, 64), np.float32), np.empty((64, 64), np.float32)
def opened():
    context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
    queue = cl.CommandQueue(context)
    return queue, cl.array.to_device(queue, x)
if before != "nothing":
    queue, y = opened()
if before == "a product":
    clgemm.matmul(y, y).get()
    clgemm.sgemm(1.0, x, x, queue=queue)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(60)
if before == "nothing":
    queue, y = opened()
try:
    result = {
        "queue": lambda: clgemm.sgemm(1.0, x, x, queue=queue),
        "sgemm": lambda: clgemm.sgemm(1.0, y, y).get(),
        "matmul": lambda: clgemm.matmul(y, y).get(),
        "dot": lambda: clgemm.dot(y, y).get(),
        "inner": lambda: clgemm.inner(y, y).get(),
        "tensordot": lambda: clgemm.tensordot(y, y, 1).get(),
        "multi_dot": lambda: clgemm.multi_dot([y, y, y]).get() / 64,
    }[call]()
except RuntimeError as error:
    assert "forked" in str(error), error
    assert before != "nothing"
    os._exit(10)
assert (result == 64).all()
os._exit(20)
"""


CALLS = ["queue", "sgemm", "matmul", "dot", "inner", "tensordot", "multi_dot"]


# A device that only accelerated NumPy refers to, which a forked child gives up.
DROPPED = """
import os, weakref
import numpy as np, clgemm, clgemm.accel
own = clgemm.Device(clgemm.get_device().cl_device)
dropped, x = weakref.ref(own), np.ones((64, 64), np.float32)
with clgemm.accel.enabled(threshold=0, device=own):
    assert (np.dot(x, x) == 64).all()
own = None
living = dropped() is not None
child = os.fork()
if not child:
    os._exit(0 if dropped() is not None else 1)
assert living
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
"""


def ends(*command):
    """Return how a program ends, and what it prints about errors."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", *command]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not fork so")
def test_a_forked_child_releases_no_device():
    """NVIDIA's driver crashes there."""
    status, errors = ends(DROPPED)
    assert status == 0, errors


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not fork so")
@pytest.mark.parametrize(
    ("before", "call"),
    [("nothing", "queue"), ("nothing", "matmul"), ("arrays", "queue")]
    + [("arrays", "matmul")]
    + [("a product", call) for call in CALLS],
)
def test_a_forked_child_is_told_not_to_use_its_parents_device(before, call):
    """A forked child's product on its parent's queue or arrays raises; on its own it works."""
    status, errors = ends(FORKING, before, call)
    assert status == (20 if before == "nothing" else 10), errors
