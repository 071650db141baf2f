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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk": 0}, "along_k needs a chunk of A in local memory, not chunk=0"),
        ({"along_k": False, "unaligned": True}, "unaligned needs along_k"),
        ({"chunk": 1000}, "chunk=1000 columns of A are no multiple of the 512"),
    ],
)
def test_broken_variants_say_why(changes, message):
    """Loads divide a chunk, and only columns begin anywhere."""
    variant = variant_of(SkinnyGpuVariant, replace(CONFIG, abreast=32, chunk=1024), along_k=True)
    assert not list(variant.problems())
    (problem,) = replace(variant, **changes).problems()
    assert problem.startswith(message)


def test_columns_that_begin_anywhere_take_more_local_memory():
    """Their last load meets elements of A behind those of a chunk."""
    aligned = variant_of(SkinnyGpuVariant, CONFIG, along_k=True)
    unaligned = replace(aligned, unaligned=True)
    more = unaligned.local_memory_bytes - aligned.local_memory_bytes
    assert more == 4 * CONFIG.rows * CONFIG.width
