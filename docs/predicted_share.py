"""Predict the share of a GPU's peak that the tiled family reaches, without the GPU.

    python docs/predicted_share.py [--compilers FOLDER] [--targets NAME ...]
    python docs/predicted_share.py --measure FILE
    python docs/predicted_share.py --test FILE [--compilers FOLDER]

The first form compiles what the planner chooses for a float32 product of 4096 x 4096 x 4096 on each
of the GPUs of offline_compile.py, disassembles it, and writes the predicted shares to
docs/measured/predicted_share.json. It needs the compilers that offline_compile.py names, and
``pip install --target FOLDER nvidia-cuda-nvdisasm nvidia-cuda-nvcc``: the newest, of which the
assembler is for the PTX of new drivers alone.

``--measure`` draws configs at random and measures them on the GPU at hand. ``--test`` predicts the
same configs and compares, from the PTX of the GPU's own driver and from clang's.

The model plays the loop over tiles on one compute unit, instruction by instruction. Each wave (of
NVIDIA's GPUs a warp, of Intel's a thread) executes its instructions in order. One waits until

- the values that it reads are there: an operation's latency has passed;
- its unit is free. Each scheduler has one for arithmetic. The compute unit has one for local
  memory, which moves `Core.local_bytes` a clock, and one for the cache, which moves `CACHE_BYTES`;
- its scheduler issues no other one, and the banks of registers are not behind (NVIDIA's);
- all waves of the work-group are at the barrier.

As many work-groups share the unit as registers, local memory and waves allow. The share is that of
the loop, less what rounds of work-groups that do not fill the device and tiles that stick out of C
take, and packing. What is left out: the cache's misses, power, and a work-group's start and end.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import heapq
import json
import math
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast
from unittest import mock

import numpy as np
from family_costs import name_of, read, write
from instructions import (
    Instruction,
    Listing,
    Loop,
    loop_of,
    parse_amd,
    parse_intel,
    parse_nvidia,
)
from offline_compile import COMPILERS, TARGETS, Compilers, Facts, Kernel, Target, groups, run

from clgemm.core.plan import Plan, ceil_div
from clgemm.core.problem import FLOAT_BYTES, Layout, Problem
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.panels import with_panels
from clgemm.kernels.sources import text_of
from clgemm.kernels.tiled.family import TILED, that_fit
from clgemm.kernels.tiled.plan import (
    GROUP_LOCAL_BYTES,
    TiledConfig,
    TiledVariant,
    make_tiled_plan,
)
from clgemm.planning import planner
from clgemm.tuning.search import Space

FILE = Path(__file__).parent / "measured" / "predicted_share.json"
SIDE = 4096
ALIGNMENT = 256  # bytes
DEVELOP, TEST = (1, 20), (2, 10)  # seed and number of the configs

# Constants of the model. Those of NVIDIA's GPUs are set with the configs to develop with.
CACHE_BYTES = 28  # from the last cache to a compute unit, per clock: an H200's (core/costs.py)
CACHE_CLOCKS = 600  # latency of a load from the last cache, under load
BARRIER_CLOCKS = 40  # from the last wave's arrival until waves go on
BRANCH_CLOCKS = 8  # of a wave after a branch that is taken
QUEUE_CLOCKS = 32  # work that the unit of local memory takes before schedulers wait for it
BANK_CLOCKS = 1  # by which the banks of registers may be behind
EFFICIENCY = 0.95  # of what the model leaves out: fetching instructions, the cache's misses
PACK_RATE = 0.5  # of the memory's rate, at which operands are packed
ROUNDS = 2, 6  # of the loop, to warm up and to count
STAGGER = 300.0  # clocks between the starts of work-groups


class Core(NamedTuple):
    """A compute unit, by public facts of its maker."""

    units: int  # of the device: those of `Target.unit`
    schedulers: int
    lanes: int  # multiply-adds of a scheduler per clock, at the peak that its maker states
    local_bytes: int  # of the unit per clock
    mhz: int
    memory: int  # the device's, in GB/s
    width: int  # lanes of a scheduler's unit for arithmetic
    fma_latency: float
    local_latency: float
    gap: int = 1  # clocks between two instructions of a wave
    # Whether a scheduler issues one instruction per clock, whatever unit executes it.
    single_issue: bool = False
    separate_integers: bool = True  # whether integers have a unit of their own


# NVIDIA: white papers of each generation, and Jia et al., "Dissecting the NVIDIA Volta GPU
# architecture via microbenchmarking", 2018, for latencies. AMD: instruction set manuals and white
# papers of GCN, CDNA 2 and RDNA; a peak of RDNA 3 and 4 counts two multiply-adds per instruction.
# Intel: "oneAPI GPU optimization guide", 2024, "Intel Xe GPU architecture": 16 vector engines of 8
# lanes, or 8 of 16; 128 bytes of local memory per clock. Intel's and AMD's latencies are rounded.
# NVIDIA's disassembler knows none before sm_75 any more. The peak of gfx90a counts packed
# multiply-adds.
CORES = {
    "gfx900": Core(64, 4, 16, 128, 1546, 484, 16, 4, 64, gap=4, separate_integers=False),
    "gfx90a": Core(104, 4, 32, 128, 1700, 1638, 16, 4, 64, gap=4, separate_integers=False),
    "gfx1030": Core(36, 4, 32, 256, 2250, 512, 32, 5, 32, separate_integers=False),
    "gfx1100": Core(48, 4, 64, 256, 2500, 960, 32, 5, 32, separate_integers=False),
    "gfx1201": Core(32, 4, 64, 256, 2970, 640, 32, 5, 32, separate_integers=False),
    "tgllp": Core(6, 16, 8, 128, 1350, 68, 8, 6, 64, separate_integers=False),
    "dg2": Core(32, 16, 8, 128, 2100, 560, 8, 6, 64),
    "pvc": Core(64, 8, 16, 128, 1600, 1638, 16, 6, 64),
    "bmg": Core(20, 8, 16, 128, 2670, 456, 16, 6, 64),
    "sm_75": Core(46, 4, 16, 128, 1710, 448, 16, 4, 24, single_issue=True),
    "sm_80": Core(108, 4, 16, 128, 1410, 1555, 16, 4, 24, single_issue=True),
    "sm_90": Core(132, 4, 32, 128, 1980, 3350, 32, 4, 24, single_issue=True),
}
H200 = CORES["sm_90"]._replace(memory=4800)


# Local memory of NVIDIA's GPUs


def transactions(places: Sequence[int], floats: int) -> int:
    """Return the clocks in which NVIDIA's local memory serves a warp's load.

    Places are floats. Each clock returns a register of the warp, or two where all work-items read
    the same as the next one, or all the same as the next but one [1]_. And each of 32 banks gives
    a float; as many work-items as take a register's bytes are served together.

    References
    ----------
    .. [1] https://forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228/2
    """
    is_joined = floats > 1 and any(
        all(place == places[item ^ by] for item, place in enumerate(places)) for by in (1, 2)
    )
    size = len(places) // floats
    banks = 0
    for first in range(0, len(places), size):
        words = {place + i for place in places[first : first + size] for i in range(floats)}
        banks += max(Counter(word % 32 for word in words).values())
    return banks // 2 if is_joined else banks


def local_clocks(config: TiledConfig) -> dict[int, float]:
    """Return the clocks that a warp's load of so many bytes takes, on average of a step's loads."""
    blocks = config.items_m * config.items_n
    found: dict[int, list[int]] = {}
    for width, is_a in ((config.width_a, True), (config.width_b, False)):
        chunks = (config.work_m if is_a else config.work_n) // width
        places = []
        for item in range(32):
            block = item % blocks
            x = block // (config.items_m * config.grid_n) * config.grid_n + block % config.grid_n
            y = block // config.grid_n % config.items_m
            places.append(width * (y if is_a else x))
        floats = min(width, 4)
        for start in range(0, width, floats):
            clocks = transactions([place + start for place in places], floats)
            found.setdefault(4 * floats, []).extend([clocks] * chunks)
    return {size: sum(each) / len(each) for size, each in found.items()}


# The model


class Cost(NamedTuple):
    """What an instruction takes of a core: clocks of its units, and its latency."""

    unit: str
    clocks: float
    latency: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    banks: tuple[int, int]
    is_store: bool
    left: int  # copies that may be under way after a wait
    way: float  # clocks of the unit of local memory, through which all loads and stores go


class Traffic(NamedTuple):
    """How a wave's accesses of memory differ from plain ones, for a config."""

    loads: dict[int, float]  # clocks of a load from local memory, by the bytes of a work-item
    store: float  # how many times as long a store of one float to local memory takes
    lines: float  # the same of the way of a fetched vector through the unit of local memory
    fetched: float  # the part of the work-items that fetch, on average


def traffic_of(config: TiledVariant, loop: Loop, lanes: int, is_nvidia: bool) -> Traffic:
    """Return what a config's accesses cost. How loads are joined is known of NVIDIA's GPUs.

    Where one side is transposed, work-items that are neighbours write to neighbouring rows of a
    tile, and fetch from several lines of the cache.
    """
    instructions = (x.bytes for x in loop.instructions if x.unit in ("cache", "copy"))
    vectors = FLOAT_BYTES * loop.tiles * config.tile_k * (config.tile_m + config.tile_n)
    fetched = min(1.0, vectors / max(1, config.items * sum(instructions)))
    store = lines = 1.0
    strip = 8 if config.tile_k % 8 == 0 else config.tile_k
    for is_transposed, load, pitch in (
        (config.transpose_a, config.load_a, config.tile_m + config.width_a),
        (config.transpose_b, config.load_b, config.tile_n + config.width_b),
    ):
        if is_transposed:
            length = strip // load  # work-items side by side along k
            places = [i % length * load * pitch + i // length for i in range(lanes)]
            store = max(store, transactions(places, 1))
            lines = max(lines, lanes // length)
    return Traffic(local_clocks(config) if is_nvidia else {}, store, lines, fetched)


def cost_of(each: Instruction, core: Core, lanes: int, traffic: Traffic) -> Cost:
    """Return what an instruction costs."""
    unit, clocks = each.unit, 1.0
    latency: float = core.fma_latency
    served = each.lanes or lanes
    size = each.bytes * served
    way = size / core.local_bytes  # clocks of the unit of local memory
    is_private = each.name.startswith(("LDL", "STL"))
    if unit in ("fma", "integer"):
        clocks = max(1.0, served / core.width)
        if unit == "integer":
            # NVIDIA's have 16 lanes where there is a unit for them.
            clocks = 2.0 if core.single_issue and core.separate_integers else clocks
            unit = "integer" if core.separate_integers else "fma"
    elif unit == "local" and not is_private:
        latency = core.local_latency
        if each.is_store:
            way = way * traffic.fetched if each.bytes > FLOAT_BYTES else traffic.store
        else:
            way = traffic.loads.get(each.bytes, way)
        clocks = way
    elif unit in ("local", "cache", "copy"):  # spilled registers are in the cache, too
        unit = "copy" if unit == "copy" else "cache"
        part = 1.0 if is_private else traffic.fetched
        latency, clocks = CACHE_CLOCKS, part * size / CACHE_BYTES
        way = part * (way if is_private else max(way, traffic.lines))
    return Cost(
        *(unit, clocks, latency, each.reads, each.writes, each.banks, each.is_store),
        left=int(each.target) if unit == "wait" else 0,
        way=way,
    )


class Unit:
    """What the schedulers of a compute unit share, and the waves that they execute."""

    def __init__(self, loop: list[Cost], core: Core, together: int, waves: int) -> None:
        self.loop, self.core, self.waves = loop, core, waves
        self.local = self.cache = 0.0  # when they are free
        self.issue = [0.0] * core.schedulers
        self.busy: list[dict[str, float]] = [{} for _ in range(core.schedulers)]
        self.banks = [[0.0, 0.0] for _ in range(core.schedulers)]
        count = together * waves
        self.ready: list[dict[str, float]] = [{} for _ in range(count)]
        self.stored = [0.0] * count  # when a wave's stores to local memory are done
        self.copied: list[list[float]] = [[] for _ in range(count)]  # groups of copies
        self.copying = [0.0] * count
        self.arrived: list[list[int]] = [[] for _ in range(together)]

    def clocks(self) -> float:
        """Return the clocks in which each wave executes the loop once, on average.

        They are counted from when the first wave has warmed up until it is done. Waves that are
        served later are then behind, as in the middle of a launch.
        """
        warm, counted = ROUNDS
        count, last = len(self.ready), len(self.loop) - 1
        place, rounds = [0] * count, [0] * count
        issued = 0
        begun = 0.0, 0
        queue = [(STAGGER * (wave // self.waves), 0.0, wave) for wave in range(count)]
        heapq.heapify(queue)
        while True:
            now, before, wave = heapq.heappop(queue)  # `before`: when it last issued
            cost = self.loop[place[wave]]
            start = self.start(now, wave, cost)
            if start > now:
                heapq.heappush(queue, (start, before, wave))
                continue
            again = now + self.execute(now, wave, cost)
            issued += 1
            place[wave] += 1
            if place[wave] > last:
                place[wave] = 0
                rounds[wave] += 1
                if rounds[wave] == warm and not begun[1]:
                    begun = now, issued
                elif rounds[wave] == warm + counted:
                    passes = (issued - begun[1]) / (count * len(self.loop))
                    return (now - begun[0]) / passes
            if cost.unit != "barrier":
                heapq.heappush(queue, (again, now, wave))
                continue
            group = self.arrived[wave // self.waves]
            group.append(wave)
            if len(group) == self.waves:
                for each in group:
                    heapq.heappush(queue, (now + BARRIER_CLOCKS, now, each))
                group.clear()

    def start(self, now: float, wave: int, cost: Cost) -> float:
        """Return when a wave's next instruction can be issued, as far as is known now."""
        scheduler = wave % self.core.schedulers
        ready = self.ready[wave]
        start = now
        for name in cost.reads:
            start = max(start, ready.get(name, 0.0))
        if self.core.single_issue:
            start = max(start, self.issue[scheduler])
        if cost.unit in ("local", "copy", "cache"):
            start = max(start, self.local - QUEUE_CLOCKS)
        elif cost.unit == "barrier":
            start = max(start, self.stored[wave])
        elif cost.unit == "wait":
            groups = self.copied[wave]
            start = max([start, *groups[: len(groups) - cost.left]])
        else:
            start = max(start, self.busy[scheduler].get(cost.unit, 0.0))
        for free, count in zip(self.banks[scheduler], cost.banks, strict=True):
            if count:
                start = max(start, free - BANK_CLOCKS)
        return start

    def execute(self, now: float, wave: int, cost: Cost) -> float:
        """Issue an instruction. Return the clocks until the wave's next one."""
        core, unit = self.core, cost.unit
        scheduler = wave % core.schedulers
        end = now + cost.latency
        self.issue[scheduler] = now + 1
        if unit in ("local", "cache", "copy"):
            self.local = max(self.local, now) + cost.way
            end = self.local + cost.latency
            if unit != "local":
                self.cache = max(self.cache, now) + cost.clocks
                end = self.cache + cost.latency
            if unit == "local" and cost.is_store:
                self.stored[wave] = end
            if unit == "copy":
                self.copying[wave] = max(self.copying[wave], end)
        elif unit == "commit":
            self.copied[wave].append(self.copying[wave])
        else:
            self.busy[scheduler][unit] = now + cost.clocks
        free = self.banks[scheduler]
        for bank, count in enumerate(cost.banks):
            if count:
                free[bank] = max(free[bank], now) + count
        for name in cost.writes:
            self.ready[wave][name] = end
        return core.gap + BRANCH_CLOCKS * (unit == "branch")


class Prediction(NamedTuple):
    """The predicted shares of peak, and what they come from."""

    share: float  # of the plan
    product: float  # of the launch that multiplies
    loop: float  # of the loop, with as many work-groups on a unit as it has room for
    groups: int  # work-groups on a unit
    bound: str  # the unit that is busy for the longest time
    busy: float  # its share of the loop's time
    instructions: dict[str, float]  # per multiply-add instruction


def predicted(
    listing: Listing, kernel: Kernel, facts: Facts, target: Target, core: Core, packed: int = 2
) -> Prediction:
    """Predict the share of peak of a square product, of whose operands some are packed."""
    config = kernel.config
    assert isinstance(config, TiledVariant)
    loop = loop_of(listing, config)
    lanes = facts.lanes
    if target.maker == "NVIDIA":
        facts = facts._replace(local_bytes=facts.local_bytes + GROUP_LOCAL_BYTES)
    together = max(1, groups(kernel, facts, target.unit))
    waves = ceil_div(config.items, lanes)
    traffic = traffic_of(config, loop, lanes, target.maker == "NVIDIA")
    costs = [cost_of(each, core, lanes, traffic) for each in loop.instructions]
    costs = [cost for cost in costs if cost.unit != "none"]
    ideal = loop.tiles * config.tile_m * config.tile_n * config.tile_k
    ideal /= core.lanes * core.schedulers  # clocks of a work-group's iteration at the peak

    @functools.cache
    def clocks(count: int) -> float:
        """Return the clocks of an iteration with so many work-groups on a unit."""
        return Unit(costs, core, count, waves).clocks()

    whole = EFFICIENCY * together * ideal / clocks(together)
    tiles = ceil_div(SIDE, config.tile_m) * ceil_div(SIDE, config.tile_n)
    full, rest = divmod(ceil_div(tiles, core.units), together)
    iterations = SIDE / config.tile_k / loop.tiles
    taken = iterations * (full * clocks(together) + (clocks(rest) if rest else 0)) / EFFICIENCY
    best = SIDE**3 / (core.units * core.lanes * core.schedulers)
    moved = 2 * FLOAT_BYTES * SIDE**2 * packed
    packing = moved / (PACK_RATE * core.memory * 1e3) * core.mhz
    busy: dict[str, float] = defaultdict(float)
    for cost in costs:
        if cost.unit in ("local", "cache", "copy"):
            busy["local"] += cost.way * waves * together
        if cost.unit != "local":
            shared = 1 if cost.unit in ("cache", "copy") else core.schedulers
            unit = "cache" if cost.unit == "copy" else cost.unit
            busy[unit] += cost.clocks * waves * together / shared
        if core.single_issue:
            busy["issue"] += waves * together / core.schedulers
        for bank in (0, 1):
            busy[f"bank {bank}"] += cost.banks[bank] * waves * together / core.schedulers
    bound = max(busy, key=busy.__getitem__)
    fmas = sum(each.fmas > 0 for each in loop.instructions)
    counts = Counter(each.unit for each in loop.instructions)
    return Prediction(
        *(best / (taken + packing), best / taken, whole, together),
        *(bound, busy[bound] / clocks(together)),
        {unit: round(count / fmas, 3) for unit, count in counts.items()},
    )


# Compiling


def default_kernel(target: Target) -> tuple[Kernel, int]:
    """Return the kernel that the planner chooses for aligned arrays, and the operands it packs."""
    device, layout = target.device(), Layout((SIDE, SIDE), (SIDE, 1), ALIGNMENT)
    with (
        mock.patch.object(planner, "tuned", return_value=None),  # records of this machine
        mock.patch.object(planner, "instructions_of", return_value=None),
    ):
        steps = planner.plan_of(device, Problem(layout, layout, layout, "strict")).plan.steps
    # Launches that are too long for a display are several, of one config.
    config = next(step.config for step in steps if isinstance(step.config, TiledVariant))
    launches = sum(isinstance(step.config, TiledVariant) for step in steps)
    packed = sum(step.config.family == "pack" for step in steps) // launches
    return Kernel(config, device.limits.build_options), packed


def listing_of(compilers: Compilers, target: Target, kernel: Kernel) -> tuple[Facts, Listing]:
    """Compile a kernel and return the compiler's facts and the instructions."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.cl").write_text(text_of(type(kernel.config)), encoding="utf-8")
        facts = COMPILERS[target.maker](compilers, target.name, kernel, folder)
        if target.maker == "AMD":
            return facts, parse_amd((folder / "out.s").read_text(encoding="utf-8"))
        if target.maker == "NVIDIA":
            return facts, parse_nvidia(run(str(compilers.nvdisasm), f"{folder}/out.cubin"))
        run(
            *(*compilers.ocloc, "disasm", "-file", f"{folder}/out.bin", "-device", target.name),
            *("-dump", f"{folder}/dump"),
        )
        text = (folder / "dump" / f".text.{kernel.config.entry}.asm").read_text(encoding="utf-8")
        return facts, parse_intel(text, 64 if target.name in ("pvc", "bmg") else 32)


# Measuring, and the test


def is_sensible(config: TiledConfig) -> bool:
    """Return whether sums stay in registers. The bounds were fixed before any was measured."""
    sums, most = config.work_m * config.work_n, config.registers or 255
    return (
        64 <= config.items <= 512
        and config.items % 32 == 0
        and 32 <= config.tile_m <= 256
        and 32 <= config.tile_n <= 256
        and 16 <= sums <= 128
        and 1.25 * sums + 40 <= most
        and min(most, round(1.25 * sums + 64)) * config.items <= 65536
    )


def drawn(traits: Traits, seed: int, count: int) -> list[TiledConfig]:
    """Draw defaults, and sensible points of the search space, in turns."""
    rng, defaults = random.Random(seed), list(that_fit(traits))
    space = Space(TILED.search_space(TILED.plainest(traits), traits), traits.limits)
    rng.shuffle(defaults)
    found: list[TiledConfig] = []
    while len(found) < count:
        if len(found) % 2 == 0 and defaults:
            config = defaults.pop()
        else:
            point = tuple(rng.choice(values) for values in space.values.values())
            choice = space.choice(point)
            if choice is None or not is_sensible(config := TILED.config_of(choice)):
                continue
        if config not in found:
            found.append(config)
    return found


def plan_for(config: TiledConfig, limits: Limits) -> Plan:
    """Return a plan of square row-major matrices whose alignment is unknown."""
    layout = Layout((SIDE, SIDE), (SIDE, 1))
    choice = with_panels(config, TILED.panels(config), limits)
    pack = TILED.packing(choice)
    return make_tiled_plan(layout, layout, layout, config, pack, limits)


def measure(path: Path) -> None:
    """Measure the configs on the device at hand, and write the driver's PTX beside the times."""
    import pyopencl.array as cl_array

    import clgemm
    from clgemm.runtime import programs
    from clgemm.runtime.operands import Matrix
    from clgemm.runtime.workspace import workspace

    device = clgemm.get_device()
    queue, limits = device.queue, device.limits
    host = np.random.default_rng(0).standard_normal((2, SIDE, SIDE), np.float32)
    arrays = [cl_array.to_device(queue, x) for x in (*host, np.zeros_like(host[0]))]
    layout = Layout((SIDE, SIDE), (SIDE, 1))
    operands: Any = {
        s: Matrix(cast("Any", x.base_data), 0, layout) for s, x in zip("abc", arrays, strict=True)
    }
    expected = host[0][:9].astype(np.float64) @ host[1].astype(np.float64)
    rows = []
    roles = ("test", TEST), ("develop", DEVELOP)
    for role, config in ((role, x) for role, n in roles for x in drawn(device.traits, *n)):
        plan, space = plan_for(config, limits), workspace(queue)

        def burst(count: int, plan: Plan = plan, space: Any = space) -> float:
            begun = time.perf_counter()
            for _ in range(count):
                space.run(plan, device, operands)
            queue.finish()
            return (time.perf_counter() - begun) / count * 1e6

        burst(1)
        calls = max(1, round(2.5e5 / burst(3)))
        taken = [round(burst(calls), 2) for _ in range(3)]
        last = plan.steps[-1]
        assert np.abs(arrays[2].get()[:9] - expected).max() < 1e-3 * math.sqrt(SIDE), config
        binary = (
            programs._binary(programs._program(device, last.config, last.conditional), device)
            or b""
        )
        made = asdict(last.config)
        rows.append(
            {"role": role, "config": made, "plan_us": taken, "ptx": binary.decode(errors="ignore")}
        )
        print(role, config, taken, flush=True)
    found = {"device": device.name, "driver": device.cl_device.driver_version, "configs": rows}
    found["date"] = datetime.date.today().isoformat()
    write(path, found)


def tested(path: Path, compilers: Compilers) -> dict[str, Any]:
    """Return measured and predicted shares of the configs to test with, on an H200."""
    measured = read(path)
    target = next(each for each in TARGETS if each.name == "sm_90")
    peak = H200.units * H200.schedulers * H200.lanes * H200.mhz  # multiply-adds per microsecond
    rows = []
    for row in measured["configs"]:
        if row["role"] != "test":
            continue
        config = TiledVariant(**row["config"])
        kernel = Kernel(config)
        facts, listing = of_driver(compilers, kernel, row["ptx"])
        by_driver = predicted(listing, kernel, facts, target, H200)
        facts, listing = listing_of(compilers, target, kernel)
        by_clang = predicted(listing, kernel, facts, target, H200)
        share = SIDE**3 / median(row["plan_us"]) / peak
        rows.append(
            {
                "config": name_of(config),
                "measured": round(share, 4),
                "driver": round(by_driver.share, 4),
                "clang": round(by_clang.share, 4),
                "clang_spills": facts.spilled_bytes > 0,
                "bound": by_driver.bound,
            }
        )
        print(rows[-1], flush=True)
    return {**{name: measured[name] for name in ("device", "driver", "date")}, "rows": rows}


def of_driver(compilers: Compilers, kernel: Kernel, ptx: str) -> tuple[Facts, Listing]:
    """Assemble PTX of NVIDIA's driver, and return the assembler's facts and the instructions."""
    architecture = re.search(r"\.target (\w+)", ptx)
    assert architecture is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "in.ptx")
        file.write_text(ptx.rstrip("\0"), encoding="utf-8")
        facts = compilers.assembled(compilers.newer_ptxas, architecture[1], kernel, file)
        return facts, parse_nvidia(run(str(compilers.nvdisasm), f"{folder}/out.cubin"))


def main(arguments: Sequence[str]) -> int:
    """Predict, measure or test."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--compilers", type=Path, default=Path("/opt/offline"), metavar="FOLDER")
    parser.add_argument("--targets", nargs="+", metavar="NAME", help="some targets alone")
    parser.add_argument("--measure", type=Path, metavar="FILE", help="on the GPU at hand")
    parser.add_argument("--test", type=Path, metavar="FILE", help="what --measure has written")
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        measure(chosen.measure)
        return 0
    found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"targets": {}}
    compilers = Compilers(chosen.compilers)
    if chosen.test:
        found["test"] = tested(chosen.test, compilers)
    for target in TARGETS:
        wanted = target.name in (chosen.targets or CORES)
        if chosen.test or not wanted:
            continue
        kernel, packed = default_kernel(target)
        facts, listing = listing_of(compilers, target, kernel)
        made = predicted(listing, kernel, facts, target, CORES[target.name], packed)
        found["targets"][target.name] = {
            "title": f"{target.maker} {target.title}",
            "config": name_of(cast("TiledVariant", kernel.config)),
            "packed": packed,
            **{name: round(getattr(made, name), 3) for name in ("share", "product", "busy")},
            "groups": made.groups,
            "bound": made.bound,
        }
        print(target.name, found["targets"][target.name], flush=True)
    found["date"] = datetime.date.today().isoformat()
    found["compilers"] = compilers.versions()
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
