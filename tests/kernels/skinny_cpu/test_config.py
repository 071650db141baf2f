"""The config of the skinny_cpu family."""

from __future__ import annotations

from dataclasses import replace

from clgemm.kernels.pack.plan import PackConfig
from clgemm.kernels.skinny_cpu.config import SkinnyCpuConfig
from clgemm.kernels.skinny_cpu.defaults import skinny_config
from clgemm.kernels.split_k.plan import ReduceConfig


def test_a_strip_is_whole_vectors():
    """The constraint names the span of the vectors that a strip must be a multiple of."""
    config = skinny_config(1, 8, True)
    assert not list(replace(config, strip=config.vectors * 8).problems())
    (problem,) = replace(config, strip=config.vectors * 8 + 8).problems()
    assert problem == "strip=72 is not a multiple of vectors x width = 64"


def test_its_products_may_copy_and_add_up():
    """The operand of few rows may be copied first, and slices of k are added up."""
    assert SkinnyCpuConfig.companions == (PackConfig, ReduceConfig)
    assert skinny_config(1, 8, True).items == 1
