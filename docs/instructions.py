"""Read what disassemblers print of a kernel, and find its loop over tiles. For predicted_share.py.

Three languages become one: an instruction names its unit, the registers that it reads and writes,
the multiply-adds of each work-item, and the bytes that one loads or stores.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from clgemm.kernels.tiled.plan import TiledConfig


class Instruction(NamedTuple):
    """An instruction of a wave.

    `unit` is "fma", "integer", "scalar", "local", "cache", "copy" (from the cache to local memory),
    "branch", "barrier", "commit" or "wait" (both of asynchronous copies).
    """

    name: str
    unit: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    fmas: int = 0  # multiply-adds of each work-item
    bytes: int = 0  # that each work-item loads or stores
    is_store: bool = False
    # The label to which a branch goes; of a wait, the copies that may be under way.
    target: str = ""
    banks: tuple[int, int] = (0, 0)  # reads of each bank of registers
    lanes: int = 0  # of the wave, that it serves; 0 for all


class Listing(NamedTuple):
    """A kernel's instructions, and the number of the one that each label precedes."""

    instructions: list[Instruction]
    labels: dict[str, int]


def registers(text: str, count: int = 0) -> tuple[str, ...]:
    """Return the registers that an operand names, `count` of them from its first one on."""
    found = []
    for kind, first, last, single in re.findall(r"\b([vsar]|acc)(?:\[(\d+):(\d+)\]|(\d+))", text):
        start = int(first or single)
        stop = start + count if count else int(last or single) + 1
        found += [f"{kind}{number}" for number in range(start, stop)]
    return tuple(found)


# NVIDIA

SASS = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;")
SASS_REGISTER = re.compile(r"\b(R|UR|UP|P)(\d+)(\.64)?(\.reuse)?")
SASS_MEMORY = {
    **dict.fromkeys(("LDS", "STS", "LDL", "STL"), "local"),
    **dict.fromkeys(("LDG", "STG", "LD", "ST"), "cache"),
    "LDGSTS": "copy",
}
SASS_OTHERS = {
    **dict.fromkeys(("FFMA", "FMUL", "FADD"), "fma"),
    "BAR": "barrier",
    "BRA": "branch",
    "LDGDEPBAR": "commit",
    "DEPBAR": "wait",
}


def parse_nvidia(text: str) -> Listing:
    """Read what nvdisasm prints of a kernel."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    kept: dict[int, str] = {}  # operands that the instruction before keeps for the same place
    is_code = False
    for line in text.splitlines():
        if found := re.match(r"\s*\.section\s+(\S+)", line):
            is_code = found[1].startswith(".text.")
        if not is_code:
            continue
        if found := re.match(r"\s*(\.L_x_\d+):", line):
            labels[found[1]] = len(instructions)
        elif found := SASS.search(line):
            made, kept = sass_instruction(found[1], found[2], kept)
            instructions.append(made)
    return Listing(instructions, labels)


def sass_instruction(
    name: str, text: str, kept: dict[int, str]
) -> tuple[Instruction, dict[int, str]]:
    """Return an instruction, and the registers that it keeps for the next one.

    Registers have two banks, by whether their numbers are even. Each is read once a clock.
    """
    base, *modifiers = name.split(".")
    operands = [part.strip() for part in text.split(",")] if text else []
    size = next((int(x) // 8 for x in modifiers if x in ("64", "128")), 4)
    memory = SASS_MEMORY.get(base)
    is_store = base.startswith("ST") or base == "LDGSTS"
    has_result = not (is_store or SASS_OTHERS.get(base, "fma") != "fma")
    reads: list[str] = []
    writes: list[str] = []
    keeps: dict[int, str] = {}
    banks = [0, 0]
    for place, operand in enumerate(operands):
        is_written = has_result and place == 0
        is_stored = base.startswith("ST") and place == len(operands) - 1
        for kind, number, wide, reuse in SASS_REGISTER.findall(operand):
            width = size // 4 if memory and (is_written or is_stored) else 2 if wide else 1
            these = [f"{kind}{int(number) + i}" for i in range(width)]
            (writes if is_written else reads).extend(these)
            if kind == "R" and not is_written:
                if kept.get(place) != these[0]:
                    banks[int(number) % 2] += 1
                if reuse:
                    keeps[place] = these[0]
    target = re.search(r"\.L_x_\d+", text)
    goes_to = target[0] if target else ""
    if base == "DEPBAR":
        goes_to = str(int(operands[-1], 16)) if operands[-1].startswith("0x") else "0"
    unit = memory or SASS_OTHERS.get(base) or ("scalar" if base.startswith("U") else "integer")
    made = Instruction(
        *(name, unit, tuple(reads), tuple(writes), int(base in ("FFMA", "FMUL"))),
        *(size if memory else 0, is_store, goes_to, (banks[0], banks[1])),
    )
    return made, keeps


# AMD

AMD_WIDTH = re.compile(r"(?:dwordx|b|dword)(\d*)")


def parse_amd(text: str) -> Listing:
    """Read clang's assembly of a kernel."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        line = line.partition(";")[0].strip()
        if found := re.match(r"(\.LBB\w+):", line):
            labels[found[1]] = len(instructions)
        elif re.match(r"(v|s|ds|global|flat|buffer|scratch)_\w+", line):
            instructions.append(amd_instruction(line))
    return Listing(instructions, labels)


def amd_instruction(line: str) -> Instruction:
    """Return an instruction. One line may hold two that are issued together."""
    parts = [part.strip().partition(" ") for part in line.split("::")]
    name = parts[0][0]
    operands = [[x.strip() for x in part[2].split(",")] for part in parts]
    is_store = "store" in name or "write" in name
    has_result = not is_store and not name.startswith(("s_cmp", "s_cbranch", "s_barrier", "s_wait"))
    writes = sum((registers(each[0]) for each in operands if has_result), ())
    reads = sum((registers(" ".join(each[has_result:])) for each in operands), ())
    if "fmac" in name or "_mac_" in name:
        reads += writes
    fmas = sum(bool(re.search(r"_(fma|fmac|mac|mad|mul)_?\w*f32", part[0])) for part in parts)
    size, target = 0, ""
    if name.startswith("v_"):
        unit = "fma" if fmas or "f32" in name else "integer"
        fmas *= 1 + ("_pk_" in name)
    elif name.startswith(("ds_", "global_", "flat_", "buffer_", "scratch_")):
        unit = "local" if name.startswith("ds_") else "cache"
        width = re.search(r"(?:_b(\d+)|dwordx(\d))$", name)
        size = 4 if width is None else int(width[1]) // 8 if width[1] else 4 * int(width[2])
        size *= 1 + bool(re.search(r"(read|write|load|store)_?2", name))
    elif name.startswith("s_barrier"):
        unit = "barrier" if "wait" in name or name == "s_barrier" else "scalar"
    elif name.startswith(("s_cbranch", "s_branch")):
        unit, target = "branch", operands[0][0]
    else:
        unit = "scalar"
    return Instruction(name, unit, reads, writes, fmas, size, is_store, target)


# Intel

GEN = re.compile(r"(?:\(([^)]*)\)\s+)?([a-z][\w.]*)\s*(?:\((\d+)\|M\d+\))?\s*(.*)")


def parse_intel(text: str, register_bytes: int = 32) -> Listing:
    """Read what Intel's ocloc prints of a kernel."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        code, _, about = line.partition("//")
        code = code.partition("{")[0].strip()
        if found := re.fullmatch(r"(\w+):", code):
            labels[found[1]] = len(instructions)
        elif (found := GEN.match(code)) and found[2] not in ("nop", "illegal"):
            lanes = int(found[3] or 1)
            made = gen_instruction(found[2], lanes, found[4].split(), about, register_bytes)
            instructions.append(made)
    return Listing(instructions, labels)


def gen_instruction(
    name: str, lanes: int, operands: list[str], about: str, register_bytes: int
) -> Instruction:
    """Return an instruction. What a message does stands in the comment behind it."""
    base = name.partition(".")[0]
    if base in ("send", "sends", "sendc"):
        found = re.search(r"wr:(\d+)h?\+(\d+), rd:(\d+)", about)
        to, data, back = map(int, found.groups()) if found else (1, 0, 0)
        writes = registers(operands[0], back) if back else ()
        reads = registers(operands[1], to) + (registers(operands[2], data) if data else ())
        # Older GPUs address local memory as surface 254.
        is_local = ".slm" in name or ("surface" in about and operands[-1].endswith("FE"))
        if "barrier" in about or ".gtwy" in name:
            return Instruction(name, "barrier", reads)
        size = register_bytes * max(data, back) // max(1, lanes)
        unit = "local" if is_local else "cache"
        return Instruction(name, unit, reads, writes, 0, size, not back, lanes=lanes)
    if base in ("jmpi", "goto", "while", "brd", "brc", "if", "else", "endif", "join"):
        return Instruction(name, "branch", target=operands[-1] if operands else "")
    if base == "sync":
        is_barrier = "bar" in name
        return Instruction(name, "wait" if is_barrier else "none", target="0")
    count = max(1, 4 * lanes // register_bytes)
    writes = registers(operands[0], count) if operands else ()
    reads = sum((registers(x, count if "<0" not in x else 1) for x in operands[1:]), ())
    is_float = any(x.endswith(":f") for x in operands[:1])
    fmas = int(base in ("mad", "mul", "mac") and is_float and lanes > 1)
    unit = "fma" if is_float else "integer"
    return Instruction(name, unit, reads, writes, fmas, lanes=lanes)


# The loop over tiles


class Loop(NamedTuple):
    """The instructions of a loop's iteration, in order, and the tiles that it multiplies."""

    instructions: list[Instruction]
    tiles: float


def loop_of(listing: Listing, config: TiledConfig) -> Loop:
    """Return the loop over tiles. A loop over the depth of a tile in it is repeated.

    It is the one with the most multiply-adds of those that have a whole block of sums.
    """
    instructions, labels = listing
    sums = config.work_m * config.work_n
    wanted = sums * config.tile_k // config.parts  # multiply-adds of a work-item for a tile

    def count(loop: tuple[int, int]) -> int:
        return sum(each.fmas for each in instructions[loop[0] : loop[1] + 1])

    loops = [
        (labels[each.target], number)
        for number, each in enumerate(instructions)
        if each.unit == "branch" and labels.get(each.target, math.inf) <= number
    ]
    large = [loop for loop in loops if count(loop) >= sums]
    if not large:
        raise ValueError(f"no loop has {sums} multiply-adds")
    outer = max(large, key=lambda loop: (count(loop), loop[1] - loop[0]))
    inner = max(
        (x for x in large if x != outer and outer[0] <= x[0] and x[1] <= outer[1]),
        key=count,
        default=None,
    )
    first, last = outer
    if inner is None:
        return Loop(instructions[first : last + 1], count(outer) / wanted)
    once = count(outer) - count(inner)
    times = max(1, round((wanted - once) / count(inner)))
    body = instructions[inner[0] : inner[1] + 1]
    whole = instructions[first : inner[0]] + times * body + instructions[inner[1] + 1 : last + 1]
    return Loop(whole, sum(each.fmas for each in whole) / wanted)
