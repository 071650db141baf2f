"""Tests of the sentence that explains why no product ran on the device."""

from __future__ import annotations

import pytest

from clgemm.accel.advice import why_nothing
from clgemm.accel.routing import FAILED, NO_DEVICE, SKINNY, UNMEASURED, UNOPENED
from clgemm.accel.tally import Report, Row


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "the program made no product with NumPy"),
        ([Row("dot", "size", 5, 0.1)], "its products are smaller than those that the device is"),
        ([Row("dot", "size", 5, 0.1), Row("dot", UNOPENED, 5, 0.2)], "its large products took 0.2"),
        ([Row("dot", "size", 5, None), Row("dot", SKINNY, 1, 0.2)], "sides too short"),
        ([Row("dot", UNMEASURED, 5, 3.0)], "it was too short to measure from which size on"),
        ([Row("dot", "size", 5, 9.0), Row("dot", NO_DEVICE, 5, 0.1)], "no OpenCL device works: "),
        ([Row("dot", FAILED, 5, 0.1)], "the device failed: the log says why"),
        ([Row("dot", "dtype", 5, 0.1)], "the device can make none of the program's products"),
    ],
)
def test_each_reason_has_its_sentence(rows, said):
    """The advice names the reason that took longest, and the options if a size decides."""
    sentence = why_nothing(Report("", tuple(rows)))
    assert sentence.startswith("Nothing was offloaded: ")
    assert said in sentence
    sizes = {"size", UNOPENED, SKINNY, UNMEASURED} & {row.reason for row in rows}
    decided = sizes and NO_DEVICE not in {row.reason for row in rows}
    assert ("--threshold" in sentence) == ("--measure" in sentence) == bool(decided)
    assert why_nothing(Report("GPU", (*rows, Row("dot", "", 1, 0.1)))) == ""
