"""Tests of what the benchmark runs instead of a comparison: whole processes and other dtypes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clgemm.__main__ import main
from clgemm.bench import other_products, programs
from clgemm.hardware.choice import get_device


@pytest.fixture
def few_runs(monkeypatch):
    """One process of each kind, and one round of tiny calls."""
    for name in ("RUNS", "WARM_RUNS", "CALLS", "ROUNDS"):
        monkeypatch.setattr(programs, name, 1)


def test_new_processes_and_tiny_calls_are_timed(few_runs, monkeypatch, tmp_path, capsys):
    """``--startup`` prints and writes the times of programs, cold and warm, and of tiny calls."""
    monkeypatch.setattr(programs, "FIRST_PRODUCTS", {"NumPy": programs.FIRST_PRODUCTS["NumPy"]})
    file = tmp_path / "s.json"
    assert main(["bench", "--startup", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "first product of 2048 x 2048 NumPy arrays" in printed
    assert "Tiny products" in printed
    found = json.loads(file.read_text())
    assert set(found["first products"]["NumPy"]) == {"cold", "warm"}
    for numpy_s, all_s, product_s in found["first products"]["NumPy"].values():
        assert 0 < numpy_s <= all_s <= product_s < 100
    assert [row["n"] for row in found["tiny calls"]] == list(programs.TINY)
    assert all(ns > 0 for row in found["tiny calls"] for ns in row["ns_per_call"].values())


def test_a_program_that_fails_is_said(few_runs, monkeypatch, capsys):
    """Its last line of errors is shown, and it has no figures."""
    monkeypatch.setattr(programs, "FIRST_PRODUCTS", {"bad": "raise RuntimeError('planted')"})
    assert main(["bench", "--startup"]) == 0
    printed = capsys.readouterr()
    assert "RuntimeError: planted" in printed.err
    assert "nan" in printed.out


def test_caches_are_kept_apart(tmp_path):
    """Each cache of compiled programs has its folder inside the given one."""
    variables = programs.made_folders(tmp_path)
    assert {"CLGEMM_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"} <= set(variables)
    folders = list(map(Path, variables.values()))
    assert all(folder.is_dir() and folder.parent == tmp_path for folder in folders)
    assert len(set(folders)) == len(folders)


@pytest.fixture
def short_turns(monkeypatch):
    """One turn, without a pause."""
    for name in ("TURNS", "IDLE_S", "TURN_S"):
        monkeypatch.setattr(other_products, name, 1 if name == "TURNS" else 0.0)


def test_other_dtypes_are_timed_and_checked(short_turns, monkeypatch, tmp_path, capsys):
    """``--dtypes`` has a row for each dtype and size, and fails if a result is wrong."""
    if not get_device().limits.has_vectors:
        pytest.skip("another list of dtypes")
    monkeypatch.setattr(other_products, "DTYPES", ("int16", "bool"))
    file = tmp_path / "d.json"
    assert main(["bench", "--dtypes", "9", "16", "--json", str(file)]) == 0
    found = json.loads(file.read_text())["products"]
    assert [(row["dtype"], row["n"]) for row in found] == [
        *(("int16", 9), ("int16", 16), ("bool", 9), ("bool", 16))
    ]
    assert all(row["ms"] > 0 and row["numpy_ms"] > 0 for row in found)
    monkeypatch.setattr(other_products.exact, "expected", lambda *_: -1)
    assert main(["bench", "--dtypes", "9"]) == 1
    assert "2 results are wrong" in capsys.readouterr().err


def test_products_by_own_transposes_are_timed_and_checked(
    short_turns, monkeypatch, tmp_path, capsys
):
    """``--syrk`` has a row for each shape and place, and fails if a result is wrong."""
    file = tmp_path / "s.json"
    assert main(["bench", "--syrk", "30", "40x20", "--json", str(file)]) == 0
    found = [row for row in json.loads(file.read_text())["products"] if row["arrays"] == "host"]
    assert [(row["n"], row["k"]) for row in found] == [(30, 30), (40, 20)]
    for row in found:
        assert {"x @ y", "x @ x.T", "ssyrk", "NumPy", "SciPy"} <= set(row["ms"])
        assert row["ratios"].keys() >= {"x @ y / x @ x.T", "NumPy / x @ x.T", "SciPy / ssyrk"}
        assert all(each > 0 for each in (*row["ms"].values(), *row["ratios"].values()))
    monkeypatch.setattr(other_products, "gamma", lambda _: 0.0)
    assert main(["bench", "--syrk", "30"]) == 1
    assert "results are wrong" in capsys.readouterr().err
