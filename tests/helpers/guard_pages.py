"""A child process that multiplies operands at the ends of mapped memory.

``python -m guard_pages DEVICE...``. Beside each operand lie pages that nobody may touch:
a kernel that reads or writes there ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import replace

import numpy as np
import pytest
from kernels.test_kernels import ODD_LANES, ODD_SKINNY, ODD_TILES, OUTER, choice_of
from stand_ins import compile_plainly

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.hardware.device import find
from clgemm.hardware.traits import POCL
from clgemm.kernels import family_named
from clgemm.planning import planner
from clgemm.records.verdicts import Verdict
from clgemm.runtime import readiness

PAGE = mmap.PAGESIZE
PROT_NONE, PROT_ALL = 0, 3
libc = ctypes.CDLL(None, use_errno=True)
held = []  # the memory lives until the process ends


def between_guards(values, at_end):
    """Return a copy of an array at the end, or the begin, of memory between two guard pages."""
    size = -(-max(values.nbytes, 1) // PAGE) * PAGE
    memory = mmap.mmap(-1, size + 2 * PAGE)
    held.append(memory)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (begin, begin + PAGE + size):
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    first = PAGE + (size - values.nbytes if at_end else 0)
    copy = np.frombuffer(memory, np.float32, values.size, first).reshape(values.shape)
    copy[...] = values
    return copy


def products(sizes):
    """Multiply matrices of every order, their memory between guard pages."""
    rng = np.random.default_rng(27)
    for m, n, k in sizes:
        a, b = (rng.integers(-8, 9, s).astype(np.float32) for s in ((m, k), (k, n)))
        for at_end in (True, False):
            for turned in range(4):
                x = between_guards(a.T if turned & 1 else a, at_end)
                y = between_guards(b.T if turned & 2 else b, at_end)
                x, y = (x.T if turned & 1 else x), (y.T if turned & 2 else y)
                c = between_guards(np.full((m, n), np.nan, np.float32), at_end)
                clgemm.sgemm(1.0, x, y, 0.0, c, overwrite_c=1)
                assert (c == a @ b).all(), (m, n, k, at_end, turned)


def main():
    """Run what the device chooses by itself, and then families that it is not given."""
    device = find(sys.argv[1:])
    clgemm.set_device(device)
    products([(7, 9, 5), (33, 65, 40), (130, 70, 90)])
    products([(1, 300, 200), (400, 2, 33), (64, 64, 1500)])
    print("by the planner", flush=True)
    lanes = choice_of(ODD_LANES, device), [(3, 70, 33), (1, 25, 600), (2, 300, 7)]
    # The last chunk of k ends with a whole round of loads, of B's rows and of its columns.
    deep = choice_of(replace(ODD_LANES, chunk=24), device), [(3, 70, 40), (1, 25, 120)]
    along_k = replace(ODD_LANES, rows=2, group=64, abreast=4, chunk=64, ahead=1)
    deep_along_k = choice_of(along_k, device), [(1, 70, 64), (2, 25, 192)]
    in_place = choice_of(replace(along_k, chunk=0), device), [(1, 30, 71), (2, 25, 190), (1, 9, 3)]
    short = choice_of(OUTER[0], device), [(9, 20, 3), (8, 9, 8)]
    tiles = choice_of(ODD_TILES, device), [(12, 20, 8), (25, 41, 17)]
    packed = choice_of(replace(ODD_TILES, in_place=False), device), [(12, 20, 8), (25, 41, 17)]
    skinny = choice_of(ODD_SKINNY, device), [(3, 70, 33), (2, 300, 7)]
    for choice, sizes in (lanes, deep, deep_along_k, in_place, short, tiles, packed, skinny):
        family = family_named(choice.config.family)
        if not family.runs_on(device.traits):
            if device.platform.startswith(POCL):  # as in `skip_on_pocl`
                continue
            compile_plainly(device, pytest.MonkeyPatch())
        planner.choose = lambda *_, found=(family, choice): found
        readiness.judge = lambda *_: Verdict()
        forget_plans()
        products(sizes)
        print(family.name, flush=True)


if __name__ == "__main__":
    main()
