"""Tests of docs/predicted_share.py and docs/instructions.py: no compiler and no GPU is needed."""

from __future__ import annotations

import json

import pytest
from docs_scripts import DOCS, docs_script

from clgemm.kernels.tiled.plan import TiledVariant

CONFIG = TiledVariant(
    *(32, 32, 8, 4, 4, 4, 4),
    grid_n=8,
    unroll=1,
    buffers=1,
    swizzle=8,
    fma=False,
    in_place=True,
)


@pytest.fixture(scope="module")
def script():
    """Return the script, which imports others beside it."""
    return docs_script("predicted_share")


def repeated(line, count):
    """Return a line several times."""
    return (line + "\n") * count


NVIDIA = (
    """
	.section	.text.tiled_product,"ax",@progbits
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E.128.CONSTANT R12, [R2.64] ;
.L_x_1:
        /*0020*/                   LDS.128 R4, [R20+0x10] ;
        /*0030*/                   LDS.64 R8, [R20] ;
"""
    + repeated("        /*0040*/                   FFMA R24, R4, R8.reuse, R24 ;", 16)
    + """
        /*0050*/              @P0  BRA `(.L_x_1) ;
        /*0060*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0070*/                   STS.128 [R21], R12 ;
        /*0080*/              @!P1 BRA `(.L_x_0) ;
        /*0090*/                   EXIT ;
"""
)
AMD = (
    """
tiled_product:
	s_mov_b32 s0, 0
.LBB0_1:                                ; =>This Loop Header
	global_load_b128 v[12:15], v[2:3], off
.LBB0_2:                                ; Parent Loop
	ds_load_b128 v[4:7], v20 offset:16
	ds_read2_b32 v[8:9], v20 offset1:1
	s_waitcnt lgkmcnt(0)
"""
    + repeated("	v_dual_fmac_f32 v24, v4, v8 :: v_dual_fmac_f32 v25, v5, v9", 8)
    + """
	s_cbranch_scc1 .LBB0_2
	s_barrier
	ds_store_b128 v21, v[12:15]
	s_cbranch_vccnz .LBB0_1
	s_endpgm
"""
)
SEND = "        send.{} (8|M0) {} null:0 0x0 0x0 {{$2}} // wr:{}, rd:{}; {}\n"
INTEL = (
    """
L0:
(W)     mov (1|M0)               r6.4<1>:ud    0x0:ud
L16:
"""
    + SEND.format("ugm", "r12 r16", "2+0", 4, "load.ugm.d32x4.a64.ca.ca")
    + "L32:\n"
    + SEND.format("slm", "r4 r20", "1+0", 4, "load.slm.d32x4.a32")
    + SEND.format("slm", "r8 r20", "1+0", 2, "load.slm.d32x2.a32")
    + repeated("    mad (8|M0)  r24.0<1>:f  r24.0<1;0>:f  r4.0<1;0>:f  r8.0<1>:f  {$15.dst}", 16)
    + "(W&f0.0) jmpi                                L32\n"
    + SEND.format("gtwy", "null r1", "1+0", 0, "signal barrier")
    + "(W)     sync.bar                             null\n"
    + "        send.slm (8|M0) null r21 r12:4 0x0 0x0 {$2} // wr:1+4, rd:0; store.slm.d32x4\n"
    + "(W&~f0.1) jmpi                               L16\n"
)


@pytest.mark.parametrize(
    ("parse", "text", "each"),
    [("parse_nvidia", NVIDIA, 16), ("parse_amd", AMD, 8), ("parse_intel", INTEL, 16)],
)
def test_the_loop_over_tiles_is_found_and_the_one_in_it_repeated(script, parse, text, each):
    """In three languages: 8 steps of 16 multiply-adds, whatever surrounds them."""
    loop = script.loop_of(getattr(script, parse)(text), CONFIG)
    units = [x.unit for x in loop.instructions]
    assert loop.tiles == 1
    assert sum(x.fmas for x in loop.instructions) == 8 * 16
    assert units.count("fma") == 8 * each
    assert [units.count(x) for x in ("cache", "barrier", "branch")] == [1, 1, 9]
    loads = [x.bytes for x in loop.instructions if x.unit == "local" and not x.is_store]
    assert loads == 8 * [16, 8]
    (store,) = (x for x in loop.instructions if x.is_store)
    assert (store.unit, store.bytes) == ("local", 16)
    fetch = next(x for x in loop.instructions if x.unit == "cache")
    assert set(fetch.writes) <= set(store.reads)


def test_a_kernel_without_a_loop_is_refused(script):
    """Instead of a share of something else."""
    with pytest.raises(ValueError, match="no loop has 16"):
        script.loop_of(script.Listing([], {}), CONFIG)


def test_operands_that_are_kept_are_not_read_again(script):
    """Of NVIDIA's: banks are the parity of a register's number."""
    lines = ("FFMA R4, R6.reuse, R8, R4", "FFMA R5, R6, R9, R5")
    text = '.section .text.f,"ax"\n' + "".join(f"/*0000*/ {line} ;\n" for line in lines)
    first, second = script.parse_nvidia(text).instructions
    assert (first.banks, second.banks) == ((3, 0), (0, 2))


@pytest.mark.parametrize(
    ("places", "floats", "clocks"),
    [
        ([4 * i for i in range(32)], 4, 4),  # four registers
        ([4 * (i // 2) for i in range(32)], 4, 2),  # neighbours read the same
        ([4 * (i % 2 + i // 4 * 2) for i in range(32)], 4, 2),  # the next but one do
        ([4 * (i // 4 % 2) for i in range(32)], 4, 2),
        ([2 * i for i in range(32)], 2, 2),
        ([0] * 32, 2, 1),
        (list(range(32)), 1, 1),
        ([0] * 32, 1, 1),
        ([33 * i for i in range(32)], 1, 1),
        ([2 * i for i in range(32)], 1, 2),  # two of a bank
        ([32 * i for i in range(32)], 1, 32),
    ],
)
def test_clocks_of_local_memory(script, places, floats, clocks):
    """By the registers that return and the banks that are read."""
    assert script.transactions(places, floats) == clocks


def cost(script, unit="fma", clocks=1.0, latency=4.0, reads=(), writes=(), way=0.0):
    """Return the cost of an instruction."""
    return script.Cost(unit, clocks, latency, reads, writes, (0, 0), False, 0, way)


def clocks(script, loop, waves=8, groups=1):
    """Return the clocks of a loop for each wave of a scheduler of an H200."""
    unit = script.Unit(loop, script.H200, groups, waves)
    return unit.clocks() * script.H200.schedulers / (waves * groups)


def test_a_scheduler_issues_an_instruction_a_clock(script):
    """Whatever unit executes it."""
    loop = [cost(script), cost(script, "integer")] * 50
    assert clocks(script, loop) == pytest.approx(100, rel=0.05)


def test_a_wave_waits_for_what_it_reads_unless_others_hide_that(script):
    """One wave of a scheduler waits for each result; with enough of them, no clock is lost."""
    loop = [cost(script, reads=("R1",), writes=("R1",))] * 100
    assert clocks(script, loop, waves=4) == pytest.approx(400, rel=0.05)
    assert clocks(script, loop, waves=32) == pytest.approx(100, rel=0.05)


def test_local_memory_serves_all_schedulers(script):
    """Four clocks of a load are sixteen for a wave of each of four schedulers."""
    loop = [cost(script, "local", way=4.0)] * 100
    assert clocks(script, loop) == pytest.approx(1600, rel=0.05)


def test_a_work_group_alone_waits_at_its_barrier(script):
    """Another one computes meanwhile."""
    loop = [cost(script, "barrier"), *[cost(script)] * 50]
    assert clocks(script, loop, waves=8) > 60
    assert clocks(script, loop, waves=8, groups=4) == pytest.approx(51, rel=0.1)


@pytest.fixture(scope="module")
def found():
    """Return what the script has written."""
    return json.loads((DOCS / "measured" / "predicted_share.json").read_text(encoding="utf-8"))


def test_the_file_predicts_what_the_planner_chooses(script, found):
    """Whoever changes a default predicts anew: python docs/predicted_share.py."""
    for target in script.TARGETS:
        if target.name in script.CORES:
            kernel, packed = script.default_kernel(target)
            known = found["targets"][target.name]
            assert (known["config"], known["packed"]) == (script.name_of(kernel.config), packed)


def test_predictions_of_measured_configs_are_right_within_a_fifth(found):
    """From the code of the GPU's own driver: of ten configs, drawn before any was measured."""
    rows = found["test"]["rows"]
    assert len(rows) == 10
    for row in rows:
        assert 1 / 1.2 <= row["driver"] / row["measured"] <= 1.2, row


def test_predicted_configs_are_those_that_were_drawn_and_measured(script, found):
    """The draw, the file with times and the one with shares agree."""
    traits = next(each for each in script.TARGETS if each.name == "sm_90").device().traits
    measured = script.read(DOCS / "measured" / "shares_h200.json.gz")["configs"]
    for role, draw in (("test", script.TEST), ("develop", script.DEVELOP)):
        plans = (script.plan_for(each, traits.limits) for each in script.drawn(traits, *draw))
        configs = [TiledVariant(**each["config"]) for each in measured if each["role"] == role]
        assert [plan.steps[-1].config for plan in plans] == configs
        if role == "test":
            names = [script.name_of(config) for config in configs]
            assert names == [row["config"] for row in found["test"]["rows"]]


def test_gpus_of_other_makers_reach_their_half(found):
    """But for an integrated GPU, whose memory takes long to pack operands in."""
    shares = {name: each["share"] for name, each in found["targets"].items()}
    assert min(share for name, share in shares.items() if name != "tgllp") >= 0.5, shares
