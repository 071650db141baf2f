"""Tests of the imports, which run one way: from the commands down to the core."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import clgemm

FOLDER = Path(clgemm.__file__).parent
# Each package may import from those further down, and within itself. The first rows are the
# modules at the top level.
ORDER = (
    {"__main__"},
    {"__init__"},
    {"bench", "ladder", "tuning", "verify"},
    {"testing"},
    {"dask"},
    {"accel"},
    {"info", "contraction", "explanation", "prepared"},
    {"products"},
    {"blas"},
    {"side"},
    {"trials"},
    {"numpy_rules"},
    {"transfer"},
    {"runtime"},
    {"planning"},
    {"hardware"},
    {"records"},
    {"kernels"},
    {"terminal"},
    {"core"},
)
# Numbers in, numbers out: these packages decide without a device.
PURE = {"core", "kernels", "records"}
# What users type is what these measure and run: they may import the public names.
USERS = {"accel.__main__", "bench", "ladder", "verify"}


def modules() -> list[str]:
    """Return the dotted name of every module below clgemm; a package by its own name."""
    paths = (path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.py"))
    names = (".".join(path.parts).removesuffix(".__init__") for path in paths)
    return sorted(name for name in names if "for_children" not in name)


MODULES = modules()


def path_of(module: str) -> Path:
    """Return the path of a module's source."""
    path = FOLDER.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


class WithoutTypes(ast.NodeTransformer):
    """Leave out what only type checkers import."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Keep the other branch of ``if TYPE_CHECKING``."""
        self.generic_visit(node)
        return node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else node


def imported(module: str, by_type_checkers: bool = True) -> set[str]:
    """Return all modules that a module's source imports, clgemm's own without that prefix.

    Imports in functions count, too.
    """
    names = set()
    tree: ast.AST = ast.parse(path_of(module).read_text())
    if not by_type_checkers:
        tree = WithoutTypes().visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {_own(alias.name) or alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "imports name the whole module"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found = {_own(name) for name in inside if _own(name) in MODULES}
            names |= found or {_own(node.module) or node.module}
    return names


def _own(name: str) -> str:
    """Return the part of a name after "clgemm."; "__init__" for clgemm itself; "" for others."""
    return "__init__" if name == "clgemm" else name.removeprefix("clgemm.") * name.startswith(
        "clgemm."
    )  # fmt: skip


def own_imports(module: str, by_type_checkers: bool = True) -> set[str]:
    """Return the modules of clgemm that a module imports."""
    return {name for name in imported(module, by_type_checkers) if name in MODULES}


def room(module: str) -> str:
    """Return the package, or the module at the top level, that a module belongs to."""
    return module.split(".")[0]


def floor(module: str) -> int:
    """Return the row of `ORDER` that a module belongs to, counted from the top."""
    return next(i for i, rooms in enumerate(ORDER) if room(module) in rooms)


def test_every_module_belongs_to_a_room():
    """Each module belongs to a package or module in `ORDER`."""
    assert {room(module) for module in MODULES} == set().union(*ORDER)


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_one_way(module):
    """A module imports only from its own package or from those further down."""
    wrong = {
        name
        for name in own_imports(module)
        if room(name) != room(module) and floor(name) <= floor(module)
    }
    if {module, room(module)} & USERS:
        wrong.discard("__init__")
    assert not wrong


@pytest.mark.parametrize("package", sorted({room(m) for m in MODULES if "." in m}))
def test_a_packages_modules_do_not_import_one_another_in_a_circle(package):
    """The modules of a package do not import one another in a circle."""
    left = {
        m: {x for x in own_imports(m, False) if room(x) == package and x != m}
        for m in MODULES
        if room(m) == package
    }
    while left:
        free = [m for m, names in left.items() if not names & set(left)]
        assert free, f"these import one another: {sorted(left)}"
        for m in free:
            del left[m]


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) in PURE])
def test_pure_packages_import_no_opencl(module):
    """The pure packages do not import pyopencl."""
    assert not [name for name in imported(module) if name.split(".")[0] == "pyopencl"]


def test_production_does_not_know_the_measuring_tools():
    """Only the command line and themselves import bench, ladder and verify."""
    for tool in ("bench", "ladder", "verify"):
        users = {room(m) for m in MODULES if any(room(x) == tool for x in own_imports(m))}
        assert users <= {tool, "__main__"}


def test_few_modules_stand_at_the_top_level():
    """At most twelve modules are at the top level."""
    assert len([m for m in MODULES if path_of(m).parent == FOLDER]) <= 12
