"""Tests of the order in which expected times put tiles, on GPUs that are not at hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from docs_scripts import docs_script

from clgemm.core.problem import Shape
from clgemm.kernels.tiled.family import TILED
from clgemm.kernels.tiled.plan import TiledConfig

SHAPE = Shape(1024, 1024, 1024)  # that CLBlast's tuner measures
SAMPLES = 300
# The tile (m, n, k), the work-items along m and n, the steps that are written out, and the floats
# of a load of A and of B which CLBlast's database has as the fastest on a device: facts from
# CNugteren/CLBlast, src/database/kernels/xgemm/xgemm_32.hpp, 2026. Each has the traits of a device
# of docs/offline_compile.py, with compute units of its own.
FASTEST = {
    "Radeon RX Vega": ("gfx900", 64, (64, 64, 32), (16, 16), 2, (2, 4)),
    "Instinct MI50": ("gfx900", 60, (64, 64, 32), (16, 16), 2, (4, 4)),
    "Radeon RX 5700 XT": ("gfx1030", 20, (64, 64, 16), (8, 8), 2, (2, 2)),
    "Radeon RX 6600 XT": ("gfx1030", 16, (128, 128, 32), (8, 16), 2, (4, 4)),
    "Radeon RX 6800 XT": ("gfx1030", 36, (128, 64, 16), (8, 8), 2, (4, 1)),
    "Radeon RX 7900 XTX": ("gfx1100", 48, (64, 32, 32), (16, 8), 2, (4, 4)),
    "Iris Xe": ("tgllp", 96, (64, 64, 16), (8, 8), 2, (1, 2)),
    "GeForce GTX 750 Ti": ("sm_50", 5, (128, 64, 16), (16, 8), 2, (8, 2)),
    "GeForce GTX 1080": ("sm_61", 20, (64, 64, 32), (8, 8), 2, (4, 8)),
    "GeForce RTX 2080 Ti": ("sm_75", 68, (128, 128, 32), (32, 8), 2, (2, 2)),
    "GeForce RTX 3090": ("sm_80", 82, (64, 64, 32), (16, 8), 2, (4, 4)),
}


@pytest.fixture(scope="module")
def targets():
    """Return the traits of docs/offline_compile.py's devices, by name."""
    script = docs_script("offline_compile")
    return {target.name: target.device().traits for target in script.TARGETS}


def samples(traits):
    """Return random tiles from the search space, as CLBlast has them: without NVIDIA's copies."""
    rng = random.Random(1)
    space = TILED.search_space(TILED.defaults(SHAPE, traits)[0], traits)
    found = set()
    while len(found) < SAMPLES:
        choice = space.make({name: rng.choice(values) for name, values in space.values.items()})
        if choice is not None and not any(TILED.problems(choice, traits.limits)):
            config = replace(choice.config, parts=1, asynchronous=False, registers=0)
            found.add(replace(config, buffers=min(config.buffers, 2)))
    return found


def test_what_others_measured_as_fastest_is_expected_to_be_fast(targets):
    """On most devices it is in the first tenth of random tiles, by expected times."""
    places = {}
    for name, (target, units, tile, items, unroll, widths) in FASTEST.items():
        traits = targets[target]
        traits = replace(traits, limits=replace(traits.limits, compute_units=units))
        work = tile[0] // items[0], tile[1] // items[1]
        config = TiledConfig(
            *(*tile, *work),
            *map(math.gcd, widths, work),
            grid_n=items[1],
            unroll=unroll,
            buffers=1,
            swizzle=8,
            fma=False,
            in_place=True,
        )
        config.require(traits.limits)
        time = TILED.estimate(SHAPE, config, traits)
        sooner = sum(TILED.estimate(SHAPE, each, traits) < time for each in samples(traits))
        places[name] = sooner / SAMPLES
    assert sum(place <= 0.1 for place in places.values()) >= len(places) - 2, places
