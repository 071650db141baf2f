"""What the rungs' kernel files say, what each step changes, and where its bytes go.

`explain` prints one rung. `page` is the interactive page of all: measurements, code and pictures.
"""

from __future__ import annotations

import difflib
import json
import re
import textwrap
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any, NamedTuple

import pyopencl as cl

from clgemm.hardware.device import Device
from clgemm.hardware.runtimes import compiling
from clgemm.kernels.sources import OPTIONS
from clgemm.ladder.measure import KERNELS, kernel_text, opencl_target, source, standard
from clgemm.ladder.rung import Rung, Shape, Target, count
from clgemm.ladder.rungs import RUNGS, AsynchronousCopies, WideLocalReads, configure
from clgemm.terminal import Side, print_table

SECTION = re.compile(r"// ([A-Z][\w -]*?)(, [^:]*)?: *(.*)")
MACRO = re.compile(r'^#ifndef \w+\n#error ".*"\n#endif\n', re.MULTILINE)


class Block(NamedTuple):
    """A paragraph, or a picture whose lines stay as they are."""

    text: str
    is_picture: bool


class Line(NamedTuple):
    """A line of a difference: its mark is ``" "``, ``"+"`` or ``"-"``, as in a diff."""

    mark: str
    text: str


@dataclass(frozen=True)
class Story:
    """What the header of a kernel file says.

    Attributes
    ----------
    layout : str
        The index formulas of the matrices and tiles, one a line.
    sections : dict of str to list of Block
        The paragraphs by their names, such as ``"New"``, ``"Why"`` and ``"Cost"``.
    code : list of str
        The lines of the file after the header and the checks of the macros.
    """

    layout: str
    sections: dict[str, list[Block]]
    code: list[str]


def story(rung: type[Rung]) -> Story:
    """Return the words and the code of a rung's kernel file."""
    lines = kernel_text(rung.file).splitlines()
    length = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    layout: list[str] = []
    sections: dict[str, list[list[str]]] = {}
    current: list[list[str]] | None = None
    for line in lines[1:length]:  # the first line is the title
        found = SECTION.match(line)
        if found:
            current = sections.setdefault(found[1], [])
            current.append([found[3]] if found[3] else [])
        elif current is None:
            layout.append(line.removeprefix("//"))
        elif line == "//":
            current.append([])
        else:
            current[-1].append(line.removeprefix("//"))
    code = MACRO.sub("", "\n".join(lines[length:])).strip("\n").splitlines()
    formulas = textwrap.dedent("\n".join(layout)).strip("\n")
    return Story(formulas, {n: _blocks(s) for n, s in sections.items()}, code)


def _blocks(paragraphs: list[list[str]]) -> list[Block]:
    """Tell the paragraphs from the pictures, which stand between empty lines after the first."""
    blocks = []
    for position, lines in enumerate(filter(None, paragraphs)):
        if position:
            blocks.append(Block(textwrap.dedent("\n".join(lines)), True))
        else:
            blocks.append(Block(" ".join(" ".join(lines).split()), False))
    return blocks


def step(rung: type[Rung]) -> list[Line]:
    """Return the code of a rung with the difference to the rung that it follows."""
    after = story(rung).code
    before = story(RUNGS[rung.before() - 1]).code if rung.before() else []
    return list(_difference(before, after)) if before else [Line(" ", text) for text in after]


def _difference(before: list[str], after: list[str]) -> Iterator[Line]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        if kind == "equal":
            yield from (Line(" ", text) for text in after[j:j_end])
        else:
            yield from (Line("-", text) for text in before[i:i_end])
            yield from (Line("+", text) for text in after[j:j_end])


COLUMNS = 100
# What the driver says about ``multiply``: local memory, below the row that is counted, and more.
BY_DRIVER = (
    "  the same, by the driver",
    "bytes of private memory per work-item, by the driver",
    "registers per work-item, by the driver",
    "bytes of spills per work-item, by the driver",
)
SHOWN = ("New", "How", "Why", "Cost", "Left to gain", "Error", "Runs on")
NOT_SAID = "-"
# What OpenCL says about an H200, for rungs that cannot run on the device: their bytes are counted.
H200 = Target(48 * 1024, 1024, 2**35, lanes=(32,), is_nvidia=True, capability=(9, 0))
# What NVIDIA's assembler says about a kernel with -cl-nv-verbose.
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
REGISTERS = re.compile(r"Used (\d+) registers")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def registers_in(log: str) -> tuple[int | None, int | None]:
    """Return the registers and the spilled bytes that a build log names for ``multiply``."""
    registers = spilled = None
    current = ""
    for line in log.splitlines():
        if found := ENTRY.search(line):
            current = found[1]
        if current != "multiply":
            continue
        if found := SPILLS.search(line):
            spilled = int(found[1]) + int(found[2])
        if found := REGISTERS.search(line):
            registers = int(found[1])
    return registers, spilled


def compiled(device: Device, rung: Rung) -> dict[str, int | None]:
    """Compile a rung, without any cache, and return a number for each of `BY_DRIVER`.

    None where the driver says nothing. Memory is by ``clGetKernelWorkGroupInfo``. Registers, and
    the bytes that are stored elsewhere instead, are by NVIDIA's compiler.
    """
    target = opencl_target(device)
    options = [f"-cl-std={standard(device, rung)}", *OPTIONS, *rung.options]
    options += [f"-D{name}={value}" for name, value in rung.macros(target).items()]
    if target.is_nvidia:
        # The driver's own cache would keep the log: no two builds have the same options.
        options += ["-cl-nv-verbose", f"-DEXPLAINED_AT={time.time_ns()}"]
    program = cl.Program(device.context, source(rung))
    with compiling(device.platform), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some compilers write a log on success
        without: Any = False  # pyopencl's cache of binaries would drop the log
        program.build(options, devices=[device.cl_device], cache_dir=without)
    asking: Any = program
    log = asking.get_build_info(device.cl_device, cl.program_build_info.LOG)
    kernel = cl.Kernel(program, "multiply")

    def asked(what: int) -> int | None:
        try:
            size_bytes: Any = kernel.get_work_group_info(what, device.cl_device)
            return int(size_bytes)
        except cl.Error:  # an old driver
            return None

    info = cl.kernel_work_group_info
    memory = asked(info.LOCAL_MEM_SIZE), asked(info.PRIVATE_MEM_SIZE)
    return dict(zip(BY_DRIVER, (*memory, *registers_in(log)), strict=True))


def explain(device: Device, number: int, n: int, parameters: dict[str, int]) -> None:
    """Print a rung: its idea, the difference to the rung that it follows, and its figures.

    Parameters
    ----------
    number : int
        The rung.
    n : int
        The size of the square matrices for which the bytes are counted.
    parameters : dict of str to int
        By clgemm's names. Each of the two rungs gets those that it has.

    Raises
    ------
    ValueError
        If the parameters do not suit the rung, the device or the size.
    """
    kind = RUNGS[number - 1]
    shape, target = Shape(n, n, n), opencl_target(device)
    rungs = []
    for each in filter(None, (kind.before(), number)):
        one = RUNGS[each - 1]
        given = {name: parameters[name] for name in one.parameters() if name in parameters}
        able = H200 if one.missing(target) else target
        rungs.append(configure(each, shape, able, **given))
    said = story(kind)
    print(f"Rung {number}: {kind.label()} ({kind.file})\n")
    if missing := kind.missing(target):
        print(textwrap.fill(f"Cannot run here: {missing}.", COLUMNS), end="\n\n")
    for name in SHOWN:
        for block in said.sections.get(name, []):
            if block.is_picture:
                print(textwrap.indent(block.text, "    "), end="\n\n")
            else:
                print(textwrap.fill(f"{name}: {block.text}", COLUMNS), end="\n\n")
    if kind.before():
        print(f"--- {RUNGS[kind.before() - 1].file}\n+++ {kind.file}")
    print("\n".join(f"{line.mark}{line.text}" for line in step(kind)), end="\n\n")
    columns = [_figures(device, rung, shape) for rung in rungs]
    rows = [(name, *(figures[name] for figures in columns)) for name in columns[0]]
    headings = ("", *(f"rung {rung.number}" for rung in rungs))
    sides: list[Side] = ["left", "right", "right"]
    print_table(f"{device.name}, n = {n}: counted from the formulas, or said by the driver",
                headings, sides[: len(headings)], rows)  # fmt: skip
    for rung in rungs:
        print(f"  {rung}")


def _figures(device: Device, rung: Rung, shape: Shape) -> dict[str, str]:
    """Return a rung's figures by their names, which are the same for every rung."""
    counts, can_run = count(rung, shape), not rung.missing(opencl_target(device))
    driver = compiled(device, rung) if can_run else dict.fromkeys(BY_DRIVER)
    local = counts.flops_per_local_byte
    per_unit = counts.work_groups / device.limits.compute_units
    return {
        "MB read from global memory": _megabytes(counts.read_bytes),
        "MB written to global memory": _megabytes(counts.written_bytes),
        "MB of the other kernels, global memory": _megabytes(counts.support_bytes),
        "flops per byte of global memory": f"{counts.flops_per_byte:.2f}",
        "MB read from local memory": _megabytes(counts.local_read_bytes),
        "MB written to local memory": _megabytes(counts.local_written_bytes),
        "flops per byte read from local memory": NOT_SAID if local is None else f"{local:.2f}",
        "work-items per work-group": f"{counts.work_items:,}",
        "work-groups per compute unit": f"{per_unit:,.1f}" if can_run else NOT_SAID,
        "bytes of local memory per work-group": f"{counts.local_memory_bytes:,}",
        **{name: NOT_SAID if x is None else f"{x:,}" for name, x in driver.items()},
    }


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f}"


# The tutorial's figures, of its rungs by their numbers and of libraries.
KEPLER = {rung.number: rung.kepler_gflops for rung in RUNGS if rung.kepler_gflops}
KEPLER_PEERS: dict[str, float] = {"cuBLAS": 3056, "clBlas, tuned": 798, "clBlas": 572}
COUNTED = 4096  # the size for rungs that were not measured on a device; its tiles all fit
# Parameters that the picture does not show.
HIDDEN = {"transpose", "pad", "read_only", "shuffle", "lanes", "swizzle", "split", "reduce"}
HIDDEN |= {"stages", "work_groups", "tensor", "pack"}
SUPPORT = ("transpose.wgsl", "pad.wgsl")


def wgsl_names() -> set[str]:
    """Return the names of the rungs' files in WGSL, such as ``wgsl/01_naive.wgsl``."""
    return {f"wgsl/{file.name}" for file in KERNELS.joinpath("wgsl").iterdir()}


def shipped() -> list[dict[str, Any]]:
    """Return the measurements that come with clgemm, as ``ladder --json`` writes them."""
    folder = resources.files("clgemm").joinpath("ladder", "measured")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return [climb for file in files for climb in json.loads(file.read_text(encoding="utf-8"))]


def page(climbs: Iterable[Mapping[str, Any]]) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    climbs : iterable of dict
        Measurements as ``ladder --json`` writes them. The page shows the first one at the start,
        and adds the tutorial's figures at the end.

    Raises
    ------
    ValueError
        If a measurement has parameters that its rung does not have.
    """
    data = {
        "rungs": [_rung(kind) for kind in RUNGS],
        "climbs": [*map(_climb, climbs), _kepler()],
        "support": {name: kernel_text(f"wgsl/{name}") for name in SUPPORT},
    }
    parts = {"data": json.dumps(data).replace("</", "<\\/")}
    folder = resources.files("clgemm").joinpath("ladder", "browser")

    def part(found: re.Match[str]) -> str:
        name = found[1]
        return parts[name] if name in parts else folder.joinpath(name).read_text("utf-8").rstrip()

    template = folder.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w.]+)\}\}", part, template)


def _rung(kind: type[Rung]) -> dict[str, Any]:
    said = story(kind)
    names = set(kind.parameters())
    sample = kind(**kind.presets[0])
    wgsl = f"wgsl/{kind.file.removesuffix('.cl')}.wgsl"
    device_copies = issubclass(kind, AsynchronousCopies)
    is_wide = "width" in names and not {"tile_k"} & names  # C's vectors are adjacent rows
    return {
        "number": kind.number,
        "title": kind.label(),
        "dtype": kind.dtype.name,
        "file": kind.file,
        "before": kind.before(),
        "kepler": kind.kepler_gflops,
        "layout": said.layout,
        "sections": [
            [name, [[block.text, block.is_picture] for block in blocks]]
            for name, blocks in said.sections.items()
        ],
        "code": [list(line) for line in step(kind)],
        "wgsl": kernel_text(wgsl) if wgsl in wgsl_names() else None,
        "parameters": sorted(names - HIDDEN),
        "pictured": kind.pictured,
        "local": sample.local_memory_bytes > 0,
        "wide_rows": is_wide,
        "wide_columns": is_wide and "work_n" in names,
        "in_vectors": issubclass(kind, WideLocalReads),
        "b_along_k": "transpose" not in names,
        "counted": {"n": COUNTED, **_counted(sample, COUNTED)},
        "same_sides": getattr(kind, "same_sides", False),
        "device_copies": device_copies,
    }


def _climb(climb: Mapping[str, Any]) -> dict[str, Any]:
    n = climb["n"]
    known = (("driver", "Driver "), ("date", "Date "), ("remark", ""))
    origin = [word + climb[key] for key, word in known if climb.get(key)]
    return {
        "name": climb["device"],
        "n": n,
        "note": ". ".join([*origin, "Medians by the device's clock, through OpenCL."]),
        "rungs": {
            found["rung"]: _result(found, n)
            for found in climb["rungs"]
            if found["toolchain"] == "OpenCL"
        },
        "refused": {
            found["rung"]: said + found["reason"]
            for said, key in (("not run: ", "refused"), ("cannot run here: ", "absent"))
            for found in climb.get(key, ())
            if found["toolchain"] == "OpenCL"
        },
        "peers": [{"name": p["name"], "gflops": p["gflops"]} for p in climb["peers"]],
    }


def _result(found: Mapping[str, Any], n: int) -> dict[str, Any]:
    kind, parameters = RUNGS[found["rung"] - 1], found["parameters"]
    if unknown := set(parameters) - set(kind.parameters()):
        raise ValueError(f"rung {kind.number} has no parameter {', '.join(sorted(unknown))}")
    figures = {"gflops": found["gflops"], "correct": found["correct"]}
    return {**figures, **_counted(kind(**parameters), n)}


def _counted(rung: Rung, n: int) -> dict[str, Any]:
    counts = count(rung, Shape(n, n, n))
    return {
        "parameters": ", ".join(f"{name}={value}" for name, value in asdict(rung).items()),
        "counts": {
            **asdict(counts),
            "flops_per_byte": counts.flops_per_byte,
            "flops_per_local_byte": counts.flops_per_local_byte,
        },
    }


def _kepler() -> dict[str, Any]:
    return {
        "name": "Tesla K40m",
        "n": 4096,
        "note": "The tutorial's figures of 2014. Steps 8 to 10 ran through CUDA.",
        "rungs": {number: {"gflops": gflops} for number, gflops in KEPLER.items()},
        "refused": {},
        "peers": [{"name": name, "gflops": gflops} for name, gflops in KEPLER_PEERS.items()],
    }
