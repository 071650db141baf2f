"""Tests of the counted bytes and of ``ladder --explain``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clgemm.__main__ import main
from clgemm.hardware.choice import devices
from clgemm.ladder.explain import BY_DRIVER, compiled, registers_in
from clgemm.ladder.measure import kernel_text, opencl_target
from clgemm.ladder.rung import Shape, count
from clgemm.ladder.rungs import RUNGS, configure

M, N, K = SHAPE = Shape(32, 16, 24)
BLOCKS = {"tile_m": 16, "tile_n": 16, "tile_k": 8, "work_m": 2, "work_n": 4}
WIDE = {**BLOCKS, "width": 4}


def counted(number: int, **parameters: int):
    """Return the counts of a rung for a small product, and the floats of its launches."""
    rung = RUNGS[number - 1](**parameters)
    assert not list(rung.problems())
    return count(rung, SHAPE)


def test_the_naive_rung_reads_two_floats_for_each_multiply_add():
    """Rung 1 reads 2 m n k floats from global memory and none from local memory."""
    counts = counted(1, tile=8)
    assert counts.read_bytes == 4 * 2 * M * N * K
    assert counts.written_bytes == 4 * M * N
    assert (counts.local_read_bytes, counts.local_written_bytes) == (0, 0)
    assert counts.flops_per_local_byte is None
    assert counts.flops == 2 * M * N * K


@pytest.mark.parametrize(
    ("number", "parameters", "reads"),
    [
        (2, {"tile": 8}, 2),
        (3, {"tile": 8, "work_n": 4}, 1 + 4),
        (4, {"tile": 8, "width": 4}, 4 + 1),
        (5, {"tile_m": 16, "tile_n": 16, "tile_k": 8, "work_n": 4}, 1 + 4),
        (6, BLOCKS, 2 + 4),
        (7, WIDE, 2 + 4),
        (8, {**WIDE, "read_only": 1, "shuffle": 0}, 2 + 4),
        (8, {**WIDE, "read_only": 0, "shuffle": 1, "lanes": 8}, 2 + 1),
        (9, WIDE, 2 + 4),
        (12, {**BLOCKS, "width": 2}, 2 + 4),
        (13, {**BLOCKS, "width": 2}, 2 + 4),
        (14, {**BLOCKS, "width": 2}, 2 + 4),
    ],
)
def test_bytes_are_those_of_the_kernels_loops(number, parameters, reads):
    """Bytes are those of a walk through the kernel's loops, work-group by work-group."""
    rung = RUNGS[number - 1](**parameters)
    copied = read = 0
    for _group in range(M // rung.extent.m * (N // rung.extent.n)):
        for _depth in range(0, K, rung.extent.k):
            copied += rung.extent.k * (rung.extent.m + rung.extent.n)
            for _item in range(rung.items[0] * rung.items[1]):
                read += rung.extent.k * reads
    counts = counted(number, **parameters)
    assert counts.read_bytes == counts.local_written_bytes == 4 * copied
    assert counts.local_read_bytes == 4 * read
    assert counts.support_bytes == (4 * 2 * N * K if number >= 5 else 0)


def test_rung_10_counts_its_padding():
    """Rung 10's flops and bytes are those of the padded sizes, and of all five kernels."""
    counts = count(RUNGS[9](**WIDE), Shape(17, 15, 9))
    assert counts.flops == 2 * 32 * 16 * 16
    pads = (17 * 9 + 32 * 16) + (9 * 15 + 16 * 16) + 2 * 16 * 16 + 2 * 17 * 15
    assert counts.support_bytes == 4 * pads
    assert counts.read_bytes == 4 * 2 * 16 * (16 + 16)


def test_rung_11_reads_global_memory_only():
    """Rung 11 reads its blocks from global memory: WORK_M + WORK_N floats a step."""
    counts = counted(11, tile_m=16, tile_n=8, work_m=8, work_n=4, width=4)
    assert counts.read_bytes == 4 * M * N * K * (8 + 4) // (8 * 4)
    assert counts.local_read_bytes == counts.local_memory_bytes == 0
    assert counts.work_items == 4


def test_rung_21_counts_ten_products_of_bytes():
    """Rung 21 reads a byte for each digit of ten pairs, and multiplies ten times."""
    parameters = {"tile_m": 16, "tile_n": 16, "tile_k": 8, "work_m": 4, "work_n": 8}
    counts = counted(21, **parameters, tensor=0)
    groups = M // 16 * (N // 16)
    assert counts.flops == 10 * 2 * M * N * K
    assert counts.read_bytes == counts.local_written_bytes == 10 * groups * K * (16 + 16)
    assert counts.local_read_bytes == 10 * groups * K * counts.work_items * (4 + 8)
    assert counts.work_items == 8
    assert counts.support_bytes == 4 * 2 * K * (M + N)
    assert counts.local_memory_bytes == 2 * 8 * (16 + 16 + 16)


def test_rung_22_counts_the_real_product():
    """Rung 22's product is rung 12's for 2m, n and 2k; it also reads A and writes it twice."""
    wide = {**BLOCKS, "width": 2}
    real = count(RUNGS[11](**wide), Shape(2 * M, N, 2 * K))
    packing = 4 * (2 + 4) * M * K
    expected = replace(real, support_bytes=real.support_bytes + packing)
    assert counted(22, **wide) == expected
    assert expected.flops == 8 * M * N * K


def test_split_k_counts_its_partial_results():
    """Rung 15 multiplies as much as rung 14, and writes and reads SPLIT partial results."""
    wide = {**BLOCKS, "width": 2}
    whole, split = counted(14, **wide), counted(15, **wide, split=3)
    assert split.flops == whole.flops
    assert split.read_bytes == whole.read_bytes
    assert split.local_read_bytes == whole.local_read_bytes
    assert split.work_groups == 3 * whole.work_groups
    assert split.written_bytes == 3 * whole.written_bytes
    assert split.support_bytes == whole.support_bytes + 4 * M * N * (3 + 1)


def test_the_readme_has_the_counted_bytes():
    """The README's table of bytes is that of the formulas, for the default parameters."""
    text = kernel_text("README.md")
    for kind in RUNGS:
        counts = count(kind(**kind.presets[0]), Shape(4096, 4096, 4096))
        local = counts.flops_per_local_byte
        cells = [
            *(str(kind.number), f"{counts.read_bytes / 1e9:.1f}", f"{counts.flops_per_byte:.2f}"),
            *([f"{counts.local_read_bytes / 1e9:.1f}", f"{local:.2f}"] if local else ["0", ""]),
        ]
        assert f"| {' | '.join(cells)}" in text


LOG = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'transpose' for 'sm_90'
ptxas info    : Function properties for transpose
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 1088 bytes smem, 376 bytes cmem[0]
ptxas info    : Compiling entry function 'multiply' for 'sm_90'
ptxas info    : Function properties for multiply
    16 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16384 bytes smem, 380 bytes cmem[0]
"""


def test_registers_are_those_of_the_kernel():
    """Registers and spills are read from the lines about the kernel, and from no others."""
    assert registers_in(LOG) == (128, 64)
    assert registers_in("") == (None, None)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_the_driver_finds_the_counted_local_memory(device):
    """The driver's local memory of a work-group is at least what the formula says."""
    small = {"tile_m": 16, "tile_n": 16, "tile_k": 8, "work_m": 2, "work_n": 4}
    rung = configure(6, SHAPE._replace(k=32), opencl_target(device), **small)
    said = compiled(device, rung)[BY_DRIVER[0]]
    assert rung.local_memory_bytes == 4 * 8 * (16 + 16)
    assert said is None or said >= rung.local_memory_bytes


@pytest.mark.parametrize(
    ("number", "parameters"),
    [
        (1, ["TS=8"]),
        (6, [f"{name}={value}" for name, value in BLOCKS.items()]),
        (11, ["tile_m=16", "tile_n=8", "work_m=2", "work_n=4", "width=4", "tile=8"]),
        (22, [f"{name}={value}" for name, value in {**WIDE, "width": 2}.items()]),
    ],
)
def test_explain_prints_the_step(number, parameters, capsys):
    """``--explain`` prints the idea, the marked code, and the figures of both rungs."""
    kind = RUNGS[number - 1]
    command = ["ladder", "--explain", str(number), "--size", "64", "--set", *parameters]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Rung {number}: {kind.label()} (")
    assert "\nNew: " in printed
    assert "flops per byte of global memory" in printed
    assert "work-groups per compute unit" in printed
    assert f"rung {number} with " in printed
    if kind.before():
        assert f"\n+++ {kind.file}\n" in printed
        assert has_line("+", printed)
        assert has_line("-", printed) is (number != 22)  # rung 22 only adds
        assert f"rung {kind.before()} with " in printed


def has_line(mark: str, text: str) -> bool:
    """Whether a line of code has the mark of a difference."""
    return any(line.startswith(mark) and line.endswith(";") for line in text.splitlines())


def test_explain_refuses_sizes_that_do_not_fit(capsys):
    """A size that the rung does not take ends with 2 and says why."""
    assert main(["ladder", "--explain", "2", "--size", "20"]) == 2
    assert "is not a multiple of the tile's" in capsys.readouterr().err
