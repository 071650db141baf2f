"""Prints one rung: its idea, what changed in the code, and where its bytes go."""

from __future__ import annotations

import re
import textwrap
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pyopencl as cl

from clgemm.hardware.device import Device
from clgemm.hardware.pocl import compiling
from clgemm.kernels.sources import OPTIONS
from clgemm.ladder import opencl
from clgemm.ladder.rung import Counts, Rung, Shape, Target, count
from clgemm.ladder.rungs import RUNGS, configure
from clgemm.ladder.story import source, step, story
from clgemm.terminal import Side, print_table

__all__ = ["Compiled", "compiled", "explain", "registers_in"]

COLUMNS = 100
SHOWN = ("New", "How", "Why", "Cost", "Left to gain", "Error", "Runs on")
NOT_SAID = "-"
# What OpenCL says about an H200, for rungs that cannot run on the device: their bytes are counted.
H200 = Target(48 * 1024, 1024, 2**35, read_only=True, lanes=(32,), ptx=True, capability=(9, 0))
# What NVIDIA's assembler says about a kernel with -cl-nv-verbose.
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
REGISTERS = re.compile(r"Used (\d+) registers")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Compiled:
    """What the driver says about the compiled kernel ``multiply``; None where it says nothing.

    Attributes
    ----------
    local_memory_bytes, private_memory_bytes : int or None
        By ``clGetKernelWorkGroupInfo``: per work-group, and per work-item.
    registers, spilled_bytes : int or None
        By NVIDIA's compiler: registers per work-item, and bytes that it stores elsewhere instead.
    """

    local_memory_bytes: int | None = None
    private_memory_bytes: int | None = None
    registers: int | None = None
    spilled_bytes: int | None = None


def registers_in(log: str, kernel: str = "multiply") -> tuple[int | None, int | None]:
    """Return the registers and the spilled bytes that a build log names for a kernel."""
    registers = spilled = None
    current = ""
    for line in log.splitlines():
        if found := ENTRY.search(line):
            current = found[1]
        if current != kernel:
            continue
        if found := SPILLS.search(line):
            spilled = int(found[1]) + int(found[2])
        if found := REGISTERS.search(line):
            registers = int(found[1])
    return registers, spilled


def compiled(device: Device, rung: Rung) -> Compiled:
    """Compile a rung, without any cache, and return what the driver says about it."""
    target = opencl.target(device)
    options = [f"-cl-std={opencl.standard(device, rung)}", *OPTIONS, *rung.options]
    options += [f"-D{name}={value}" for name, value in rung.macros(target).items()]
    if target.ptx:
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
    registers, spilled = registers_in(log)
    return Compiled(asked(info.LOCAL_MEM_SIZE), asked(info.PRIVATE_MEM_SIZE), registers, spilled)


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
    print(f"Rung {number}: {kind.title} ({kind.file})\n")
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
    columns = [list(_figures(device, rung, shape)) for rung in rungs]
    rows = [(cells[0][0], *(value for _, value in cells)) for cells in zip(*columns, strict=True)]
    headings = ("", *(f"rung {rung.number}" for rung in rungs))
    sides: list[Side] = ["left", "right", "right"]
    print_table(f"{device.name}, n = {n}: counted from the formulas, or said by the driver",
                headings, sides[: len(headings)], rows)  # fmt: skip
    for rung in rungs:
        print(f"  {rung}")


def _figures(device: Device, rung: Rung, shape: Shape) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a rung's figures; every rung has the same names."""
    counts: Counts = count(rung, shape)
    can_run = not rung.missing(opencl.target(device))
    driver = compiled(device, rung) if can_run else Compiled()

    def said(value: int | None) -> str:
        return NOT_SAID if value is None else f"{value:,}"

    local = counts.flops_per_local_byte
    yield "MB read from global memory", _megabytes(counts.read_bytes)
    yield "MB written to global memory", _megabytes(counts.written_bytes)
    yield "MB of the other kernels, global memory", _megabytes(counts.support_bytes)
    yield "flops per byte of global memory", f"{counts.flops_per_byte:.2f}"
    yield "MB read from local memory", _megabytes(counts.local_read_bytes)
    yield "MB written to local memory", _megabytes(counts.local_written_bytes)
    yield "flops per byte read from local memory", NOT_SAID if local is None else f"{local:.2f}"
    yield "work-items per work-group", f"{counts.work_items:,}"
    per_unit = counts.work_groups / device.limits.compute_units
    yield "work-groups per compute unit", f"{per_unit:,.1f}" if can_run else NOT_SAID
    yield "bytes of local memory per work-group", f"{counts.local_memory_bytes:,}"
    yield "  the same, by the driver", said(driver.local_memory_bytes)
    yield "bytes of private memory per work-item, by the driver", said(driver.private_memory_bytes)
    yield "registers per work-item, by the driver", said(driver.registers)
    yield "bytes of spills per work-item, by the driver", said(driver.spilled_bytes)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f}"
