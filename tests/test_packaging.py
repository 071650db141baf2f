"""Tests of what sdist and wheel hold, and of what pyproject.toml says of them."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import clgemm

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 has no tomllib")

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# What hatchling adds to every sdist.
ADDED = {".gitignore", "PKG-INFO", "pyproject.toml"}


def tracked() -> set[str]:
    """Return the files that git tracks."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


def is_shipped(name: str) -> bool:
    """Return whether a file that git tracks belongs into the sdist."""
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    return any(name == each[1:] or name.startswith(f"{each[1:]}/") for each in included)


def test_the_sdist_holds_the_tracked_files(tmp_path):
    """The sdist has each tracked file of the listed folders, and no other file."""
    sdist = pytest.importorskip("hatchling.builders.sdist", reason="hatchling is not installed")
    (built,) = sdist.SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names - ADDED == {name for name in tracked() if is_shipped(name)} - ADDED
    assert names >= ADDED


def test_the_wheel_holds_the_package(tmp_path):
    """The wheel has the package's files without pictures, the plugin, and the verified devices."""
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (built,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = tracked()
    package = {name for name in files if name.startswith("clgemm/") and not name.endswith(".png")}
    verified = {f"clgemm/{name}" for name in files if name.startswith("verified/")}
    assert names == package | verified | {"pytest_clgemm.py"}


def test_the_console_script_is_the_command():
    """The script ``clgemm`` is a function that can be called without arguments."""
    module, _, name = PROJECT["project"]["scripts"]["clgemm"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_the_version_is_one():
    """The package and pyproject.toml name the same version."""
    assert PROJECT["project"]["version"] == clgemm.__version__


def test_the_urls_lead_to_the_repository():
    """Each address of the project is in its repository, and its page exists here."""
    urls = PROJECT["project"]["urls"]
    assert set(urls) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    for url in urls.values():
        assert url.startswith("https://github.com/clgemm/clgemm")
        page = url.partition("/main/")[2]
        assert not page or (ROOT / page).exists()


def test_the_release_publishes_without_a_secret():
    """The release workflow needs only PyPI's trusted publisher."""
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "id-token: write" in workflow
    assert "secrets." not in workflow


def test_the_citation_is_that_of_the_project():
    """CITATION.cff names the project, version, licence, authors and address of pyproject.toml."""
    text = (ROOT / ".github" / "CITATION.cff").read_text(encoding="utf-8")
    said = dict(line.split(": ", 1) for line in text.splitlines() if re.match(r"[a-z-]+: ", line))
    project = PROJECT["project"]
    assert said["title"] == project["name"]
    assert said["version"] == project["version"]
    assert said["license"] == project["license"]
    assert said["abstract"].strip('"') == project["description"]
    assert said["repository-code"] == project["urls"]["Source"]
    listed = re.findall(r"^  - (?:name: )?(.+)$", text.partition("references:")[0], re.M)
    assert listed == [*(each["name"] for each in project["authors"]), *project["keywords"]]


def test_github_finds_the_rules_of_the_repository():
    """GitHub reads SECURITY.md and CONTRIBUTING.md from .github/."""
    assert (ROOT / ".github" / "SECURITY.md").exists()
    assert (ROOT / ".github" / "CONTRIBUTING.md").exists()
