"""Tests of exceptions, signals and nested products in the middle of a call."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from injection import outcomes

from clgemm.hardware.choice import devices

PLACES = 12  # of each case; tests/helpers/injection.py tries all
CASES = [
    ("deep", False, "KeyboardInterrupt"),
    ("deep", True, "MemoryError"),
    ("updated", False, "RecursionError"),
    ("through", False, "KeyboardInterrupt"),
    ("device", False, "UserWarning"),
    ("deep", False, "same"),
    ("strided", True, "matmul"),
    ("device", False, "sgemm"),
    ("device, out of order", False, "same"),
    ("through", False, "transfers"),
    ("at once", False, "KeyboardInterrupt"),
    ("at once", True, "MemoryError"),
    ("at once", False, "same"),
    ("in pieces", False, "KeyboardInterrupt"),
    ("in pieces", False, "transfers"),
]


@pytest.mark.parametrize(("kind", "cold", "injection"), CASES)
def test_no_failure_and_no_nested_product_does_harm(kind, cold, injection, device):
    """After an exception or a nested product at any place, all results are right."""
    if device is not devices()[0] or "Oclgrind" in device.name:
        pytest.skip("the child process uses the first device")
    count, found = outcomes(kind, cold, injection, PLACES)
    assert len(found) > min(count, PLACES) // 2
    assert not [each for each in found if each[0].startswith("!")]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_a_process_that_is_interrupted_ends_as_one(device):
    """After Ctrl-C in a long product, Python reports KeyboardInterrupt and ends as usual."""
    script = """
import os, signal, threading
import numpy as np
import clgemm
from clgemm.runtime import execute

execute.LONG_WORK = execute.LONG_IF_SLOW = 0
a = np.ones((64, 64), "f")
clgemm.sgemm(1.0, a, a)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
while True:
    assert (clgemm.sgemm(1.0, a, a) == 64).all()
"""
    if device is not devices()[0]:
        pytest.skip("the child process uses the first device")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr
