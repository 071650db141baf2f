"""Defaults by kind of device, and the environment's word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clgemm
from clgemm import database
from clgemm.config import DirectConfig


@pytest.mark.parametrize("m", [1, 7, 31, 64, 200, 1000, 5000])
@pytest.mark.parametrize("n", [1, 9, 130, 2000])
@pytest.mark.parametrize("k", [1, 100, 3000])
def test_every_choice_fits_the_device(m, n, k, device):
    """Whatever the shape, the config keeps the device's limits."""
    choice = database.choose(device, m, n, k, 1)
    configs = [choice.config, *(choice.pack or ())]
    assert not [problem for config in configs for problem in config.problems_on(device.limits)]
    assert (choice.pack is None) == isinstance(choice.config, DirectConfig)


def test_the_threshold_must_be_a_number(monkeypatch):
    """Anything else is an error that names it."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", "lots")
    with pytest.raises(ValueError, match="CLGEMM_THRESHOLD='lots' is not a whole number"):
        clgemm.dot(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))


def test_the_default_crossover(device, monkeypatch):
    """Small and skinny products are the host's; large ones the device's, unless it is the CPU."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    assert database.host_is_faster(10, 10, 10, 1)
    assert database.host_is_faster(10_000, 1, 10_000, 1)
    assert database.host_is_faster(5000, 5000, 5000, 1) == (device.kind == "CPU")


def test_the_cache_folder_can_be_moved(monkeypatch):
    """By CLGEMM_CACHE_DIR."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", "/somewhere")
    assert database.program_cache_folder() == Path("/somewhere/programs")
    monkeypatch.delenv("CLGEMM_CACHE_DIR")
    assert database.cache_folder().name == "clgemm"
