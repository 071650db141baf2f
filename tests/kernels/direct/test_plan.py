"""Plans of the direct family."""

from __future__ import annotations

from planned import dense, make_scaling_plan

from clgemm.core.steps import Element
from clgemm.kernels.direct.config import DirectConfig


def test_scaling_reads_only_c():
    """``C = beta C`` names no buffer of A or B."""
    made = make_scaling_plan(dense(5, 6), DirectConfig(8, 8, 2, 2, False))
    assert made.steps[0].arguments["k"] == 0
    assert not {"a", "b"} & {
        x.slot if isinstance(x, Element) else x for x in made.steps[0].arguments.values()
    }
