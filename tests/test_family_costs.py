"""Tests of docs/family_costs.py, on what it has measured: no GPU is needed."""

from __future__ import annotations

import dataclasses
import json

import pytest
from docs_scripts import DOCS, docs_script


@pytest.fixture(scope="module")
def script():
    """Return the script."""
    return docs_script("family_costs")


@pytest.mark.parametrize("name", ["h200_squares", "h100_copies", "cpu_pocl_short"])
def test_files_of_any_age_are_read(script, name):
    """Fields that are gone since are left out; the plans are still found, with expected times."""
    report = script.read(DOCS / "measured" / f"families_{name}.json.gz")
    report["rows"] = report["rows"][:3]
    traits = script.traits_of(report)
    assert hash(traits)
    limits = json.loads(json.dumps(dataclasses.asdict(traits.limits)))
    del limits["costs"], limits["cpu_costs"]  # as `measure` writes them
    assert script.traits_of(report | {"limits": limits}) == traits
    assert traits.is_nvidia == name.startswith("h")
    data = script.data_of(report)
    assert data.timed
    assert min(data.expected(traits.limits.cpu_costs if traits.has_vectors else script.H200)) > 0
