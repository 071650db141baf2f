"""Fixtures for the tests of products that several devices share."""

from __future__ import annotations

import pytest

from clgemm.planning import tiles
from clgemm.runtime.several import spread, standing


@pytest.fixture
def small_spread(monkeypatch):
    """Small products are spread too, and nothing is known of any device."""
    monkeypatch.setattr(tiles, "LEAST_IN_PLACE", 1)
    monkeypatch.setattr(tiles, "LEAST_THROUGH_TRANSFERS", 1)
    monkeypatch.setattr(tiles, "LEAST_SIDE", 32)
    monkeypatch.setattr(tiles, "GRAIN", 32)
    monkeypatch.setattr(spread, "compete", lambda _: False)  # all are the same device
    monkeypatch.setattr(spread, "gains", lambda *_: True)
    for known in (standing._rates, standing._failed):
        known.clear()
