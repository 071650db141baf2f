"""Fixtures of the tests of tensor cores."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest

from clgemm.hardware.choice import devices
from clgemm.kernels.tensor_core import plan as tensor_plan
from clgemm.kernels.tensor_core.plan import TILE_BYTES
from clgemm.planning import planner


@functools.cache
def _is_any_able() -> bool:
    return any(planner.instructions_of(each) == "wgmma" for each in devices())


def pytest_pycollect_makeitem(obj: Any) -> list[pytest.Item] | None:
    """Leave out the tests that need the instructions if no device has them: they are thousands."""
    needs_able = inspect.isfunction(obj) and "able" in inspect.signature(obj).parameters
    return [] if needs_able and not _is_any_able() else None


@pytest.fixture
def small_blocks(monkeypatch):
    """Plans that cut everything: 300 rows or columns, 512 of k at a time; for tf32, too, 256."""
    monkeypatch.setattr(tensor_plan, "SCRATCH_BYTES", 2 * 3 * 8 * (TILE_BYTES + 4))
    monkeypatch.setattr(tensor_plan, "SMALLEST_DEPTH", 256)


@pytest.fixture
def able(device):
    """A device with the instructions."""
    if planner.instructions_of(device) != "wgmma":
        pytest.skip(f"{device.name} has no wgmma: compute capability 9.0 only")
    return device
