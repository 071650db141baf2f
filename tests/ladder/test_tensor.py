"""Tests of rungs 17 to 21: the arithmetic of split operands, the guard, and where they run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from clgemm.__main__ import main
from clgemm.hardware.choice import devices
from clgemm.ladder import measure
from clgemm.ladder.explain import H200
from clgemm.ladder.measure import Problem, kernel_text, opencl_target
from clgemm.ladder.rung import Shape, count
from clgemm.ladder.rungs import RUNGS, configure

TENSOR = [17, 18, 19, 20]
U = 2.0**-24
K = 1024
TILE_ROWS, TILE_K = 128, 64


def constants(file: str) -> dict[str, int]:
    """Return the numbers that a kernel file defines."""
    found = re.findall(r"^#define (\w+) (-?\d+)\b", kernel_text(file), re.MULTILINE)
    return {name: int(value) for name, value in found}


TOP, LEAST_SCALE = (constants("20_guard.cl")[name] for name in ("TOP", "LEAST_SCALE"))


@dataclass
class Parts:
    """A tile as rungs 19 and 20 pack it: x is about 2**scale (high + low)."""

    scale: int
    high: np.ndarray
    low: np.ndarray
    safe: bool


def split(tile: np.ndarray, k: int) -> Parts:
    """Split a float32 tile as the kernel ``pack`` of rung 20 does."""
    sizes = np.abs(tile)
    bits = int(sizes.view(np.uint32).max())
    scale = min(max((bits >> 23) - 127 - TOP, LEAST_SCALE), -LEAST_SCALE)
    too_small = 2.0 ** (scale + 1 - (k.bit_length() - 1))
    too_large = 2.0 ** (TOP + 1 - LEAST_SCALE)
    safe = bool(np.all((sizes < too_large) & ((sizes == 0) | (sizes >= too_small))))
    with np.errstate(all="ignore"):
        scaled = tile * np.float32(2.0**-scale)
        high = scaled.astype(np.float16)
        low = (scaled - high.astype(np.float32)).astype(np.float16)
    return Parts(scale, high.astype(np.float64), low.astype(np.float64), safe)


def cut(x: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Cut off what is below a power of two."""
    return np.trunc(x / last) * last


def tensor_cores(products: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Add 16 products to a sum as tensor cores do at worst.

    They align all to the largest, cut off what is below its 2**-23, and cut the sum to 24 bits.
    """
    terms = np.concatenate([total[..., None], products], axis=-1)
    largest = np.abs(terms).max(axis=-1)
    exponent = np.floor(np.log2(np.where(largest == 0, 1, largest)))
    added = cut(terms, 2.0 ** (exponent - 23)[..., None]).sum(axis=-1)
    exponent = np.floor(np.log2(np.where(added == 0, 1, np.abs(added))))
    return cut(added, 2.0 ** (exponent - 23))


def multiply(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, bool]:
    """Multiply float32 matrices as rung 19 does; also tell whether the guard lets them pass."""
    c, safe = np.zeros((len(a), b.shape[1]), np.float32), True
    for k_0 in range(0, a.shape[1], TILE_K):
        part = slice(k_0, k_0 + TILE_K)
        of_a, of_b = split(a[:, part], a.shape[1]), split(b[part].T.copy(), a.shape[1])
        safe &= of_a.safe and of_b.safe
        total = np.zeros(c.shape)
        for x, y in ((of_a.high, of_b.low), (of_a.low, of_b.high), (of_a.high, of_b.high)):
            for p in range(0, TILE_K, 16):
                total = tensor_cores(x[:, None, p : p + 16] * y[None, :, p : p + 16], total)
        added = c.astype(np.float64) + total * 2.0 ** (of_a.scale + of_b.scale)
        c = added.astype(np.float32)  # one rounding, as by fma
    return c, safe


def error_of(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest error of an element, in units of u, relative to |A| |B|."""
    wide = a.astype(np.float64), b.astype(np.float64)
    size = np.abs(wide[0]) @ np.abs(wide[1])
    return float(np.max(np.abs(c - wide[0] @ wide[1]) / np.where(size == 0, 1, size)) / U)


def edge(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Return the largest elements and the smallest that the guard lets pass, in turns of 16."""
    small = rng.uniform(1, 2, shape) * 2.0 ** (1 - 10 - TOP)  # 2/k over the scale of 2**-TOP
    large = np.arange(shape[1])[None, :] % 16 == 0
    return np.where(large & (rng.random(shape) < 0.1), 1.0, small)


SAFE = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "positive": lambda rng, shape: rng.uniform(0.5, 1, shape),
    "sparse": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.05),
    "pixels": lambda rng, shape: rng.integers(0, 256, shape),
    "tiny": lambda rng, shape: rng.uniform(0.5, 1, shape) * 2.0**-30,
    "huge": lambda rng, shape: rng.uniform(0.5, 1, shape) * 2.0**40,
    "edge": edge,
}


@pytest.mark.parametrize("name", SAFE)
def test_split_operands_keep_float32s_bound(name):
    """What the guard lets pass is off by at most 144 + k/2 + k/64 u, which is below gamma(k)."""
    rng = np.random.default_rng(3)
    a = SAFE[name](rng, (24, K)).astype(np.float32)
    b = SAFE[name](rng, (K, 24)).astype(np.float32)
    c, safe = multiply(a, b)
    assert safe
    bound = RUNGS[18](**RUNGS[18].presets[0]).error_bound(Shape(24, 24, K)) / U
    assert error_of(c, a, b) <= 144 + K / 2 + K / 64 <= bound


def test_parts_lose_two_units_and_what_is_subnormal():
    """Both parts together are off by 2 u of an element, or by 2**-25 over the scale."""
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((TILE_ROWS, TILE_K)) * 2.0 ** rng.integers(-24, 1, (128, 64))).astype(
        np.float32
    )
    parts = split(x, K)
    joined = (parts.high + parts.low) * 2.0**parts.scale
    allowed = np.maximum(2 * U * np.abs(x).astype(np.float64), 2.0 ** (parts.scale - 25))
    assert np.all(np.abs(joined - x) <= allowed)
    largest = np.abs(x).max() * 2.0**-parts.scale
    assert 2.0**TOP <= largest < 2.0 ** (TOP + 1)
    assert np.all(np.isfinite(parts.high))


def test_without_the_guard_some_products_are_inaccurate():
    """The bound does not hold for an element that the guard refuses, so the guard is needed."""
    a, b = np.zeros((16, 512), np.float32), np.ones((512, 16), np.float32)
    a[0, 0] = 1
    a[1, 1] = np.float32(1.0001 * 2.0**-36)
    c, safe = multiply(a, b)
    assert not safe
    assert error_of(c, a, b) > 512 / (1 - 512 * U)


def test_the_kernels_agree_about_their_constants():
    """Rungs 19 and 20 split alike, and Python knows the kernels' tiles."""
    assert constants("19_split_operands.cl") == constants("20_guard.cl")
    known = constants("20_guard.cl")
    assert (known["SIDE"], known["TILE_K"]) == (TILE_ROWS, TILE_K)
    assert known["ITEMS"] + known["FEEDERS"] == RUNGS[19](stages=2).items[0]
    assert known["LOW"] * 16 == 2 * TILE_ROWS * TILE_K
    assert RUNGS[19](stages=2).packed_tile_bytes == 2 * known["LOW"] * 16 + 128


GUARDED = {
    "normal": (0, lambda _: None),
    "NaN": (1, lambda a: a.__setitem__((3, 5), np.nan)),
    "Inf": (1, lambda a: a.__setitem__((3, 5), np.inf)),
    "huge": (1, lambda a: a.__setitem__((100, 50), 1e30)),
    "tiny": (1, lambda a: a.__setitem__((100, 50), 1e-20)),
    "subnormal": (1, lambda a: a.__setitem__((100, 50), 1e-40)),
    "wide": (1, lambda a: a.__imul__(np.float32(2) ** (np.arange(512) % 60 - 30))),
}


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("name", GUARDED)
def test_the_guard_keeps_the_bound_on_the_device(device, name):
    """Rung 20 keeps gamma(k) for every input, by its fallback if needed, or is refused."""
    shape, target = Shape(256, 128, 512), opencl_target(device)
    if RUNGS[19].missing(target):
        with pytest.raises(ValueError, match=r"needs an NVIDIA GPU of compute capability 9\.0"):
            configure(20, shape, target)
        return
    unsafe, change = GUARDED[name]
    rng = np.random.default_rng(2)
    a = np.asfortranarray(rng.standard_normal((shape.m, shape.k)), np.float32)
    b = np.asfortranarray(rng.standard_normal((shape.k, shape.n)), np.float32)
    change(a)
    rung = configure(20, shape, target)
    product = measure.OpenclProduct(device, rung, shape)
    product.write("a", a)
    product.write("b", b)
    product.run()
    c = product.read("c", shape.m, shape.n)
    flag = product.read("unsafe", 1, 1).view(np.uint32)[0, 0]
    assert flag == unsafe
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(c), np.isnan(exact))
    finite = np.isfinite(size)
    error = np.abs(c[finite] - exact[finite])
    assert np.all(error <= rung.error_bound(shape) * size[finite])


@pytest.mark.parametrize(
    ("number", "capability", "runs"),
    [
        *((17, x, runs) for x, runs in (((7, 5), False), ((8, 0), True), ((8, 9), True))),
        *((n, x, x == (9, 0)) for n in TENSOR[1:] for x in ((8, 0), (9, 0), (10, 0), (12, 0))),
        *((n, (0, 0), False) for n in TENSOR),
    ],
)
def test_the_compute_capability_decides(number, capability, runs):
    """mma.sync needs compute capability 8.0 or later, wgmma 9.0; the reason names the device's."""
    missing = RUNGS[number - 1].missing(replace(H200, capability=capability))
    assert (missing == "") is runs
    if not runs and any(capability):
        assert missing.endswith(f"this one has {capability[0]}.{capability[1]}")


BROKEN = [
    (17, {"tile_k": 64}, Shape(256, 256, 512), "tile_k=64 is not 16, 32 or 48"),
    (17, {}, Shape(192, 256, 512), "m=192 is not a multiple of the tile's 128"),
    (18, {}, Shape(128, 128, 64), "m=128 is not a multiple of the tile's 256"),
    (18, {"stages": 5}, Shape(256, 128, 64), "stages=5 is more than 4"),
    (18, {"work_groups": 0}, Shape(256, 128, 64), "work_groups=0 is less than 1"),
    (19, {"stages": 3}, Shape(256, 128, 512), "stages=3 is more than 2"),
    (20, {}, Shape(256, 128, 448), "k=448 is less than 512: the error bound is not proven"),
]


@pytest.mark.parametrize(("number", "parameters", "shape", "message"), BROKEN)
def test_broken_parameters_are_refused(number, parameters, shape, message):
    """The error for broken parameters of rungs 17 to 20 names the constraint and the values."""
    with pytest.raises(ValueError, match=re.escape(message)):
        configure(number, shape, H200, **parameters)


@pytest.mark.parametrize("number", TENSOR)
def test_promised_errors_are_those_of_the_header(number):
    """Rungs 17 and 18 promise half precision, and 19 and 20 float32's bound, as headers say."""
    rung, shape = configure(number, Shape(4096, 4096, 4096), H200), Shape(256, 128, 4096)
    header = kernel_text(rung.file)
    gamma = 4096 * U / (1 - 4096 * U)
    if number < 19:
        assert rung.error_bound(shape) == 2**-10 + 2**-22 + 4096 * 2**-23
        assert "(2^-10 + 2^-22 + k*2^-23) |A| |B|" in header
    else:
        assert rung.error_bound(shape) == gamma
        assert "// Error: gamma(k), as in rungs 1 to 16" in header
    assert RUNGS[0](tile=8).error_bound(shape) == gamma


@pytest.mark.parametrize("number", TENSOR)
def test_bytes_are_those_of_the_kernels_loops(number):
    """The counted bytes are those of a walk through the loops, with two bytes for each half."""
    m, n, k = shape = Shape(512, 384, 768)
    rung = configure(number, shape, H200)
    rows, columns, depth = rung.extent
    parts = 2 if number >= 19 else 1
    scale_bytes = 128 if number >= 19 else 0
    copied = read = 0
    for _tile in range(m // rows * (n // columns)):
        for _step in range(k // depth):
            copied += (rows + columns) // 128 * (128 * depth * 2 * parts + scale_bytes)
            if number == 17:
                read += 8 * depth * (32 + 64) * 2
            else:
                for _product in range(3 if parts == 2 else 1):
                    for _warp_group in range(2):
                        for _panel in range(2):
                            read += depth * (64 + 128) * 2
    counts = count(rung, shape)
    assert counts.read_bytes == counts.local_written_bytes == copied
    assert counts.local_read_bytes == read
    assert counts.written_bytes == 4 * m * n
    assert counts.flops == 2 * m * n * k * (3 if parts == 2 else 1)
    packed = (m + n) // 128 * (k // depth) * (128 * depth * 2 * parts + scale_bytes)
    extra = 4 + 4 * (m // 128) * (n // 128) if number == 20 else 0
    assert counts.support_bytes == 4 * k * (m + n) + packed + extra
    assert sum(rung.buffers(shape)[name] for name in ("packed_a", "packed_b")) * 4 == packed
    assert counts.work_groups == m // rows * (n // columns)


def test_work_groups_are_as_many_as_asked():
    """From rung 18 on, work-groups take several tiles, which changes no byte."""
    shape = Shape(4096, 4096, 4096)
    all_at_once = configure(18, shape, H200, work_groups=10_000)
    in_turn = configure(18, shape, H200)
    assert count(all_at_once, shape).work_groups == 16 * 32
    assert count(in_turn, shape).work_groups == 132
    assert count(in_turn, shape).read_bytes == count(all_at_once, shape).read_bytes


def test_rungs_that_cannot_run_are_shown(tmp_path, capsys):
    """A rung that the device cannot run is in the table and in the JSON with the reason."""
    absent = [n for n in (1, 17, 20) if RUNGS[n - 1].missing(opencl_target(devices()[0]))]
    file = tmp_path / "l.json"
    size = "16" if absent == [17, 20] else "512"  # quick where rung 1 runs alone
    arguments = ["ladder", "--device", "0", "--size", size, "--repeat", "1", "--json", str(file)]
    assert main([*arguments, "--rung", "1", "17", "20"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    (climb,) = json.loads(file.read_text())
    assert [found["rung"] for found in climb["absent"]] == absent
    assert not climb["refused"]
    for found in climb["absent"]:
        assert f"rung {found['rung']}: cannot run here: it needs an NVIDIA GPU" in printed
    if absent == [17, 20]:
        assert printed.count("cannot run") == 4  # in a row of the table each, and in a note
        assert main([*arguments, "--rung", "17"]) == 1  # nothing ran


# What mma.sync does with the words of a sub-group, in OpenCL C: the sums of 16 rows and 8 columns.
MMA = """static inline uint four(const uint a, const uint b) {
  const char4 x = as_char4(a), y = as_char4(b);
  return x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}
static inline void multiply_add(__local uint* all, uint* sum, const uint* rows,
                                const uint* columns) {
  const int item = get_local_id(0), lane = item % 32;
  __local uint* words = all + item / 32 * 32 * 6;
  for (int x = 0; x < 6; x++) words[lane * 6 + x] = x < 4 ? rows[x] : columns[x - 4];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int e = 0; e < 4; e++)
    for (int p = 0; p < 8; p++)
      sum[e] += four(words[(lane / 4 * 4 + p % 4) * 6 + e / 2 + p / 4 * 2],
                     words[((lane % 4 * 2 + e % 2) * 4 + p % 4) * 6 + 4 + p / 4]);
  barrier(CLK_LOCAL_MEM_FENCE);
}"""
CHANGES = (
    (r"static inline void multiply_add\(.*?^}", MMA),
    (r"multiply_add\(sum", "multiply_add(all, sum"),
    (r"void multiply_tiles\(", "void multiply_tiles(__local uint* all, "),
    (r" multiply_tiles\(\(", " multiply_tiles(all, ("),
    (r"  __local uint4 tile_a", "  __local uint all[ITEMS * 6];\n  __local uint4 tile_a"),
)


# Oclgrind would take many minutes.
@pytest.mark.parametrize(
    "device", [d for d in devices() if "Oclgrind" not in d.name], ids=lambda d: d.name
)
@pytest.mark.parametrize(
    "parameters",
    [
        {"tile_m": 32, "tile_n": 32, "tile_k": 64, "work_m": 16, "work_n": 16},
        {"tile_m": 16, "tile_n": 64, "tile_k": 128, "work_m": 8, "work_n": 32},
    ],
    ids=str,
)
def test_sub_groups_multiply_the_blocks_of_the_instruction(monkeypatch, device, parameters):
    """Rung 21 gives mma.sync the words it wants: on every device with its meaning in OpenCL C."""
    rung = RUNGS[20](**parameters, tensor=1)
    assert not rung.problems()
    text = kernel_text(rung.file)
    for pattern, change in CHANGES:
        text, found = re.subn(pattern, lambda _, x=change: x, text, flags=re.DOTALL | re.MULTILINE)
        assert found, pattern
    assert "asm" not in text
    monkeypatch.setattr(measure, "source", lambda _: text)
    shape = Shape(2 * rung.tile_m, 2 * rung.tile_n, 3 * rung.tile_k)
    problem = Problem(shape, rung.dtype)
    product = measure.OpenclProduct(device, rung, shape)
    product.write("a", problem.a)
    product.write("b", problem.b)
    product.run()
    np.testing.assert_array_equal(product.read("c", shape.m, shape.n), problem.a @ problem.b)


@pytest.mark.parametrize("number", [17, 20])
def test_explain_tells_a_rung_that_cannot_run(number, capsys):
    """``--explain`` prints the story and the bytes on every device, and why it cannot run."""
    assert main(["ladder", "--explain", str(number), "--size", "512"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Rung {number}: {RUNGS[number - 1].title}")
    is_missing = RUNGS[number - 1].missing(opencl_target(devices()[0])) != ""
    assert ("\nCannot run here: it needs an NVIDIA GPU" in printed) is is_missing
    assert "\nNew: " in printed
    assert f"rung {number} with " in printed
    assert "wgmma" in printed or number == 17
