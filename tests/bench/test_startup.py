"""Tests of the measurement of cold starts."""

from __future__ import annotations

from pathlib import Path

from clgemm.bench import startup
from clgemm.bench.rounds import environment


def test_caches_are_kept_apart(tmp_path):
    """Each cache of compiled programs is inside the given folder."""
    variables = startup.cache_variables(tmp_path)
    assert {"CLGEMM_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"} <= set(variables)
    assert all(Path(value).is_relative_to(tmp_path) for value in variables.values())


def test_a_failing_cold_start_is_said():
    """A cold start that fails reports the process's last line of errors."""
    kinds = startup.cold_start(["X", "Y", "0"], environment(1), 1)
    assert "this process has no device X of Y" in kinds["empty"]["failure"]
    assert kinds["NumPy"]["first_s"] > 0
