"""Imports run one way, and the pure modules know no OpenCL."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import clgemm

FOLDER = Path(clgemm.__file__).parent
# Each row may import from rows further down only.
ROWS = [
    {"__main__", "tensor_trial", "trial"},
    {"__init__"},
    {"info", "chain"},
    {"products"},
    {"blas", "contraction"},
    {"launch", "storage"},
    {"pipeline", "repeats"},
    {"staging", "tensor", "tensor_plan", "workspace"},
    {"bound_plan", "waiting"},
    {"operands"},
    {"programs", "plan"},
    {"binaries"},
    {"local_panels", "register_panels", "skinny", "tensor_narrow"},
    {"panels", "register_spread"},
    {"steps"},
    {"database"},
    {"serving"},
    {"by_hand", "crossovers", "tuned"},
    {"hardware.choice"},
    {"hardware.diagnosis", "hardware.health"},
    {"identity", "proof"},
    {"device", "local_spread"},
    {"hardware.runtimes", "records"},
    {"tensor_config"},
    {"skinny_config", "tile_config"},
    {"pack_config", "sources", "windows"},
    {"cache", "child", "config", "layout", "output", "precision", "shapes", "streaming", "terminal"}
    | {"forks", "nesting", "pocl_space", "pocl_threads"},
    {"settings"},
]
TUNER_ROWS = [
    {"command"},
    {"plot", "session"},
    {"task"},
    {"search", "starts", "trials"},
    {"spaces"},
    {"space"},
]
BENCH_ROWS = [
    {"command"},
    {"plot"},
    {"report", "rounds", "worker"},
    {"contenders", "startup"},
    {"figures", "operands", "peak", "pipe"},
    {"cases"},
]
ACCEL_ROWS = [
    {"__main__"},
    {"__init__"},
    {"advice", "session", "run"},
    {"children", "hooks"},
    {"arguments", "routing"},
    {"crossover"},
    {"failures", "inside", "places", "semantics", "tally"},
]
PURE_BENCH = {"cases", "figures", "operands", "pipe", "rounds", "report"}
PURE_TUNER = {"search", "space", "spaces"}
PURE = {"config", "layout", "local_panels", "pack_config", "panels", "plan", "precision"}
PURE |= {"records", "register_panels", "register_spread", "shapes", "skinny", "skinny_config"}
PURE |= {"local_spread", "steps", "streaming", "tensor_config", "tensor_narrow"}
PURE |= {"settings", "sources", "tensor_plan", "tile_config", "windows"}


def imported(module: str) -> set[str]:
    """Every module that a module's source imports, clgemm's own by their last name."""
    tree = ast.parse((FOLDER / f"{module.replace('.', '/')}.py").read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "clgemm":
            modules = {p.stem for p in FOLDER.iterdir()}
            names |= {
                f"clgemm.{a.name}" if a.name in modules else "clgemm.__init__" for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module == "clgemm.hardware":
            names |= {f"clgemm.hardware.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return names


def test_production_does_not_know_the_ladder():
    """Only the command line names it."""
    users = {name for name in set().union(*ROWS) if any("ladder" in x for x in imported(name))}
    assert users == {"__main__"}


def test_production_does_not_know_the_benchmark():
    """Only the command line names it; it and the ladder know nothing of each other."""
    users = {name for name in set().union(*ROWS) if any("bench" in x for x in imported(name))}
    assert users == {"__main__"}
    for one, other in (("ladder", "bench"), ("bench", "ladder")):
        for path in (FOLDER / one).glob("*.py"):
            assert not [x for x in imported(f"{one}/{path.stem}") if f".{other}" in x], path


def test_production_does_not_know_the_tuner():
    """Only the public names and the command line do."""
    users = {name for name in set().union(*ROWS) if any("tuner" in x for x in imported(name))}
    assert users == {"__main__", "__init__"}


def test_every_module_has_a_row():
    """A new module takes its place."""
    hardware = {f"hardware.{path.stem}" for path in (FOLDER / "hardware").glob("[!_]*.py")}
    assert {path.stem for path in FOLDER.glob("*.py")} | hardware == set().union(*ROWS)
    bench = {path.stem for path in (FOLDER / "bench").glob("*.py")}
    assert bench - {"__init__"} == set().union(*BENCH_ROWS)
    tuner = {path.stem for path in (FOLDER / "tuner").glob("*.py")}
    assert tuner - {"__init__"} == set().union(*TUNER_ROWS)
    assert {path.stem for path in (FOLDER / "accel").glob("*.py")} == set().union(*ACCEL_ROWS)


@pytest.mark.parametrize("module", sorted(set().union(*ROWS)))
def test_imports_run_one_way(module):
    """From the command line down to configs and layouts."""
    row = next(i for i, names in enumerate(ROWS) if module in names)
    below = set().union(*ROWS[row + 1 :])
    own = {name.removeprefix("clgemm.") for name in imported(module) if name.startswith("clgemm.")}
    apart = "ladder", "bench", "tuner", "accel"
    assert {name for name in own if not name.startswith(apart)} <= below


@pytest.mark.parametrize("module", sorted(set().union(*BENCH_ROWS)))
def test_the_benchmarks_imports_run_one_way(module):
    """From its command down to its cases."""
    row = next(i for i, names in enumerate(BENCH_ROWS) if module in names)
    below = {f"clgemm.bench.{name}" for name in set().union(*BENCH_ROWS[row + 1 :])}
    assert {name for name in imported(f"bench/{module}") if ".bench." in name} <= below
    if module in PURE_BENCH:
        assert not {"pyopencl", "pyopencl.array"} & imported(f"bench/{module}")


@pytest.mark.parametrize("module", sorted(set().union(*TUNER_ROWS)))
def test_the_tuners_imports_run_one_way(module):
    """From its command down to its spaces."""
    row = next(i for i, names in enumerate(TUNER_ROWS) if module in names)
    below = {f"clgemm.tuner.{name}" for name in set().union(*TUNER_ROWS[row + 1 :])}
    assert {name for name in imported(f"tuner/{module}") if ".tuner." in name} <= below
    if module in PURE_TUNER:
        assert not {"pyopencl", "pyopencl.array"} & imported(f"tuner/{module}")


@pytest.mark.parametrize("module", sorted(set().union(*ACCEL_ROWS)))
def test_accelerations_imports_run_one_way(module):
    """From its command down to NumPy's places; nothing that it uses knows of it."""
    row = next(i for i, names in enumerate(ACCEL_ROWS) if module in names)
    below = {f"clgemm.accel.{name}" for name in set().union(*ACCEL_ROWS[row + 1 :])}
    if row == 0:
        below.add("clgemm.accel")  # what it offers
    own = {name for name in imported(f"accel/{module}") if name.startswith("clgemm.accel")}
    assert own <= below
    users = {name for name in set().union(*ROWS) if any("accel" in x for x in imported(name))}
    assert users == {"__init__"}


@pytest.mark.parametrize("module", sorted(PURE))
def test_pure_modules_import_no_opencl(module):
    """Shapes and configs are decided without a device."""
    assert not [name for name in imported(module) if name.split(".")[0] == "pyopencl"]
    own = {name.removeprefix("clgemm.") for name in imported(module) if name.startswith("clgemm.")}
    assert own <= PURE
