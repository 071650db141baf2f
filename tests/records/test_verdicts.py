"""The measured constants of expected times: what is stored, and what is not trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clgemm.core.cache import recall, remember
from clgemm.core.costs import H200
from clgemm.records import verdicts
from clgemm.records.tuned import today

SLOW = replace(H200, multiply_adds=H200.multiply_adds / 7)


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))


def test_what_is_stored_is_found_by_device_and_runtime():
    """Each device and runtime has its own constants, with the date and the number of plans."""
    assert verdicts.measured_costs("A", "CUDA") is None
    verdicts.keep_costs("A", "CUDA", SLOW, 60)
    verdicts.keep_costs("B", "CUDA", H200, 30)
    assert verdicts.measured_costs("A", "CUDA") == (SLOW, 60, today())
    assert verdicts.measured_costs("B", "CUDA").costs == H200
    assert verdicts.measured_costs("A", "rusticl") is None


@pytest.mark.parametrize(
    "change",
    [
        {"multiply_adds": "fast"},
        {"multiply_adds": float("nan")},
        {"multiply_adds": 0.0},
        {"multiply_adds": -1.0},
        {"multiply_adds": 1e30},
        {"multiply_adds": 10**400},
        {"of another version": 1.0},
    ],
)
def test_bad_constants_are_not_used(change):
    """A user may edit the file; another version has other constants."""
    key = verdicts._costs_key("A", "CUDA")
    verdicts.keep_costs("A", "CUDA", SLOW, 60)
    held = recall(key)
    held["costs"].update(change)
    remember(key, held)
    assert verdicts.measured_costs("A", "CUDA") is None


@pytest.mark.parametrize("entry", [5, [], {}, {"costs": 5}, {"costs": {}, "plans": 1, "date": ""}])
def test_what_holds_no_constants_is_as_none(entry):
    """And the next measurement replaces it."""
    remember(verdicts._costs_key("A", "CUDA"), entry)
    assert verdicts.measured_costs("A", "CUDA") is None
    verdicts.keep_costs("A", "CUDA", SLOW, 60)
    assert verdicts.measured_costs("A", "CUDA").costs == SLOW


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    """The constants are lost, and nothing else."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "file"))
    verdicts.keep_costs("A", "CUDA", SLOW, 60)
    assert verdicts.measured_costs("A", "CUDA") is None
