"""The test suites of other projects that run.py runs: those with matrix products."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

# A suite's name, and the modules or packages that pytest's --pyargs takes.
CORE = (
    *("einsum", "half", "mem_overlap", "multiarray", "multithreading", "numeric", "overrides"),
    *("protocols", "regression", "ufunc", "umath"),
)
SUITES: dict[str, tuple[str, ...]] = {
    "numpy.linalg": ("numpy.linalg",),
    "numpy._core": tuple(f"numpy._core.tests.test_{name}" for name in CORE),
    "numpy.lib": ("numpy.lib",),
    "numpy.ma": ("numpy.ma",),
    "numpy.matrixlib": ("numpy.matrixlib",),
    "numpy.polynomial": ("numpy.polynomial",),
    "sklearn.decomposition": ("sklearn.decomposition",),
    "sklearn.linear_model": ("sklearn.linear_model",),
    "sklearn.neural_network": ("sklearn.neural_network",),
    "sklearn.cluster": ("sklearn.cluster",),
    "sklearn.mixture": ("sklearn.mixture",),
    "sklearn.utils.extmath": ("sklearn.utils.tests.test_extmath",),
    "sklearn.metrics.pairwise": ("sklearn.metrics.tests.test_pairwise",),
    "scipy.linalg": ("scipy.linalg",),
    "scipy.signal": ("scipy.signal",),
    "scipy.sparse.linalg": ("scipy.sparse.linalg",),
}


def chosen(names: Iterable[str]) -> list[str]:
    """Return the suites with these names or inside them: "numpy" gives all of NumPy's.

    Raises
    ------
    ValueError
        If a name gives no suite.
    """
    found: list[str] = []
    for name in names:
        matching = [suite for suite in SUITES if f"{suite}.".startswith(f"{name}.")]
        if not matching:
            raise ValueError(f"{name!r} is not a suite; the suites are {', '.join(SUITES)}")
        found += [suite for suite in matching if suite not in found]
    return found


def targets(suite: str) -> list[str]:
    """Return the names of a suite's modules that the installed version has."""
    # NumPy 1.26 has numpy.core, and fewer modules of tests.
    old = "numpy._core" not in SUITES.get(suite, ()) and not _exists("numpy._core")
    modules = [m.replace("numpy._core", "numpy.core") if old else m for m in SUITES[suite]]
    return [module for module in modules if _exists(module)]


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
