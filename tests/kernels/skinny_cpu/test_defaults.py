"""The default config of the skinny_cpu family."""

from __future__ import annotations

import pytest

from clgemm.kernels.skinny_cpu.defaults import skinny_config


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_sums_fit_the_registers(width):
    """A single row has eight vectors of sums, several rows sixteen."""
    one, several = (skinny_config(rows, width, True) for rows in (1, 4))
    assert one.rows * one.vectors == 8
    assert several.rows * several.vectors == 16
    assert one.strip == several.strip == 64 * width


def test_there_are_two_configs():
    """All numbers of rows above one share a config."""
    assert len({skinny_config(rows, 8, False) for rows in range(1, 9)}) == 2
    assert skinny_config(2, 8, False).prefetch == 0
