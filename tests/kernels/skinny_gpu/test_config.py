"""The config of the skinny_gpu family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS

from clgemm.core.config import variant_of
from clgemm.kernels.skinny_gpu.config import MOST_OF_A, SkinnyGpuVariant
from clgemm.kernels.skinny_gpu.defaults import skinny_lanes_config

CONFIG = skinny_lanes_config(2, LIMITS)


def test_a_strip_lies_along_the_lanes():
    """With contiguous columns, the work-items that share a column are the ones along k."""
    along_n = variant_of(SkinnyGpuVariant, CONFIG)
    along_k = variant_of(SkinnyGpuVariant, CONFIG, along_k=True)
    assert along_n.strip == CONFIG.abreast * CONFIG.width
    assert along_k.strip == CONFIG.group // CONFIG.abreast


@pytest.mark.parametrize(("extra", "fits"), [(0, True), (4, False)])
def test_work_items_copy_few_floats_of_a(extra, fits):
    """Each copies at most 16 floats of A to local memory."""
    most = MOST_OF_A * CONFIG.group // CONFIG.rows
    assert (not list(replace(CONFIG, chunk=most + extra).problems())) == fits


def test_only_columns_that_are_read_with_a_in_place_begin_anywhere():
    """Neither rows of B nor columns with A in local memory have single loads before the vectors."""
    in_place = replace(CONFIG, chunk=0)
    options = {"along_k": True, "unaligned": True}
    assert not list(variant_of(SkinnyGpuVariant, in_place, **options).problems())
    for config, along_k in ((CONFIG, True), (in_place, False)):
        (problem,) = variant_of(
            SkinnyGpuVariant, config, **options | {"along_k": along_k}
        ).problems()
        assert problem.startswith("unaligned needs along_k")
