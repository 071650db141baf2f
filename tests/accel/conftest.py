"""Fixtures for the tests of accelerated NumPy."""

from __future__ import annotations

import pyopencl as cl
import pyopencl.array
import pytest
from accelerated import forget_products, numpy_contents

from clgemm.accel import session, uninstall
from clgemm.hardware import trial
from clgemm.side import preparation


@pytest.fixture(autouse=True)
def numpy_as_it_was():
    """Assert that every test leaves NumPy with the same objects, pointers and flags."""
    before = numpy_contents()
    yield
    uninstall()
    session._replacements.cache_clear()  # a failure in one test pauses no device in the next
    assert numpy_contents() == before
    assert not hasattr(cl.array.Array, "__matmul__")


@pytest.fixture
def ready(device, monkeypatch):
    """Let measured times decide, with an open device; return the requests to child processes.

    No process gets these.
    """
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    forget_products()
    assert preparation.state.open()
    requests, request = [], trial.request

    def recorded(name, is_urgent=False, **arguments):
        if name != "product":
            return request(name, is_urgent, **arguments)
        requests.append(arguments)
        return -len(requests)  # no answer has such a number

    monkeypatch.setattr(trial, "start", lambda *_, **__: True)
    monkeypatch.setattr(trial, "request", recorded)
    yield requests
    forget_products()
