"""The folders of the tests are those of the package, and each module's tests have its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_imports import FOLDER, MODULES

TESTS = Path(__file__).parent
# Modules whose tests do not have their name, and why.
EXCEPTIONS = {
    "accel.settings": "values that a router holds: it does nothing",
    "kernels.common.choice": "a named pair of configs: it does nothing",
    "runtime.several.part": "a named tuple and protocols: they do nothing",
}
# Packages whose tests are by what users see: a picture or a table is made by several modules.
BY_RESULT = {"ladder"}
ALL = [
    *(Path(*module.split(".")) for module in MODULES),
    Path("accel/for_children/sitecustomize"),  # no module of the package: Python imports it
]
HAS_TEST = re.compile(r"^def test_", re.MULTILINE)


def file_for(path: Path) -> Path:
    """Return the file that has the tests of a module, given by its path in the package."""
    return TESTS / path.parent / f"test_{path.name}.py"


def mirrored() -> list[Path]:
    """Return the modules that must have tests of their name."""
    return [
        path
        for path in ALL
        if not (FOLDER / path).is_dir()
        and path.name not in ("__init__", "__main__")
        and path.parts[0] not in BY_RESULT
        and ".".join(path.parts) not in EXCEPTIONS
    ]


@pytest.mark.parametrize("path", mirrored(), ids=lambda path: ".".join(path.parts))
def test_a_modules_tests_are_found_by_its_name(path):
    """Tests of clgemm/a/b.py are in tests/a/test_b.py."""
    file = file_for(path)
    assert file.exists(), f"clgemm/{path}.py has no {file.relative_to(TESTS.parent)}"
    assert HAS_TEST.search(file.read_text()), f"{file.relative_to(TESTS.parent)} has no test"


def test_exceptions_are_needed():
    """Each exception is a module that exists and has no tests of its name."""
    for name in EXCEPTIONS:
        assert name in MODULES
        assert not file_for(Path(*name.split("."))).exists()


def test_folders_of_tests_are_those_of_packages():
    """A folder of tests has the name and the place of a package."""
    folders = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    strange = {folder for folder in folders if not (FOLDER / folder).is_dir()}
    assert not strange
