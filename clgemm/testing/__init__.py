"""A kit for tests of matrix products: Hypothesis strategies, error bounds and assertions.

The strategies need the extra ``testing``. The pytest plugin is the module ``pytest_clgemm``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clgemm.testing.assertions import (
    assert_bitwise_repeatable,
    assert_exact_product,
    assert_product,
    error_bound,
    gamma,
)
from clgemm.testing.problems import DATA, EXACT, ArrayLayout, BlasCall, GemmProblem, Operand

if TYPE_CHECKING:
    from clgemm.testing.strategies import gemm_problems, layouts, matrices, sides, stacks

__all__ = [
    "DATA",
    "EXACT",
    "ArrayLayout",
    "BlasCall",
    "GemmProblem",
    "Operand",
    "assert_bitwise_repeatable",
    "assert_exact_product",
    "assert_product",
    "error_bound",
    "gamma",
    "gemm_problems",
    "layouts",
    "matrices",
    "sides",
    "stacks",
]


def __getattr__(name: str) -> Any:
    """Import the strategies at their first use: the rest works without Hypothesis."""
    if name in __all__:
        from clgemm.testing import strategies

        return getattr(strategies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
