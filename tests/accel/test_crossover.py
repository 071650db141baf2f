"""Tests of the measurement of crossovers."""

from __future__ import annotations

import numpy as np
import pytest

import clgemm
from clgemm import products
from clgemm.accel import session
from clgemm.accel.crossover import measure
from clgemm.planning import crossovers, selection
from clgemm.runtime import call_cache


def test_measuring(device, monkeypatch, tmp_path):
    """measure finds a crossover or None for each kind of product, stores them and applies them."""
    from clgemm.accel import crossover

    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(crossover, "HOST_SECONDS", 0.0)
    monkeypatch.setattr(crossover, "TURNS", 1)
    monkeypatch.setattr(crossover, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(crossovers, "LEAST_WORK", 40**3)
    monkeypatch.setattr(crossovers, "BANDS", (8, 16, 40))
    monkeypatch.setattr(crossover, "MARGIN", 1e9)  # the device wins whatever it takes
    crossovers.forget()
    assert crossovers.measured(device) is None
    found = measure(device, session.host_matmul())
    assert set(found) == set(crossovers.kinds())
    assert all(least and least >= 40**3 / 4 for least in found.values())
    assert crossovers.measured(device).least == found
    assert selection.smallest_crossover() == min(found.values())
    assert selection.host_is_faster(7, 7, 7, 1)
    assert not selection.host_is_faster(64, 64, 64, 1)
    monkeypatch.setattr(crossover, "MARGIN", 0.0)
    monkeypatch.setattr(selection, "SMALLEST_CROSSOVER", 1000)
    x = np.ones((64, 64), np.float32)
    clgemm.dot(x, x)
    assert set(measure(device, session.host_matmul()).values()) == {None}
    assert selection.smallest_crossover() == selection.SMALLEST_CROSSOVER
    assert selection.host_is_faster(4096, 4096, 4096, 1)
    with monkeypatch.context() as patch:
        patch.setattr(products, "multiply", lambda *_, **__: pytest.fail("went to the device"))
        patch.setattr(call_cache, "execute", lambda *_: pytest.fail("was repeated from the cache"))
        clgemm.dot(x, x)
    crossovers.forget()
