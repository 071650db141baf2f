"""The default config of the blocked family."""

from __future__ import annotations

import pytest

from clgemm.kernels.blocked.defaults import register_config

REGISTERS = {16: 32, 8: 16, 4: 16}  # of AVX-512, AVX and SSE, by the floats of each


@pytest.mark.parametrize("fma", [False, True])
@pytest.mark.parametrize("width", REGISTERS)
def test_accumulators_leave_registers_for_the_operands(width, fma):
    """The registers hold the accumulators, a row of B and an element of A."""
    config = register_config(width, can_prefetch=True, fma=fma)
    needed = config.work_m * config.vectors + config.vectors + 1
    assert config.width == width
    assert needed <= REGISTERS[width]
    assert needed + fma * (width == 8) <= REGISTERS[width]  # Intel's compiler needs one more


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_blocks_do_not_depend_on_the_registers(width):
    """A block has about 4096 rows of A and 144 columns of B, whatever the panels are."""
    config = register_config(width, can_prefetch=False, fma=False)
    assert 4096 - config.tile_m < config.block_m * config.tile_m <= 4096
    assert 144 - config.tile_n < config.block_n * config.tile_n <= 144
    assert config.prefetch == config.prefetch_a == 0
