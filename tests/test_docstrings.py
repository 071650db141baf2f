"""Runs the examples in the docstrings of the API reference."""

from __future__ import annotations

import doctest
import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import clgemm
import clgemm.testing

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference.rst"
NAMES = re.findall(
    r"^\.\. auto(?:function|class):: ([\w.]+)$", REFERENCE.read_text(encoding="utf-8"), re.M
)


class Shown(doctest.OutputChecker):
    """Compares an example's output where its docstring shows one."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


def readers_own() -> dict[str, Any]:
    """Return what the examples take for granted."""
    a = np.ones((24, 24), np.float32)
    result = a @ a
    own = {name: getattr(clgemm.testing, name) for name in clgemm.testing.__all__}
    own |= {"np": np, "clgemm": clgemm, "given": given, "a": a, "b": a, "x": a, "weights": a}
    own |= {"my_sgemm": clgemm.sgemm, "my_matmul": clgemm.matmul}
    return own | {"result": result, "exact": result.astype(np.float64)}


@pytest.fixture
def on_a_cluster():
    """A cluster in this process, and Dask's arrays."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    from dask import array as da

    a = da.ones((24, 24), np.float32, chunks=12)
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None) as client:
        yield {"client": client, "da": da, "a": a, "b": a}


def run(names: list[str], own: dict[str, Any]) -> int:
    """Run the examples of these names, and return how many there are."""
    finder, count = doctest.DocTestFinder(recurse=False), 0
    for name in names:
        for test in finder.find(pkgutil.resolve_name(name), name, module=False, globs=own):
            told: list[str] = []
            done = doctest.DocTestRunner(Shown()).run(test, out=told.append)
            assert done.failed == 0, "".join(told)
            count += done.attempted
    return count


def test_the_examples_run():
    """Each one runs, and prints what its docstring shows."""
    assert run([name for name in NAMES if ".dask." not in name], readers_own()) > 20


def test_the_examples_of_dask_run(on_a_cluster):
    """On a cluster in this process."""
    own = readers_own() | on_a_cluster
    assert run([name for name in NAMES if ".dask." in name], own) >= 4
