"""The configs of the outer_product family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, dense, make_plan

from clgemm.core.config import Launch
from clgemm.kernels.outer_product.config import DEPTHS, OuterProductConfig, OuterProductVariant

CONFIG = OuterProductConfig(items_m=4, items_n=32, work_m=16, work_n=4, fma=True)
VARIANT = OuterProductVariant(items_m=4, items_n=32, work_m=16, work_n=4, fma=True, depth=8)


def test_every_field_is_a_macro():
    """The kernel is compiled for one config and one depth."""
    assert dict(VARIANT.macros()) == {
        "ITEMS_M": 4, "ITEMS_N": 32, "WORK_M": 16, "WORK_N": 4, "FMA": 1, "DEPTH": 8,
        "ALIGN": 1,
    }  # fmt: skip
    assert (VARIANT.items, VARIANT.tile) == (128, (64, 128))


def test_rows_of_a_lie_in_local_memory():
    """A config takes the local memory of its deepest variant."""
    assert VARIANT.local_memory_bytes == 4 * 64 * 8
    assert CONFIG.local_memory_bytes == 4 * 64 * DEPTHS[-1]
    assert list(CONFIG.problems_on(replace(LIMITS, local_memory_bytes=1024)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"items_m": 0}, "items_m=0 is less than 1"),
        ({"depth": 3}, r"depth=3 is not one of \(1, 2, 4, 8, 16\)"),
        ({"align": 6}, "align=6 is not a power of two"),
        ({"work_n": 16}, "depth=8 times work_n=16 exceeds 64"),
    ],
)
def test_broken_configs_say_why(changes, message):
    """Each problem names the values."""
    with pytest.raises(ValueError, match=message):
        replace(VARIANT, **changes).require(LIMITS)


def microseconds(m, n, k):
    """The expected time of one launch."""
    (step,) = make_plan(dense(m, k), dense(k, n), dense(m, n), CONFIG, None, LIMITS).steps
    return step.config.microseconds(Launch(step.groups, step.arguments, LIMITS))


def test_the_writing_of_c_takes_the_time():
    """Of many elements, four times as many take four times as long."""
    assert 3.5 < microseconds(8192, 8192, 1) / microseconds(4096, 4096, 1) < 4.5
    assert microseconds(4096, 4096, 8) > microseconds(4096, 4096, 1)
