"""A kernel family is one folder and its lines in the registry; nothing else names it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planned import LIMITS, traits_with

import clgemm
from clgemm.core.problem import Shape
from clgemm.kernels import FAMILIES, family_named

PACKAGE = Path(clgemm.__file__).parent
TOY = Path(__file__).parent / "toy"
REGISTRY = "kernels/__init__.py"
# Folders of kernels that several families launch: anyone may name them.
SHARED = {"common", "exact", "finite", "mirror", "pack", "split_k", "ladder"}
# Modules that name a family, and why.
NAMING = {
    REGISTRY: "it is the registry",
    "kernels/tensor_core/plan.py": "a hash of tensor cores covers their fallback's kernels",
}

PROGRAM = """
import json, sys
import numpy as np
import clgemm
from clgemm.core.problem import Problem
from clgemm.core.problem import Shape
from clgemm.core.cache import recall
from clgemm.hardware.device import where
from clgemm.kernels.sources import parameter_types
from clgemm.planning import planner
from clgemm.tuning.session import tasks_for

device = clgemm.get_device()
rng = np.random.default_rng(0)
a, b, c = (rng.integers(-8, 9, s).astype(np.float32) for s in ((9, 7), (9, 5), (7, 5)))
result = clgemm.sgemm(2.0, a, b, -1.0, c, trans_a=1, order="C")
found = planner.plan_of(device, Problem.of(Shape(7, 5, 9), "float32"))
verdict = recall(found.about(where(device)))
(record,) = clgemm.tune(shapes=[(7, 12, 12)], minutes=0.02)
print(json.dumps({
    "package": clgemm.__file__,
    "is right": bool((result == 2 * (a.T @ b) - c).all()),
    "was tried": verdict is not None and verdict["reason"] == "",
    "gate": [*parameter_types(type(found.choice.config))][-2:],
    "launches": [step.config.family for step in found.plan.steps],
    "tasks": sorted({task.family for task in tasks_for(device)}),
    "record": record.family,
    "serves": planner.choose(device, Problem.of(Shape(7, 12, 12), "float32"))[1] == record.choice,
}))
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the package with one more family: its folder, and two lines of the registry."""
    root = tmp_path_factory.mktemp("extended")
    package = root / "clgemm"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(TOY, package / "kernels" / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    registry = package / REGISTRY
    text = registry.read_text()
    last = re.findall(r"^from clgemm\.kernels\..*\.family import .*$", text, re.MULTILINE)[-1]
    text = text.replace(last, f"{last}\nfrom clgemm.kernels.toy.family import TOY")
    start = "FAMILIES: tuple[Family[Any, Any], ...] = (\n"
    assert start in text
    registry.write_text(text.replace(start, f"{start}    TOY,\n"))
    return root


def test_a_new_family_is_one_folder_and_its_lines_in_the_registry(extended, device, tmp_path):
    """It is tried and serves products, with right results; it is tuned, and its record serves."""
    variables = {
        # The rest of this process's path follows: pyopencl may come from there.
        "PYTHONPATH": os.pathsep.join([str(extended), *filter(None, sys.path)]),
        "CLGEMM_CACHE_DIR": str(tmp_path),
        "CLGEMM_DEVICE": device.name,
        "CLGEMM_THRESHOLD": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | variables,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found.pop("package")).is_relative_to(extended)
    assert "toy" in found.pop("tasks")
    assert found.pop("gate") == ["gate", "gate_most"]
    assert found.pop("launches") == ["toy"]
    assert found == {"is right": True, "was tried": True, "record": "toy", "serves": True}


def test_nothing_else_names_the_new_family(extended):
    """Of all files of the package, those of its folder and the registry do."""
    package = extended / "clgemm"
    naming = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.*")
        if file.suffix in (".py", ".cl", ".json", ".md")
        and re.search(r"\btoy\b", file.read_text(encoding="utf-8"), re.IGNORECASE)
    }
    assert {file for file in naming if not file.startswith("kernels/toy/")} == {REGISTRY}


def folders():
    """The families' folders."""
    return {type(family).__module__.split(".")[2] for family in FAMILIES}


def test_every_folder_of_kernels_is_a_familys_or_shared():
    """A folder that is neither would escape the rules below."""
    kernels = PACKAGE / "kernels"
    found = {path.name for path in kernels.iterdir() if path.is_dir()} - {"__pycache__"}
    assert found == folders() | SHARED


SOURCES = sorted(
    file.relative_to(PACKAGE).as_posix()
    for file in PACKAGE.rglob("*.py")
    if "for_children" not in file.parts
)


def named_families(file):
    """The families' folders that a module imports from, its own aside."""
    named = set()
    for node in ast.walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[:2] == ["clgemm", "kernels"] and len(parts) > 2 and parts[2] in folders():
                named.add(parts[2])
    own = file.split("/")[1] if file.startswith("kernels/") else ""
    return named - {own}


@pytest.mark.parametrize("file", SOURCES)
def test_no_module_imports_a_familys_folder(file):
    """But the registry, and a few that have a reason."""
    assert bool(named_families(file)) == (file in NAMING)


@pytest.mark.parametrize("file", [x for x in SOURCES if not x.startswith("kernels/")])
def test_no_module_asks_which_family_a_config_is_of(file):
    """By its type or by its name: families answer for themselves."""
    names = {family.name for family in FAMILIES}
    classes = {family.config.__name__ for family in FAMILIES}
    for node in ast.walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            compared = {x.value for x in ast.walk(node) if isinstance(x, ast.Constant)}
            assert not names & compared, ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            assert not classes & {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}, file


def test_planning_starts_no_process():
    """Whatever may take a process down is tried elsewhere: planning only reads the verdicts."""
    wanted = (
        r"^\s*(import subprocess|from clgemm\.hardware import .*\btrial\b|from .*\.child import)"
    )
    texts = {file: (PACKAGE / file).read_text(encoding="utf-8") for file in SOURCES}
    starting = {file for file, text in texts.items() if re.search(wanted, text, re.MULTILINE)}
    assert "runtime/readiness.py" in starting
    assert not {file for file in starting if file.startswith("planning/")}


def test_families_are_found_by_the_name_of_their_configs():
    """Records name them so; no two have one name."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family_named(family.name) is family


@pytest.mark.parametrize("capability", [(0, 0), (9, 0)])
def test_edge_shapes_have_sides(capability):
    """On NVIDIA's GPUs too, where the skinny family keeps nothing in local memory."""
    traits = traits_with(LIMITS, is_nvidia=capability > (0, 0), capability=capability)
    for family in FAMILIES:
        if family.runs_on(traits):
            for shape in (Shape(1, 4096, 4096), Shape(900, 900, 900)):
                for choice in family.defaults(shape, traits):
                    shapes = family.edge_shapes(family.config_of(choice))
                    assert shapes
                    assert all(min(each) >= 1 for each in shapes), (family.name, shapes)
