"""Prints one rung: its idea, what changed in the code, and where its bytes go."""

from __future__ import annotations

import re
import textwrap
import time
import warnings
from dataclasses import fields
from typing import Any

import pyopencl as cl

from clgemm.hardware.device import Device
from clgemm.hardware.runtimes import compiling
from clgemm.kernels.sources import OPTIONS
from clgemm.ladder import opencl
from clgemm.ladder.rung import Rung, Shape, Target, count
from clgemm.ladder.rungs import RUNGS, configure
from clgemm.ladder.story import source, step, story
from clgemm.terminal import Side, print_table

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
    target = opencl.target(device)
    options = [f"-cl-std={opencl.standard(device, rung)}", *OPTIONS, *rung.options]
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
    shape, target = Shape(n, n, n), opencl.target(device)
    rungs = []
    for each in filter(None, (kind.before(), number)):
        names = {field.name for field in fields(RUNGS[each - 1])}
        given = {name: value for name, value in parameters.items() if name in names}
        able = H200 if RUNGS[each - 1].missing(target) else target
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
    counts, can_run = count(rung, shape), not rung.missing(opencl.target(device))
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
