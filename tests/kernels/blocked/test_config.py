"""The config of the blocked family: what its kernel is compiled with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clgemm.core.config import variant_of
from clgemm.kernels.blocked.config import BlockedVariant
from clgemm.kernels.blocked.defaults import register_config

CONFIG = register_config(16, can_prefetch=True, fma=False)


def test_blocks_are_no_macros():
    """The kernel gets its blocks as arguments: configs that differ in them share a program."""
    others = replace(CONFIG, block_m=1, block_n=2, block_k=3, aliasing=4)
    assert others.macros() == CONFIG.macros()
    assert replace(CONFIG, work_m=4).macros() != CONFIG.macros()


@pytest.mark.parametrize(("work_m", "rows", "columns"), [(8, 8, 16), (6, 2, 2), (16, 16, 16)])
def test_panels_are_packed_by_the_widest_vectors_that_divide_them(work_m, rows, columns):
    """The macros say how many rows and columns of A are transposed together."""
    macros = dict(replace(CONFIG, work_m=work_m).macros())
    assert (macros["VECTOR_ROWS_A"], macros["VECTOR_COLUMNS_A"]) == (rows, columns)
    assert CONFIG.tile_n % macros["VECTOR_ROWS_B"] == 0


def test_a_launch_knows_whether_it_packs():
    """Launches with packing and without are compiled apart."""
    packing, reading = (variant_of(BlockedVariant, CONFIG, packs=packs) for packs in (True, False))
    assert set(packing.macros()) ^ set(reading.macros()) == {("PACKS", 1), ("PACKS", 0)}
