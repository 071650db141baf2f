"""Executes the example notebook."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebooks import execute

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "pixels_in_common.ipynb"


def outputs(notebook):
    """Return what each cell shows, of tables the HTML. How often it is told of varies."""
    shown = [cell.get("outputs", []) for cell in notebook.cells]
    return ["".join(x.get("text") or x["data"]["text/html"] for x in each) for each in shown]


def test_the_notebook_runs(tmp_path, monkeypatch):
    """It shows what is committed, but for the times: products that agree and two tables."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("matplotlib")
    committed = nbformat.read(NOTEBOOK, as_version=4)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setenv("CLGEMM_PREPARE", "never")  # no child processes beside other tests
    execute(notebook, tmp_path, monkeypatch, timeout=120)
    for old, new in zip(outputs(committed), outputs(notebook), strict=True):
        assert old.count("<tr>") == new.count("<tr>")
        assert old.count("\n") == new.count("\n")
    text = "".join(outputs(notebook))
    assert text.count("the same numbers: True") == 2
    assert "correlation with the pixel 1 to the right: 0.97" in text
    assert "<td>matmul</td><td>1</td><td>device</td>" in text
