"""Fixtures for the tests of accelerated NumPy."""

from __future__ import annotations

import pyopencl as cl
import pyopencl.array
import pytest
from accelerated import places_of_numpy

from clgemm.accel import uninstall


@pytest.fixture(autouse=True)
def numpy_as_it_was():
    """Assert that every test leaves NumPy with the same objects, pointers and flags."""
    before = places_of_numpy()
    yield
    uninstall()
    assert places_of_numpy() == before
    assert not hasattr(cl.array.Array, "__matmul__")
