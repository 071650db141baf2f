"""Tests of the ladder on every device and toolchain of the machine."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clgemm
from clgemm import ladder
from clgemm.__main__ import main
from clgemm.hardware.choice import devices
from clgemm.hardware.device import Device
from clgemm.hardware.traits import POCL
from clgemm.ladder import command, measure
from clgemm.ladder.measure import expected_seconds, integer_product, opencl_target
from clgemm.ladder.rung import Rung, Shape, Target
from clgemm.ladder.rungs import RUNGS, TUTORIAL_NAMES, configure

GUARD = 67  # floats beyond the end of each buffer
TUTORIALS_GPU = Target(48 * 1024, 1024, 2**32, lanes=(32,), is_nvidia=True)
SMALL_DEVICE = Target(32 * 1024, 256, 2**28)
CUBE = Shape(640, 640, 640)  # a multiple of every default tile up to rung 17's
LARGER_CUBE = Shape(1280, 1280, 1280)  # and of those of rungs 18 to 20
TENSOR_GPU = replace(TUTORIALS_GPU, capability=(9, 0))


@dataclass(frozen=True)
class Toolchain:
    """A device and its compiler."""

    name: str
    target: Target
    product: object  # (rung, shape, guard) -> Product
    simulated: bool  # too slow for the default tiles, or takes ten seconds to compile one
    is_pocl: bool = False  # beside others

    def __str__(self) -> str:
        return self.name


def toolchains() -> list[Toolchain]:
    """Return OpenCL's devices, and CUDA's if CuPy finds one."""
    found = [
        Toolchain(
            f"{d.platform.split(',')[0]}-{d.name}",
            opencl_target(d),
            lambda *args, device=d: measure.OpenclProduct(device, *args),
            "Oclgrind" in d.name or is_pocl,
            is_pocl,
        )
        for d in devices()
        for is_pocl in [len(devices()) > 1 and d.platform.startswith(POCL)]
    ]
    if not measure.cuda_problem():
        found.append(Toolchain("CUDA", measure.cuda_target(), measure.CudaProduct, False))
    return found


TOOLCHAINS = toolchains()
on_every_toolchain = pytest.mark.parametrize("toolchain", TOOLCHAINS, ids=str)


@pytest.fixture(autouse=True, scope="module")
def no_memory_is_reused():
    """Keep all buffers, since Oclgrind reports false errors for memory that is freed and reused."""
    held = []

    class Held(measure.OpenclProduct):
        def __init__(self, *args):
            super().__init__(*args)
            held.append(self)

    with pytest.MonkeyPatch.context() as patch:
        if any(t.simulated for t in TOOLCHAINS):
            patch.setattr(measure, "OpenclProduct", Held)
        yield


BLOCKS = {"tile_m": 16, "tile_n": 16, "tile_k": 8, "work_m": 2, "work_n": 4, "transpose": 4}
PLAIN = {"read_only": 0, "shuffle": 0}
SLICES = {"tensor": 0, "pack": 3}
SMALL = [
    (1, {"tile": 4}),
    (2, {"tile": 4}),
    (3, {"tile": 8, "work_n": 2}),
    (3, {"tile": 8, "work_n": 8}),
    (4, {"tile": 8, "width": 1}),
    (4, {"tile": 8, "width": 2}),
    (4, {"tile": 8, "width": 4}),
    (4, {"tile": 8, "width": 8}),
    (5, {"tile_m": 16, "tile_n": 16, "tile_k": 4, "work_n": 4, "transpose": 8}),
    (5, {"tile_m": 12, "tile_n": 12, "tile_k": 8, "work_n": 3, "transpose": 5}),
    (6, {**BLOCKS}),
    (6, {**BLOCKS, "tile_m": 12, "tile_n": 12, "work_m": 3, "work_n": 6}),
    (7, {**BLOCKS, "width": 1}),
    (7, {**BLOCKS, "width": 2}),
    (7, {**BLOCKS, "width": 4}),
    (7, {**BLOCKS, "tile_k": 16, "width": 8}),
    (8, {**BLOCKS, "width": 4, **PLAIN}),
    (9, {**BLOCKS, "width": 1}),
    (9, {**BLOCKS, "width": 2}),
    (9, {**BLOCKS, "width": 4}),
    (9, {**BLOCKS, "tile_k": 16, "width": 8}),
    (10, {**BLOCKS, "width": 4, "pad": 4}),
    (10, {**BLOCKS, "tile_n": 32, "width": 1, "pad": 8}),
    (10, {"tile_m": 12, "tile_n": 20, "tile_k": 8, "work_m": 3, "work_n": 5, "width": 2}),
    (11, {"tile_m": 8, "tile_n": 6, "work_m": 1, "work_n": 3, "width": 1}),
    (11, {"tile_m": 8, "tile_n": 8, "work_m": 2, "work_n": 2, "width": 8}),
    (11, {"tile_m": 16, "tile_n": 8, "work_m": 8, "work_n": 4, "width": 4}),
    (12, {**BLOCKS, "width": 1}),
    (12, {**BLOCKS, "tile_m": 32, "tile_n": 32, "work_m": 4, "work_n": 8, "width": 4}),
    (13, {**BLOCKS, "width": 2}),
    (14, {**BLOCKS, "width": 2, "swizzle": 3}),
    (15, {**BLOCKS, "width": 2, "swizzle": 2, "split": 3, "reduce": 5}),
    (16, {**BLOCKS, "width": 2}),
    (16, {**BLOCKS, "tile_n": 24, "tile_k": 6, "width": 1}),
    (21, {**SLICES, "tile_m": 16, "tile_n": 32, "tile_k": 16, "work_m": 4, "work_n": 8}),
    (21, {**SLICES, "tile_m": 12, "tile_n": 12, "tile_k": 12, "work_m": 4, "work_n": 4}),
    (22, {**BLOCKS, "width": 2, "pack": 5}),
]


def integers(rows: int, columns: int, seed: int, dtype: np.dtype) -> np.ndarray:
    """Return integers so small that sums of a few hundred products are exact, or any int32."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "i":
        return np.asfortranarray(rng.integers(-(2**31), 2**31, (rows, columns)), dtype)
    drawn = rng.integers(-9, 10, (2, rows, columns))
    return np.asfortranarray(drawn[0] + (1j * drawn[1] if dtype.kind == "c" else 0), dtype)


NOTHING = {"f": np.nan, "c": complex(np.nan, np.nan), "i": 0x5A5A5A5A}  # by the dtype's kind


def assert_exact(toolchain: Toolchain, rung: Rung, shape: Shape) -> None:
    """Assert that a rung is exact, in memory full of NaN that reveals wrong reads and writes."""
    a, b = integers(shape.m, shape.k, 1, rung.dtype), integers(shape.k, shape.n, 2, rung.dtype)
    product = toolchain.product(rung, shape, GUARD)
    sizes = rung.buffers(shape)
    nothing = np.full(max(sizes.values()) + GUARD, NOTHING[rung.dtype.kind], rung.dtype)
    for name, size in sizes.items():
        product.write(name, nothing[: size + GUARD, None])
    product.write("a", a)
    product.write("b", b)
    times_ns = product.run()
    assert len(times_ns) == len(rung.launches(shape))
    expected = a @ b  # modulo 2**32, if they are int32
    np.testing.assert_array_equal(product.read("c", shape.m, shape.n), expected)
    np.testing.assert_array_equal(product.read("a", shape.m, shape.k), a)
    np.testing.assert_array_equal(product.read("b", shape.k, shape.n), b)
    for name, size in sizes.items():
        guard = product.read(name, size + GUARD, 1)[size:]
        assert np.array_equal(guard[:, 0], nothing[:GUARD], equal_nan=True), (
            f"written beyond the end of {name}"
        )


# The command's default parameters, except on simulators, which would take minutes for such tiles.
DEFAULTS = [(number, {}) for number in range(1, len(RUNGS) + 1)]
# PoCL beside others compiles one case of each rung: they have the rest.
ONE_EACH = list(dict(SMALL).items())
CASES = [
    (t, number, parameters)
    for t in TOOLCHAINS
    for number, parameters in (
        ONE_EACH if t.is_pocl else SMALL if t.simulated else SMALL + DEFAULTS
    )
]


@pytest.mark.parametrize(("toolchain", "number", "parameters"), CASES, ids=str)
def test_rungs_are_exact_on_small_integers(toolchain, number, parameters):
    """Each rung is exact on small integers for m, n and k that all differ, or cannot run."""
    shape = Shape(256, 128, 64) if number < 17 else Shape(512, 256, 576)
    if parameters:
        tile = RUNGS[number - 1](**parameters).extent
        shape = Shape(2 * tile.m, tile.n, 3 * (tile.k if number > 1 else 5))
    if missing := RUNGS[number - 1].missing(toolchain.target):
        assert missing.startswith(("it needs an NVIDIA GPU", "the toolchain does not have"))
        with pytest.raises(ValueError, match=missing.partition(";")[0]):
            configure(number, shape, toolchain.target, **parameters)
        return
    assert_exact(toolchain, configure(number, shape, toolchain.target, **parameters), shape)


@on_every_toolchain
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize(("read_only", "shuffle"), [(1, 0), (0, 1), (1, 1)])
def test_rung_8_is_exact_or_says_what_is_missing(toolchain, width, read_only, shuffle):
    """Rung 8 is exact where the device has read-only loads and shuffles, and refused elsewhere."""
    shape, target = Shape(128, 64, 48), toolchain.target
    lanes = target.lanes[0] if target.lanes else 32
    parameters = {
        "tile_m": 64,
        "tile_n": 64,
        "tile_k": 16,
        "work_m": 4,
        "work_n": 4,
        "width": width,
        "read_only": read_only,
        "shuffle": shuffle,
        "lanes": lanes,
    }
    missing = [
        text
        for text, needed, there in (
            ("no read-only loads", read_only, target.is_nvidia),
            ("not a sub-group size with shuffles here", shuffle, target.lanes),
        )
        if needed and not there
    ]
    if missing:
        with pytest.raises(ValueError, match=missing[0]):
            configure(8, shape, target, **parameters)
    else:
        assert_exact(toolchain, configure(8, shape, target, **parameters), shape)


@on_every_toolchain
@pytest.mark.parametrize(
    ("number", "order"), [(14, {"swizzle": 2}), (14, {"swizzle": 8}), (15, {"swizzle": 3})]
)
def test_bands_cover_every_tile(toolchain, number, order):
    """Rungs 14 and 15 are exact where the last band has fewer rows of tiles than the others."""
    shape = Shape(5 * 16, 4 * 16, 32)
    parameters = {**BLOCKS, "width": 2, **order}
    assert_exact(toolchain, configure(number, shape, toolchain.target, **parameters), shape)


@on_every_toolchain
@settings(deadline=None, max_examples=25)
@given(shape=st.builds(Shape, *3 * [st.integers(1, 45)]))
def test_rung_10_takes_any_size(toolchain, shape):
    """Rung 10 is exact for any size around the tiles' edges."""
    parameters = {"tile_m": 12, "tile_n": 20, "tile_k": 8, "work_m": 3, "work_n": 5, "width": 2}
    assert_exact(toolchain, configure(10, shape, toolchain.target, **parameters), shape)


@on_every_toolchain
def test_rung_10_takes_a_size_of_one(toolchain):
    """Rung 10 is exact for matrices of one element, with its default tiles."""
    parameters = (
        {"tile_m": 20, "tile_n": 20, "tile_k": 4, "width": 2} if toolchain.simulated else {}
    )
    shape = Shape(1, 1, 1)
    assert_exact(toolchain, configure(10, shape, toolchain.target, **parameters), shape)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_run_checks_and_times(device: Device):
    """clgemm.ladder.run returns a correct result with times and sizes."""
    result = ladder.run(10, (33, 17, 21), device=devices().index(device), repeat=1, tile_m=20,
                        tile_n=20, tile_k=4)  # fmt: skip
    assert result.correct
    assert result.shape == (33, 17, 21)
    assert result.time_ns > 0
    assert result.gflops == 2 * 33 * 17 * 21 / result.time_ns
    assert 0 < result.support_share < 1


def test_run_takes_the_tutorials_names():
    """clgemm.ladder.run takes the tutorial's names of parameters, such as TSM for tile_m."""
    result = ladder.run(6, 32, repeat=1, TSM=16, TSN=16, TSK=8, WPTM=2, WPTN=4)
    assert asdict(result.rung).items() >= {"tile_m": 16, "tile_k": 8, "work_m": 2}.items()
    assert result.correct


BROKEN = [
    (0, {}, r"rung 0 is not one of 1 to 22"),
    (23, {}, r"rung 23 is not one of 1 to 22"),
    (1, {"width": 4}, r"rung 1 has no parameter width; it has tile"),
    (1, {"tile": 0}, r"tile=0 is less than 1"),
    (1, {"tile": 64}, r"4096 work-items per work-group of multiply exceed the device's 1024"),
    (1, {"tile": 7}, r"m=640 is not a multiple of the tile's 7"),
    (2, {"tile": 12}, r"k=640 is not a multiple of the tile's 12"),
    (3, {"tile": 32, "work_n": 5}, r"tile=32 is not a multiple of work_n=5"),
    (4, {"tile": 32, "width": 16}, r"width=16 is not one of \(1, 2, 4, 8\)"),
    (4, {"tile": 20, "width": 8}, r"tile=20 is not a multiple of width=8"),
    (5, {"tile_m": 20}, r"tile_m=20 differs from tile_n=\d+"),
    (5, {"tile_k": 1}, r"a tile of a takes 64 loads of 1 floats, not a multiple of the 512"),
    (5, {"transpose": 64}, r"4096 work-items per work-group of transpose exceed the device's 1024"),
    (6, {"work_m": 3}, r"tile_m=128 is not a multiple of work_m=3"),
    (6, {"work_n": 3}, r"tile_n=128 is not a multiple of work_n=3"),
    (
        6,
        {"tile_m": 128, "tile_n": 128, "tile_k": 64},
        r"65536 bytes of local memory of multiply exceed the device's 49152",
    ),
    (7, {"width": 3}, r"width=3 is not one of"),
    (
        7,
        {**BLOCKS, "tile_m": 20, "tile_n": 20, "width": 8},
        r"tile_m=20 is not a multiple of width=8",
    ),
    (8, {"work_m": 0, "shuffle": 1}, r"work_m=0 is less than 1"),
    (8, {"shuffle": 2}, r"shuffle=2 is neither 0 nor 1"),
    (8, {"read_only": 1, "width": 8}, r"width=8 is not one of \(1, 2, 4\) with read_only=1"),
    (8, {"shuffle": 1, "lanes": 16}, r"lanes=16 is not a sub-group size with shuffles here"),
    (8, {"shuffle": 1, "work_m": 32, "work_n": 8}, r"4 work-items along the rows are not"),
    (
        9,
        {"tile_m": 128, "tile_n": 128, "tile_k": 32},
        r"65536 bytes of local memory of multiply exceed the device's 49152",
    ),
    (10, {"tile_m": 160, "tile_n": 30, "width": 4}, r"tile_n=30 is not a multiple of width=4"),
    (10, {"pad": 33}, r"1089 work-items per work-group of pad exceed the device's 1024"),
    (10, {"tile_n": 70, "work_n": 7, "tile_k": 8}, r"a tile of b takes 280 loads of 2 floats"),
    (11, {"work_m": 3, "tile_m": 48}, r"work_m=3 is not one of \(1, 2, 4, 8\)"),
    (11, {"tile_n": 30}, r"tile_n=30 is not a multiple of work_n=4"),
    (12, {"width": 8, "work_n": 4, "tile_k": 32}, r"work_n=4 is not a multiple of width=8"),
    (13, {**BLOCKS, "tile_m": 24, "tile_n": 24, "tile_k": 3, "width": 1}, r"tile_k=3 is odd"),
    (14, {"swizzle": 0}, r"swizzle=0 is less than 1"),
    (15, {"split": 3}, r"k=640 is not a multiple of split=3 times tile_k=16"),
    (15, {"reduce": 33}, r"1089 work-items per work-group of reduce exceed the device's 1024"),
    (21, {"tensor": 1}, r"tensor=1, but the device has no tensor cores that mma.sync reaches"),
    (21, {"tensor": 1, "work_n": 8, "work_m": 4}, r"work_m=4 is not a multiple of 8; work_n=8 is"),
    (21, {"tile_k": 6}, r"tile_k=6 is not a multiple of 4"),
    (21, {"tile_m": 32, "work_m": 1}, r"a tile of a takes 64 loads of 16 digits, not a multiple"),
    (22, {"tile_m": 96}, r"tile_m=96 differs from tile_n=\d+"),
    (22, {**BLOCKS, "tile_k": 24, "width": 1}, r"2k=1280 is not a multiple of the tile's 24"),
]


@pytest.mark.parametrize(("number", "parameters", "message"), BROKEN)
def test_broken_parameters_are_refused(number, parameters, message):
    """The error for broken parameters names the constraint and the values that break it."""
    with pytest.raises(ValueError, match=message):
        configure(number, CUBE, TUTORIALS_GPU, **parameters)


def test_rung_16_is_refused_where_it_cannot_run():
    """Without asynchronous copies, as through CUDA, rung 16 is refused with the reason."""
    target = replace(TUTORIALS_GPU, is_cuda=True)
    with pytest.raises(ValueError, match="does not have OpenCL's async_work_group_copy"):
        configure(16, CUBE, target)
    assert configure(15, CUBE, target)


def test_runs_are_refused():
    """clgemm.ladder.run refuses two sizes and zero repetitions."""
    with pytest.raises(ValueError, match=r"n=\(8, 8\) is neither one size nor \(m, n, k\)"):
        ladder.run(1, (8, 8))
    with pytest.raises(ValueError, match="repeat=0 is less than 1"):
        ladder.run(1, 8, repeat=0)


def test_sizes_are_refused():
    """Sizes below 1 and matrices that an int cannot index are refused."""
    with pytest.raises(ValueError, match=r"\(0, 1, 1\) are not all 1 or more"):
        configure(10, Shape(0, 1, 1), TUTORIALS_GPU)
    with pytest.raises(ValueError, match=r"a matrix of 4294967296 numbers of four bytes exc"):
        configure(1, Shape(2**16, 2**16, 32), TUTORIALS_GPU)


def test_parameters_are_whole_numbers():
    """A parameter that is a float raises TypeError."""
    with pytest.raises(TypeError):
        configure(1, CUBE, TUTORIALS_GPU, tile=16.0)


@pytest.mark.parametrize("kind", RUNGS, ids=lambda kind: kind.file)
@pytest.mark.parametrize("target", [TENSOR_GPU, SMALL_DEVICE], ids=["GPU", "small"])
def test_every_preset_keeps_the_constraints(kind, target):
    """Every preset meets the rung's constraints, and one fits each device that can run it."""
    for preset in kind.presets:
        assert not list(kind(**preset).problems())
    if kind.missing(target):
        assert (kind.number >= 17, target) == (True, SMALL_DEVICE)
        return
    rung = configure(kind.number, LARGER_CUBE, target)
    assert not list(rung.problems_on(target, LARGER_CUBE))


def test_the_tutorials_configuration_is_the_default():
    """On a device with enough local memory, rung 10's default is the tutorial's configuration."""
    rung = configure(10, Shape(4096, 4096, 4096), TUTORIALS_GPU)
    assert rung.extent == (160, 160, 16)
    assert rung.items == (16, 16)
    assert rung.padded(Shape(4096, 4096, 4096)) == (4160, 4160, 4096)
    assert [launch.kernel for launch in rung.launches(Shape(4096, 4096, 4096))] == [
        *("pad", "pad", "transpose", "multiply", "unpad")
    ]


@pytest.mark.parametrize("kind", RUNGS, ids=lambda kind: kind.file)
def test_kernel_files_name_their_macros(kind):
    """A kernel file has an #error for each of the macros that its rung defines, and no others."""
    rung = configure(kind.number, LARGER_CUBE, TENSOR_GPU)
    text = measure.source(rung)
    demanded = re.findall(r'#ifndef (\w+)\n#error "\1: ', text)
    assert sorted(demanded) == sorted(rung.macros(TENSOR_GPU))
    assert kind.file.startswith(f"{kind.number:02}_")
    assert f"// Rung {kind.number}, " in text


def test_the_tutorials_names_are_parameters():
    """Each of the tutorial's names stands for a parameter of some rung."""
    known = {name for kind in RUNGS for name in asdict(kind(**kind.presets[0]))}
    assert set(TUTORIAL_NAMES.values()) <= known


def test_production_does_not_import_the_ladder():
    """No other package imports the ladder, and the command line does only when it runs."""
    folder = Path(clgemm.__file__).parent
    for path in set(folder.rglob("*.py")) - set((folder / "ladder").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = tree.body if path.name == "__main__.py" else ast.walk(tree)
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "ladder" not in ast.unparse(node), path


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_command_prints_writes_and_draws(device, tmp_path, capsys):
    """The command prints tables, writes JSON and a picture, and returns 0 if all is right."""
    number = str(devices().index(device))
    files = ["--json", str(tmp_path / "l.json"), "--plot", str(tmp_path / "l.png")]
    arguments = ["ladder", "--device", number, "--size", "16", "--rung", "1", "5", "--repeat", "1"]
    assert main([*arguments, "--set", "TS=8", "transpose=8", *files]) == 0
    printed, told = capsys.readouterr()
    assert "n = 16: 2 rungs, less than a minute\n" in told
    assert "naive" in printed
    assert "clgemm.sgemm" in printed
    (climb,) = json.loads((tmp_path / "l.json").read_text())
    assert [rung["rung"] for rung in climb["rungs"]] == [1, 5]
    assert climb["rungs"][0]["parameters"] == {"tile": 8}
    assert {"clgemm.sgemm", "NumPy on the host"} <= {peer["name"] for peer in climb["peers"]}
    assert (tmp_path / "l.png").read_bytes().startswith(b"\x89PNG")


def test_rungs_of_other_dtypes_are_labelled(tmp_path, capsys):
    """The command names a dtype other than float32, and compares it with no product of float32."""
    file = tmp_path / "l.json"
    arguments = ["ladder", "--size", "16", "--rung", "21", "22", "--repeat", "1"]
    small = {**BLOCKS, "tile_k": 16, "work_m": 4, "width": 1}
    parameters = [f"{name}={value}" for name, value in small.items()]
    assert main([*arguments, "--json", str(file), "--set", *parameters, "tensor=0"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "21 eight-bit slices (int32)" in printed
    assert "22 complex numbers (complex64)" in printed
    (climb,) = json.loads(file.read_text())
    assert climb["peers"] == []
    for rung, dtype, flops in zip(climb["rungs"], ("int32", "complex64"), (2, 8), strict=True):
        assert rung["dtype"] == dtype
        assert rung["gflops"] == flops * 16**3 / rung["time_ns"]


def test_the_reference_of_integers_is_numpys():
    """The product of int32 by halves in float64 is NumPy's, also where it overflows."""
    a, b = (integers(*size, 3, np.dtype(np.int32)) for size in ((5, 300), (300, 7)))
    a[0], b[:, 0] = -(2**31), -(2**31)
    a[1], b[:, 1] = 2**31 - 1, -1
    np.testing.assert_array_equal(integer_product(a, b), a @ b)


def test_the_expected_time_grows_with_the_work():
    """Rungs cost a second each at least, and a large product on a processor takes many minutes."""
    assert expected_seconds("CPU", 1, 20, None) == pytest.approx(20, rel=1e-3)
    assert expected_seconds("CPU", 4096, 20, None) > 60 * expected_seconds("GPU", 4096, 1, None)
    assert expected_seconds("CPU", 4096, 20, 1) < expected_seconds("CPU", 4096, 20, None)


def test_command_refuses_clearly(capsys):
    """The command returns 1 if a rung is refused, and 2 if the arguments are wrong."""
    assert main(["ladder", "--size", "20", "--rung", "1", "--repeat", "1"]) == 1
    assert "refused" in capsys.readouterr().out
    assert main(["ladder", "--rung", "1", "--set", "width=4"]) == 2
    assert "width" in capsys.readouterr().err
    assert main(["ladder", "--device", "no such device"]) == 2
    assert "no such device" in capsys.readouterr().err


def climbed(scale=1.0, **peers):
    """Return a climb of invented figures with these peers."""
    return SimpleNamespace(
        device="D",
        n=4096,
        results={
            (n, "OpenCL"): SimpleNamespace(gflops=scale * n) for n in range(1, len(RUNGS) + 1)
        },
        peers=[SimpleNamespace(name=name, gflops=gflops) for name, gflops in peers.items()],
    )


def test_the_picture_has_all_figures():
    """The bars fill the axes, and a legend inside the picture has each peer with its figure."""
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    peers = {"NumPy on the host": 10.0, "clgemm.sgemm": 10.1, "cuBLAS": 1020.0}
    figure = command.picture(climbed(**peers))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    axes = figure.axes[0]
    box, legend = (x.get_window_extent(renderer) for x in (axes, axes.get_legend()))
    last = max(bar.get_window_extent(renderer).x1 for bar in axes.patches)
    assert last > box.x0 + 0.97 * box.width
    assert box.x1 < legend.x0 < legend.x1 <= figure.bbox.x1
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    expected = ["cuBLAS: 1,020", "clgemm.sgemm: 10.1", "NumPy on the host: 10", "OpenCL"]
    assert sorted(names) == sorted(expected)
    assert axes.get_ylim()[1] < 100  # a far peer flattens no bar


def test_small_figures_have_ticks_of_their_own():
    """The axis of a slow device has different labels at all ticks."""
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = command.picture(climbed(0.3))
    FigureCanvasAgg(figure).draw()
    ticks = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(ticks) == len(set(ticks)) > 3
