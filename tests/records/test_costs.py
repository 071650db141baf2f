"""The measured constants of expected times: what is stored, and what is not trusted."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from clgemm.core.cache import forget_plans
from clgemm.core.costs import H200
from clgemm.records import costs
from clgemm.records.tuned import today

SLOW = replace(H200, multiply_adds=H200.multiply_adds / 7)


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    forget_plans()
    yield
    monkeypatch.undo()
    forget_plans()


def test_what_is_stored_is_found_by_device_and_runtime():
    """Each device and runtime has its own constants, with the date and the number of plans."""
    assert costs.measured_costs("A", "CUDA") is None
    costs.keep("A", "CUDA", SLOW, 60)
    costs.keep("B", "CUDA", H200, 30)
    assert costs.measured_costs("A", "CUDA") == (SLOW, 60, today())
    assert costs.measured_costs("B", "CUDA").costs == H200
    assert costs.measured_costs("A", "rusticl") is None


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
    costs.keep("A", "CUDA", SLOW, 60)
    held = json.loads(costs.file().read_text())
    held["devices"]["A, CUDA"]["costs"].update(change)
    costs.file().write_text(json.dumps(held))
    forget_plans()
    assert costs.measured_costs("A", "CUDA") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '{"format": 1}',
        '{"format": 2, "devices": {}}',
        '{"format": 1, "devices": 5}',
    ],
)
def test_a_broken_file_is_as_none(text):
    """And the next measurement replaces it."""
    costs.file().parent.mkdir()
    costs.file().write_text(text)
    assert costs.measured_costs("A", "CUDA") is None
    costs.keep("A", "CUDA", SLOW, 60)
    assert costs.measured_costs("A", "CUDA").costs == SLOW


def test_a_file_of_other_bytes_is_as_none():
    """Not even a text: products go on."""
    costs.file().parent.mkdir()
    costs.file().write_bytes(b'{"format": 1, "devices": {"\xff\xfe": 1}')
    assert costs.measured_costs("A", "CUDA") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    """The constants are lost, and nothing else."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "file"))
    costs.keep("A", "CUDA", SLOW, 60)
    assert costs.measured_costs("A", "CUDA") is None


def test_every_constant_is_stored():
    """Those that the model has."""
    costs.keep("A", "CUDA", SLOW, 60)
    (entry,) = json.loads(costs.file().read_text())["devices"].values()
    assert entry["costs"] == asdict(SLOW)
