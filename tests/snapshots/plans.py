# ruff: noqa: C408, E501 - a script that is deleted after the change that it guards
"""Plans of several thousand products, to compare before and after a change of structure.

``python tests/snapshots/plans.py --write FILE`` plans random products for stand-in devices and
writes a digest of each. ``--compare FILE`` plans them again and names what differs. A launch is
compared by what the device sees: the preprocessed source, the entry, the grid and the arguments in
order. So files may move and macros may get other names.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from types import SimpleNamespace

os.environ["CLGEMM_CACHE_DIR"] = tempfile.mkdtemp()

# What is below this line and above the next one knows where things are in the package.
from clgemm.core.config import Limits
from clgemm.core.layout import Layout
from clgemm.core.problem import Problem
from clgemm.hardware.traits import traits_of
from clgemm.kernels.sources import text_of
from clgemm.planning import serving
from clgemm.planning.planner import plan_of as planned
from clgemm.planning.validation import assume

serving.validated = lambda *_: True  # a stand-in device validates nothing


def limits(**values):
    return Limits(**values)


def plan_of(device, precision, a, b, c):
    """Return the launches as (config, gated, groups, arguments), the scratch, the turns, swapped."""
    plan, swapped = planned(device, Problem(a, b, c, precision))
    steps = [(s.config, s.gated, s.groups, tuple(s.arguments.values())) for s in plan.steps]
    return steps, sorted(plan.scratch), plan.turns, swapped


def source_of(config):
    return text_of(type(config))


# From here on nothing depends on the package.
class StandIn:
    transfer, shares_host_memory = None, True

    def __init__(self, key, kind, platform, limit, vendor, capability=(0, 0), instructions=None):
        self.key, self.kind, self.platform, self.name, self.limits = key, kind, platform, key, limit
        self.cl_device = SimpleNamespace(
            vendor=vendor, driver_version="1", name=key, global_mem_size=2**34,
            compute_capability_major_nv=capability[0], compute_capability_minor_nv=capability[1],
        )  # fmt: skip
        self.instructions = instructions

    @functools.cached_property
    def traits(self):
        return traits_of(self)


def devices():
    cpu = dict(local_memory_bytes=2**19, work_group_size=4096, allocation_bytes=2**33)
    lanes = dict(local_memory_bytes=49152, work_group_size=1024, allocation_bytes=2**34)
    small = dict(local_memory_bytes=32768, work_group_size=256, allocation_bytes=2**29)
    pocl, intel, nvidia = (
        "Portable Computing Language, OpenCL 3.0 PoCL 3.1+debian",
        "Intel(R) OpenCL, OpenCL 3.1 LINUX",
        "NVIDIA CUDA, OpenCL 3.0 CUDA 13.0.1",
    )
    old = pocl.replace("3.1+debian", "3.0-rc1")
    return [
        StandIn("pocl, 2 cores, AVX-512", "CPU", pocl, limits(**cpu, compute_units=2, vector_width=16), "GenuineIntel"),
        StandIn("pocl 3.0, 4 cores, AVX-512", "CPU", old, limits(**cpu, compute_units=4, vector_width=16), "AuthenticAMD"),
        StandIn("intel, 2 cores, AVX2", "CPU", intel, limits(**cpu, compute_units=2, vector_width=8), "GenuineIntel"),
        StandIn("intel, 64 cores, AVX-512", "CPU", intel, limits(**cpu, compute_units=64, vector_width=16, gathers=True), "GenuineIntel"),
        StandIn("llvmpipe (LLVM 15.0.6, 512 bits)", "CPU", "rusticl, OpenCL 3.0", limits(**small, compute_units=2, vector_width=1), "Mesa"),
        StandIn("NVIDIA H200", "GPU", nvidia, limits(**lanes, compute_units=132, vector_width=1, gathers=True, kept_bytes=34_000_000), "NVIDIA Corporation", (9, 0), "wgmma"),
        StandIn("NVIDIA A100", "GPU", nvidia, limits(**lanes, compute_units=108, vector_width=1, gathers=True), "NVIDIA Corporation", (8, 0), "mma"),
        StandIn("NVIDIA RTX", "GPU", nvidia, limits(**lanes, compute_units=30, vector_width=1, gathers=True), "NVIDIA Corporation", (8, 6)),
        StandIn("gfx90c", "GPU", "AMD Accelerated Parallel Processing, OpenCL 2.0", limits(**small, compute_units=8, vector_width=1), "AMD"),
        StandIn("board", "accelerator", "Vendor, OpenCL 1.2", limits(**small | {"local_memory_bytes": 16384, "work_group_size": 64}, compute_units=4, vector_width=1), "Vendor"),
    ]  # fmt: skip


def layout(rng, *shape):
    """An operand: contiguous, transposed, sliced, reversed or repeated; any alignment."""
    order = list(range(len(shape)))
    if rng.random() < 0.4:
        order[-1], order[-2] = order[-2], order[-1]
    strides, reach = [0] * len(shape), 1
    if rng.random() < 0.1:
        reach = 2
    for axis in reversed(order):
        strides[axis] = reach * (-1 if rng.random() < 0.03 else 1)
        reach *= max(shape[axis], 1)
        if rng.random() < 0.15:
            reach += rng.choice([1, 3, 4, 16, 100])
    if len(shape) > 2 and rng.random() < 0.2:
        strides[0] = 0
    return Layout(tuple(shape), tuple(strides), rng.choice([4, 8, 16, 64, 64, 64, 128]))


def problems(count):
    rng = random.Random(22)
    for number in range(count):
        style = rng.random()
        if style < 0.25:
            m, n, k = (rng.randint(1, 130) for _ in range(3))
        elif style < 0.5:
            m, n, k = (int(2 ** rng.uniform(3, 13)) for _ in range(3))
        elif style < 0.65:
            m, n, k = (rng.choice([64, 128, 256, 512, 1024, 2048, 4096, 8192]) for _ in range(3))
        elif style < 0.85:
            m, n, k = (int(2 ** rng.uniform(9, 13)) for _ in range(3))
            few = rng.choice([1, 2, 3, 5, 8, 17, 64, 200])
            m, n, k = rng.choice([(few, n, k), (m, few, k), (m, n, few)])
        elif style < 0.95:
            m, n, k = (int(2 ** rng.uniform(10, 14)) for _ in range(3))
        else:
            m, n, k = rng.choice(
                [(100_000, 90_000, 50_000), (2**26, 2, 64), (3, 2**30, 5), (16, 16, 10**7)]
            )
        batch = ()
        if rng.random() < 0.25 and m * n * k < 2**31:
            batch = tuple(rng.randint(1, 20) for _ in range(rng.choice([1, 1, 2, 3])))
        a, b = layout(rng, *batch, m, k), layout(rng, *batch, k, n)
        c = layout(rng, *batch, m, n)
        if 0 in c.strides:
            c = layout(random.Random(number), *batch, m, n)._replace(
                strides=tuple(c.strides[:0]) or tuple(dense(c.shape))
            )
        yield (a, b, c), rng.choice(["float32", "float32", "float32", "strict", "fast", None])


def dense(shape):
    strides, reach = [], 1
    for size in reversed(shape):
        strides.insert(0, reach)
        reach *= size
    return strides


TOKEN = re.compile(r'"(?:\\.|[^"])*"|\w+|\S')


@functools.cache
def seen(source, macros, clang):
    """Return a digest of the tokens that a compiler sees."""
    source = re.sub(r"^\s*#\s*pragma.*$", lambda m: f'PRAGMA("{m[0].strip()}")', source, flags=re.M)
    flags = [f"-D{name}={value}" for name, value in macros] + ["-D__clang__=1"] * clang
    done = subprocess.run(
        ["cpp", "-P", "-undef", "-w", *flags], input=source, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr[:2000])
    return hashlib.sha256(" ".join(TOKEN.findall(done.stdout)).encode()).hexdigest()[:12]


@functools.cache
def step_source(config, gated, clang):
    macros = (*config.macros(), ("GATED", 1)) if gated else tuple(config.macros())
    names = seen(source_of(config), tuple(macros), clang)
    return [names, config.entry, config.items, config.standard, list(config.options)]


def plain(argument):
    if isinstance(argument, bytes):
        return argument.hex()
    if isinstance(argument, tuple):
        return [type(argument).__name__, *argument]
    return int(argument) if isinstance(argument, bool) else argument


def described(device, precision, operands):
    steps, scratch, turns, swapped = plan_of(device, precision, *operands)
    clang = device.kind == "CPU"
    return {
        "steps": [
            [*step_source(config, gated, clang), groups, [plain(x) for x in arguments]]
            for config, gated, groups, arguments in steps
        ],
        "scratch": [list(x) for x in scratch],
        "turns": turns,
        "swapped": bool(swapped),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write")
    parser.add_argument("--compare")
    parser.add_argument("--whole", help="also write everything, to look differences up")
    parser.add_argument("--count", type=int, default=600, help="products for each device")
    options = parser.parse_args()
    found, whole = {}, {}
    for device in devices():
        if device.instructions or device.kind == "GPU":
            assume(device, device.instructions)
        for number, (operands, precision) in enumerate(problems(options.count)):
            key = f"{device.key} #{number}"
            try:
                what = described(device, precision, operands)
            except Exception as error:
                what = {"raises": type(error).__name__ + str(error)[:200]}
            text = json.dumps(what, sort_keys=True)
            found[key] = hashlib.sha256(text.encode()).hexdigest()[:12]
            whole[key] = [precision, [list(map(str, x)) for x in operands], what]
    raised = sum("raises" in what for _, _, what in whole.values())
    print(f"{len(found)} plans, {len(set(found.values()))} different ones, {raised} refused, "
          f"{step_source.cache_info().currsize} kernels")  # fmt: skip
    if options.whole:
        with gzip.open(options.whole, "wt") as file:
            json.dump(whole, file)
    if options.write:
        with gzip.open(options.write, "wt") as file:
            json.dump(found, file)
    if options.compare:
        with gzip.open(options.compare, "rt") as file:
            before = json.load(file)
        other = [key for key in before if before[key] != found.get(key)]
        print(f"{len(other)} of {len(before)} differ")
        for key in other[:20]:
            print("   ", key, whole[key][:2])
        sys.exit(bool(other))


if __name__ == "__main__":
    main()
