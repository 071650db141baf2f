"""Compile the default kernels for GPUs that are not at hand, and read what they take of a device.

    python docs/offline_compile.py [--compilers FOLDER] [--targets NAME ...]
    python docs/offline_compile.py --check

The planner chooses kernels for a fixed set of products on each of `TARGETS`. Those that
docs/measured/compiled.json lacks are compiled, and what the compiler reports is written there. A
kernel is known by a hash of its target, source and options. ``--check`` needs no compiler: it says
whether the file holds every kernel, and no other.

The exit status is 1 if a kernel spills registers, keeps its sums in memory, or leaves room for only
one work-group on a compute unit. `EXCEPTIONS` names those that may.

The compilers are those of Debian 12. FOLDER holds what is not to be installed, since drivers come
with it::

    apt-get install clang-19 llvm-19
    apt-get download rocm-device-libs libclc-19
    for file in *.deb; do dpkg -x "$file" FOLDER; done
    pip install --target FOLDER nvidia-cuda-nvcc-cu12

Intel's is that of Debian sid: intel-ocloc, libigc2, libigdfcl2 and all that they depend on,
unpacked in the same way into FOLDER/intel. It runs with its own C library.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import hashlib
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pyopencl as cl
from family_costs import problem_of

from clgemm.bench.cases import Bounds, random_cases
from clgemm.core.config import KernelConfig
from clgemm.core.plan import round_up
from clgemm.core.problem import Layout
from clgemm.core.traits import Unit
from clgemm.hardware.device import Device
from clgemm.kernels.exact.plan import exact_plan
from clgemm.kernels.exact.types import Types
from clgemm.kernels.sources import OPTIONS, text_of, tokens
from clgemm.planning import planner
from clgemm.runtime import exact

FILE = Path(__file__).parent / "measured" / "compiled.json"
CASES, SEED = 100, 1
# Other dtypes, one for each kind of lanes, and sides for which the tiles are small and large.
OTHERS, SIDES = ("b1", "i4", "i8", "f2", "f8", "c8"), (64, 4096)
MOST_PRIVATE = 64  # bytes in memory of a work-item that no sums are: a run of C at an edge
# Targets whose kernels may have faults, with the reason.
EXCEPTIONS = {
    **dict.fromkeys(("sm_80", "sm_90"), "measured on NVIDIA's GPUs with NVIDIA's own compiler"),
}
LIMIT = "-cl-nv-maxrregcount="  # the option of NVIDIA's driver that limits registers
LEAST_GROUPS = 2  # work-groups that share a compute unit, so that one computes while another waits


class Facts(NamedTuple):
    """What a compiler reports of a kernel.

    `lanes` is the number of work-items that an instruction serves. Registers are those of a
    work-item; so are the bytes that are spilled and those of private memory.
    """

    registers: int
    lanes: int
    spilled_bytes: int
    private_bytes: int
    local_bytes: int


class Target(NamedTuple):
    """A GPU that a compiler can compile for."""

    name: str  # as the compiler calls it
    maker: str  # a key of `COMPILERS`
    title: str
    unit: Unit
    # What OpenCL reports, from public reports of such devices.
    reported: dict[str, Any]

    def device(self) -> Device:
        """Return a device that reports this. Nothing can run on it."""
        return Device(SimpleNamespace(**self.reported))  # type: ignore[arg-type]


def target(
    name: str,
    maker: str,
    title: str,
    unit: Unit,
    platform: tuple[str, str],
    units: int,
    group: int,
    local_kib: int = 64,
    **more: Any,
) -> Target:
    """Return a target, of a platform's name and version and of the largest work-group."""
    reported = {
        "name": title,
        "vendor": {"AMD": "Advanced Micro Devices, Inc.", "Intel": "Intel(R) Corporation"}.get(
            maker, "NVIDIA Corporation"
        ),
        "version": "OpenCL 3.0",
        "driver_version": "",
        "platform": SimpleNamespace(name=platform[0], version=platform[1]),
        "type": cl.device_type.GPU,
        "local_mem_size": local_kib << 10,
        "local_mem_type": cl.device_local_mem_type.LOCAL,
        "max_work_group_size": group,
        "max_work_item_sizes": [group] * 3,
        "max_mem_alloc_size": 2**32,
        "max_compute_units": units,
        "host_unified_memory": False,
        "double_fp_config": int(name != "tgllp" and name != "dg2"),
        "opencl_c_features": [],
    }
    if maker == "AMD":
        reported["wavefront_width_amd"] = 64 if name.startswith("gfx9") else 32
    return Target(name, maker, title, unit, reported | more)


AMD = "AMD Accelerated Parallel Processing", "OpenCL 2.1 AMD-APP"
INTEL = "Intel(R) OpenCL Graphics", "OpenCL 3.0"
SEEING_OTHERS = "__opencl_c_atomic_order_acq_rel", "__opencl_c_atomic_scope_device"
FEATURES = {"opencl_c_features": [SimpleNamespace(name=name) for name in SEEING_OTHERS]}
NVIDIA = "NVIDIA CUDA", "OpenCL 3.0 CUDA"


def nvidia(name: str, title: str, units: int, local_kib: int, items: int) -> Target:
    """Return one of NVIDIA's GPUs, with its multiprocessors, and the local memory of each."""
    capability = {
        "compute_capability_major_nv": int(name[3:-1]),
        "compute_capability_minor_nv": int(name[-1]),
    }
    unit = Unit(65536, local_kib << 10, items)
    return target(name, "NVIDIA", title, unit, NVIDIA, units, 1024, 48, **capability)


# In RDNA's GPUs, two of AMD's compute units make one of OpenCL's.
TARGETS = (
    target("gfx900", "AMD", "Radeon RX Vega 64", Unit(65536, 65536, 2560), AMD, 64, 256),
    target("gfx90a", "AMD", "Instinct MI210", Unit(131072, 65536, 2048), AMD, 104, 256),
    target("gfx1030", "AMD", "Radeon RX 6800 XT", Unit(131072, 131072, 2048), AMD, 36, 256),
    target("gfx1100", "AMD", "Radeon RX 7900 XTX", Unit(196608, 131072, 2048), AMD, 48, 256),
    target("gfx1201", "AMD", "Radeon RX 9070 XT", Unit(196608, 131072, 2048), AMD, 32, 256),
    target("tgllp", "Intel", "Iris Xe", Unit(112 << 10, 131072, 3584), INTEL, 96, 512, **FEATURES),
    target("dg2", "Intel", "Arc A770", Unit(128 << 10, 131072, 4096), INTEL, 512, 1024, **FEATURES),
    target(
        "pvc",
        "Intel",
        "Data Center GPU Max",
        Unit(128 << 10, 131072, 2048),
        INTEL,
        512,
        1024,
        **FEATURES,
    ),
    target(
        "bmg", "Intel", "Arc B580", Unit(128 << 10, 131072, 2048), INTEL, 160, 1024, 128, **FEATURES
    ),
    nvidia("sm_50", "GeForce GTX 750 Ti", 5, 64, 2048),
    nvidia("sm_61", "GeForce GTX 1080", 20, 96, 2048),
    nvidia("sm_75", "GeForce RTX 2080", 46, 64, 1024),
    nvidia("sm_80", "A100", 108, 164, 2048),
    nvidia("sm_90", "H100", 132, 228, 2048),
)


class Kernel(NamedTuple):
    """A kernel as the runtime builds it."""

    config: KernelConfig
    device_options: tuple[str, ...] = ()

    @property
    def options(self) -> list[str]:
        """The compiler's options."""
        config = self.config
        macros = (f"-D{name}={value}" for name, value in config.macros())
        own = *config.build_options, *self.device_options
        return [f"-cl-std={config.standard}", *OPTIONS, *macros, *own]

    def key(self, target: Target) -> str:
        """Return what it is known by: a hash of all that the compiler sees."""
        parts = target.name, _hash(type(self.config)), *self.options
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.cache
def _hash(kind: type[KernelConfig]) -> str:
    return hashlib.sha256("\0".join(tokens(text_of(kind))).encode()).hexdigest()


def kernels(target: Target) -> dict[str, Kernel]:
    """Return the kernels that the planner chooses for a target by default, by their keys.

    They are OpenCL C alone: those for tensor cores are verified by runs (verified/).
    """
    found, device = {}, target.device()
    with (
        mock.patch.object(planner, "tuned", return_value=None),  # records of this machine
        mock.patch.object(planner, "instructions_of", return_value=None),
    ):
        for case in random_cases(CASES, SEED, Bounds()):
            for step in planner.plan_of(device, problem_of(case, "strict")).plan.steps:
                kernel = Kernel(step.config, device.limits.build_options)
                found[kernel.key(target)] = kernel
    for dtype, n in itertools.product(OTHERS, SIDES):
        if exact.computes(device, types := Types(dtype, dtype, dtype)):
            layout = Layout((n, n), (n, 1))
            made = exact_plan(layout, layout, layout, types, device.limits, on_tensors=False)
            assert made is not None
            for step in made.plan.steps:
                kernel = Kernel(step.config, device.limits.build_options)
                found[kernel.key(target)] = kernel
    return found


def groups(kernel: Kernel, facts: Facts, unit: Unit) -> int:
    """Return how many work-groups of a kernel share a compute unit."""
    items = round_up(kernel.config.items, facts.lanes)
    by_registers = unit.registers // (items * round_up(max(1, facts.registers), 8))
    by_memory = unit.local_bytes // max(1, facts.local_bytes)
    return min(by_registers, by_memory, unit.items // items)


class Compilers:
    """The compilers in a folder, each with what it says of its version."""

    def __init__(self, folder: Path) -> None:
        self.bitcode = folder / "usr" / "lib" / "x86_64-linux-gnu" / "amdgcn" / "bitcode"
        self.library = folder / "usr" / "lib" / "clc" / "nvptx64--nvidiacl.bc"
        self.ptxas = folder / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
        # Of predicted_share.py.
        self.nvdisasm = folder / "nvidia" / "cu13" / "bin" / "nvdisasm"
        self.newer_ptxas = self.nvdisasm.with_name("ptxas")
        # Intel's compiler runs with the C library of its own Debian.
        intel = folder / "intel"
        libraries = {str(file.parent) for file in intel.glob("usr/lib/**/*.so*")}
        loader = intel / "usr" / "lib" / "x86_64-linux-gnu" / "ld-linux-x86-64.so.2"
        ocloc = max(map(str, intel.glob("usr/bin/ocloc*")), default="")
        self.ocloc = str(loader), "--library-path", ":".join(sorted(libraries)), ocloc

    def versions(self) -> dict[str, str]:
        """Return what compiles, by maker."""
        clang = run("clang-19", "--version").splitlines()[0]
        ptxas = re.search(r"release ([\d.]+)", run(str(self.ptxas), "--version"))
        assert ptxas is not None
        return {
            "AMD": f"{clang}, AMD's device libraries",
            "Intel": Path(self.ocloc[-1]).name,
            "NVIDIA": f"{clang}, ptxas {ptxas[1]}",
        }

    def amd(self, name: str, kernel: Kernel, folder: Path) -> Facts:
        """Compile for AMD's GPUs. The facts stand in comments and metadata of the assembly."""
        self._require_constant(name)
        run(
            *("clang-19", "-x", "cl", *kernel.options, "-O3", "-target", "amdgcn-amd-amdhsa"),
            *(f"-mcpu={name}", f"--rocm-device-lib-path={self.bitcode}"),
            *("-mcode-object-version=4", "-S", f"{folder}/in.cl", "-o", f"{folder}/out.s"),
        )
        text = (folder / "out.s").read_text(encoding="utf-8")

        def fact(pattern: str) -> int:
            return max(map(int, re.findall(pattern + r"\s*(\d+)", text)), default=0)

        return Facts(
            registers=fact(r"(?:TotalNumVgprs|NumVgprs):"),
            lanes=fact(r"\.wavefront_size:"),
            spilled_bytes=4 * fact(r"\.vgpr_spill_count:"),
            private_bytes=fact("ScratchSize:"),
            local_bytes=fact(r"\.group_segment_fixed_size:"),
        )

    def _require_constant(self, name: str) -> None:
        """Make the constant that older device libraries lack: the version of the instructions."""
        version = name.removeprefix("gfx")
        file = self.bitcode / f"oclc_isa_version_{version}.bc"
        if not file.exists():
            number = 1000 * int(version[:-2]) + 100 * int(version[-2], 16) + int(version[-1], 16)
            source = f"const int __oclc_ISA_version = {number};"
            run(
                *("clang-19", "-x", "cl", "-nogpulib", "-Xclang", "-mcode-object-version=none"),
                *("-target", "amdgcn-amd-amdhsa", "-c", "-emit-llvm", "-O3", "-", "-o", str(file)),
                text=source.replace("const", "__constant const"),
            )

    def intel(self, name: str, kernel: Kernel, folder: Path) -> Facts:
        """Compile for Intel's GPUs. The facts stand in a section of the binary, as YAML."""
        run(
            *(*self.ocloc, "compile", "-file", f"{folder}/in.cl", "-device", name),
            *("-options", " ".join(kernel.options), "--format", "zebin"),
            *("-output_no_suffix", "-out_dir", str(folder), "-output", "out"),
        )
        dumped = f"--dump-section=.ze_info={folder}/out.yml"
        run("llvm-objcopy-19", dumped, f"{folder}/out.bin", "/dev/null")
        text = (folder / "out.yml").read_text(encoding="utf-8")

        def fact(name: str) -> int:
            found = re.search(rf"\b{name}:\s*(\d+)", text)
            return int(found[1]) if found else 0

        # Bytes for each instruction's lanes.
        memory = re.findall(r"usage:\s*(\w+)\s*\n\s*size:\s*(\d+)", text)
        lanes, width = fact("simd_size"), 16 if name in ("pvc", "bmg") else 8
        spilled = sum(int(size) for usage, size in memory if "private" not in usage)
        private = sum(int(size) for usage, size in memory if "private" in usage)
        return Facts(
            registers=fact("grf_count") * width // lanes,
            lanes=lanes,
            spilled_bytes=spilled // lanes,
            private_bytes=private // lanes,
            local_bytes=fact("slm_size"),
        )

    def nvidia(self, name: str, kernel: Kernel, folder: Path) -> Facts:
        """Compile for NVIDIA's GPUs, through PTX."""
        run(
            *("clang-19", "-x", "cl", "-O3", "-target", "nvptx64-nvidia-nvcl", f"-march={name}"),
            *(option for option in kernel.options if not option.startswith(LIMIT)),
            *("-Xclang", "-target-feature", "-Xclang", "+ptx83", "-D__NV_CL_C_VERSION=120"),
            "-Dasm=__asm__",
            *("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(self.library)),
            *("-S", f"{folder}/in.cl", "-o", f"{folder}/out.ptx"),
        )
        return self.assembled(self.ptxas, name, kernel, folder / "out.ptx")

    @staticmethod
    def assembled(ptxas: Path, name: str, kernel: Kernel, file: Path) -> Facts:
        """Assemble PTX to out.cubin beside it. The assembler prints the facts."""
        limits = (x.replace(LIMIT, "-maxrregcount=") for x in kernel.options if x.startswith(LIMIT))
        text = run(
            *(str(ptxas), f"-arch={name}", "-v", *limits),
            *(str(file), "-o", str(file.with_name("out.cubin"))),
        )

        def fact(pattern: str) -> int:
            return max(map(int, re.findall(pattern, text)), default=0)

        return Facts(
            registers=fact(r"Used (\d+) registers"),
            lanes=32,
            spilled_bytes=fact(r"(\d+) bytes spill stores"),
            private_bytes=fact(r"(\d+) bytes stack frame"),
            local_bytes=fact(r"(\d+) bytes smem"),
        )


def run(*command: str, text: str = "") -> str:
    """Return what a command prints.

    Raises
    ------
    RuntimeError
        If it fails. The message is what it printed.
    """
    done = subprocess.run(
        command,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}")
    return done.stdout


COMPILERS: dict[str, Callable[[Compilers, str, Kernel, Path], Facts]] = {
    "AMD": Compilers.amd,
    "Intel": Compilers.intel,
    "NVIDIA": Compilers.nvidia,
}


def compiled(compilers: Compilers, target: Target, kernel: Kernel) -> Facts:
    """Return what a target's compiler reports of a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source = text_of(type(kernel.config))
        (Path(folder) / "in.cl").write_text(source, encoding="utf-8")
        return COMPILERS[target.maker](compilers, target.name, kernel, Path(folder))


def faults(kernel: Kernel, facts: Facts, unit: Unit) -> Iterator[str]:
    """Yield what is wrong with a default kernel."""
    if facts.spilled_bytes:
        yield f"spills {facts.spilled_bytes} bytes"
    elif facts.private_bytes > MOST_PRIVATE:
        yield f"keeps {facts.private_bytes} bytes in memory"
    if (count := groups(kernel, facts, unit)) < LEAST_GROUPS:
        yield f"leaves room for {count} work-group on a compute unit"


def summary(
    target: Target, kernels: dict[str, Kernel], facts: dict[str, Facts]
) -> dict[str, str | int]:
    """Return a target's row of the table in docs/verified.md."""
    return {
        "title": target.title,
        "maker": target.maker,
        "kernels": len(kernels),
        "registers": max(each.registers for each in facts.values()),
        "in_memory": sum(
            each.spilled_bytes > 0 or each.private_bytes > MOST_PRIVATE for each in facts.values()
        ),
        "groups": min(groups(kernels[key], each, target.unit) for key, each in facts.items()),
    }


def loaded() -> dict[str, Any]:
    """Return what the file holds."""
    if not FILE.exists():
        return {"date": "", "compilers": {}, "summaries": {}, "targets": {}}
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def as_text(found: dict[str, Any]) -> str:
    """Return the file's text: a kernel a line."""
    lines = []
    for name, facts in sorted(found["targets"].items()):
        rows = (f'   "{key}": {json.dumps(facts[key])}' for key in sorted(facts))
        lines.append(f'  "{name}": {{\n' + ",\n".join(rows) + "\n  }")
    head = json.dumps({k: v for k, v in found.items() if k != "targets"}, indent=1)
    return f'{head[:-2]},\n "targets": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def main(arguments: Sequence[str]) -> int:
    """Compile what is missing, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only look whether it is current")
    parser.add_argument("--compilers", type=Path, default=Path("/opt/offline"), metavar="FOLDER")
    parser.add_argument("--targets", nargs="+", metavar="NAME", help="some targets alone")
    chosen = parser.parse_args(arguments)
    found, wrong = loaded(), 0
    compilers = Compilers(chosen.compilers)
    versions = found["compilers"] if chosen.check else compilers.versions()
    for target in TARGETS:
        if chosen.targets and target.name not in chosen.targets:
            continue
        known = found["targets"].get(target.name, {})
        if versions[target.maker] != found["compilers"].get(target.maker):
            known = {}
        wanted = kernels(target)
        if chosen.check:
            if known.keys() != wanted.keys():
                print(f"{target.name}: docs/offline_compile.py has kernels to compile")
                wrong += 1
            continue
        facts = {
            key: Facts(*known[key]) if key in known else compiled(compilers, target, kernel)
            for key, kernel in wanted.items()
        }
        found["targets"][target.name] = {key: list(each) for key, each in facts.items()}
        found["summaries"][target.name] = summary(target, wanted, facts)
        for key, kernel in wanted.items():
            for fault in faults(kernel, facts[key], target.unit):
                print(f"{target.name}: {fault}: {facts[key]} {kernel.config}")
                wrong += target.name not in EXCEPTIONS
        print(f"{target.name}: {found['summaries'][target.name]}", flush=True)
        found["compilers"][target.maker] = versions[target.maker]
        found["summaries"] = {
            t.name: found["summaries"][t.name] for t in TARGETS if t.name in found["summaries"]
        }
        found["date"] = datetime.date.today().isoformat()
        FILE.write_text(as_text(found), encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
