"""Tests of README and docs: code runs, commands and links exist, tables match the data."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import clgemm
import clgemm.accel
import clgemm.testing

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINKED = [
    *(*PAGES, ROOT / "CHANGELOG.md", ROOT / "tests" / "foreign" / "README.md"),
    ROOT / "verified" / "README.md",
    *sorted((ROOT / ".github").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted(ROOT.glob("clgemm/kernels/**/README.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACEHOLDERS = {"N": "1", "FILE": "file.json", "NAME": "name"}  # in commands
SPEED = re.compile(r"\d ?(?:ms|µs|us|[GT]FLOP/s|[GT]B/s|times as (?:fast|long))\b")
LONGEST_README, LONGEST_CHANGELOG, MOST_TERMS = 120, 40, 30
MOST_WORDS_ON_SPEED = 2970  # of docs/performance.md, tables included


def named(path: Path) -> str:
    """Name a page in a list of tests."""
    return str(path.relative_to(ROOT))


each_page = pytest.mark.parametrize("page", PAGES, ids=named)


def text_of(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def render() -> Any:
    """Return the script that makes the tables."""
    specification = importlib.util.spec_from_file_location("render", DOCS / "render.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@each_page
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """Every Python block of a page runs, from the top of the page to its bottom."""
    if page.name == "dask.md":
        pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.chdir(tmp_path)
    document = Sybil([PythonCodeBlockParser()]).parse(page)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        clgemm.accel.uninstall()
        clgemm.set_device(None)
    assert len(list(document)) == sum(
        1 for kind, _ in FENCE.findall(text_of(page)) if kind == "python"
    )


@pytest.mark.parametrize("name", ["quickstart", "installing", "accelerating", "faq"])
def test_the_commands_of_a_page_succeed(name, tmp_path):
    """Every command that a page has typed succeeds; the quickstart's script runs with less data."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for program in ("program.py", "script.py", "module.py"):  # what the pages call the reader's own
        (tmp_path / program).write_text("import numpy\n", encoding="utf-8")
    folders = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    old = {variable: os.environ.get(variable, "") for variable in folders}
    paths = {each: os.pathsep.join(filter(None, (folders[each], old[each]))) for each in folders}
    commands = [text for kind, text in FENCE.findall(text_of(DOCS / f"{name}.md")) if kind == "sh"]
    assert commands
    for command in commands:
        done = subprocess.run(
            ["bash", "-euc", command.replace("friends.py", "friends.py --people 200 --years 2")],
            cwd=tmp_path,
            env={**os.environ, **paths},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a page's blocks and in its spans of code."""
    lines = [
        line for kind, block in FENCE.findall(text) if kind == "sh" for line in block.split("\n")
    ]
    lines += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # the quotation goes on in the next line
            words = shlex.split(line + '"')
        for is_end, command in itertools.groupby(words, lambda word: word in ("&&", ";")):
            if not is_end:
                yield [PLACEHOLDERS.get(word, word) for word in command]


def test_every_command_of_the_pages_is_parsed():
    """Each command of clgemm's and each script that a page names exists and takes its options."""
    every = [each for page in LINKED for each in commands(text_of(page))]
    ours = [words[1:] for words in every if re.fullmatch(r"(.*/)?python3?", words[0]) and words[1:]]
    ours += [["-m", *words] for words in every if words[0] == "clgemm" and words[1:]]
    ours = [
        words
        for words in ours
        if (words[0] == "-m" and words[1:2] in (["clgemm"], ["clgemm.accel"]))
        or re.fullmatch(r"(docs|examples|tests)/(?!render)\w+\.py", words[0])
    ]
    assert len(ours) > 50
    told = subprocess.run(
        [sys.executable, ROOT / "tests" / "parse_commands.py"],
        input=json.dumps(sorted(map(list, set(map(tuple, ours))))),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        check=False,
    )
    assert (told.returncode, json.loads(told.stdout or "0")) == (0, {}), told.stderr


def test_every_extra_of_the_pages_exists():
    """Each ``pip install`` of a page names extras of pyproject.toml."""
    known = set(
        re.findall(
            r"^([\w-]+) = \[",
            text_of(ROOT / "pyproject.toml")
            .partition("[project.optional-dependencies]")[2]
            .partition("\n[")[0],
            re.M,
        )
    )
    for page in LINKED:
        for extras in re.findall(
            r"""pip install [^`\n]*?['"](?:clgemm|\.)\[([\w,]+)\]""", text_of(page)
        ):
            assert set(extras.split(",")) <= known, f"{page.name}: {extras}"


def slugs(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
    return set(plain)


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_the_links_of_a_page_exist(page):
    """Every link within the repository leads to a file, and every anchor to a heading."""
    for target in LINK.findall(FENCE.sub("", text_of(page))):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert file == ROOT or ROOT in file.parents, f"{page.name}: {target}"
        assert not anchor or anchor in slugs(file), f"{page.name}: {target}"


@each_page
def test_the_tables_of_a_page_are_those_of_the_data(page, render):
    """``python docs/render.py`` would change nothing."""
    assert render.rendered(text_of(page)) == text_of(page), "python docs/render.py makes it anew"


def test_every_measured_table_is_shown_or_named(render):
    """Each table is on a page, or a page names it as printed on request; each has an origin."""
    shown = {name for page in PAGES for _, name, _ in render.BLOCK.findall(text_of(page))}
    further = text_of(DOCS / "performance.md").partition("## Further tables")[2]
    shown |= set(re.findall(r"`(\w+)`", further)) - {"NAME"}
    names = {file.stem for file in render.MEASURED.glob("*.json")} | set(render.VIEWS)
    assert names == shown
    for name in names:
        table = render.table(name)
        assert all((table.title, table.device, table.driver, table.date, table.command)), name
        assert {len(row) for row in table.rows} == {len(table.columns)} == {len(table.align)}, name


def test_every_measured_table_says_what_was_done(render):
    """No table says that its command, or what would stand in an empty field, was not recorded."""
    names = {file.stem for file in render.MEASURED.glob("*.json")} | set(render.VIEWS)
    assert [name for name in sorted(names) if "not recorded" in render.table(name).text()] == []


@each_page
def test_prose_holds_no_speed(page, render):
    """Speeds stand in tables, where device and date are, so that no two sentences disagree."""
    prose = render.BLOCK.sub("", FENCE.sub("", text_of(page)))
    lines = [line for line in prose.splitlines() if not line.startswith("|")]
    assert [line for line in lines if SPEED.search(line)] == []


def test_a_table_is_printed_on_request(render, capsys):
    """render.py prints the tables that it is given the names of."""
    assert render.main(["h100_odd", "ladder"]) == 0
    shown = capsys.readouterr().out
    assert "aligned" in shown
    assert "naive" in shown


def test_a_stale_table_is_found_and_made_anew(render, tmp_path, monkeypatch, capsys):
    """render.py --check names a page with an old table and fails; render.py rewrites it."""
    page = tmp_path / "README.md"
    page.write_text("<!-- table: bench_h200 -->\nold\n<!-- end of table -->\n", encoding="utf-8")
    monkeypatch.setattr(render, "ROOT", tmp_path)
    assert render.main(["--check"]) == 1
    assert "README.md" in capsys.readouterr().out
    assert render.main([]) == 0
    assert "NVIDIA H200" in text_of(page)
    assert render.main(["--check"]) == 0


def test_the_reference_has_every_public_name():
    """Every name of ``clgemm.__all__`` and of ``clgemm.accel.__all__`` is in the API reference."""
    documented = set(
        re.findall(r"^\.\. auto\w+:: ([\w.]+)$", text_of(DOCS / "reference.rst"), re.M)
    )
    public = {f"clgemm.{name}" for name in clgemm.__all__}
    public |= {f"clgemm.accel.{name}" for name in clgemm.accel.__all__}
    assert public <= documented
    optional = {name for name in documented if name.startswith(("clgemm.dask", "clgemm.testing"))}
    assert documented <= public | optional | {"clgemm.ladder.run"}


def test_the_reference_has_every_name_for_dask():
    """Every name of ``clgemm.dask.__all__``, which needs Dask, is in the API reference."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    module = importlib.import_module("clgemm.dask")
    page = text_of(DOCS / "reference.rst")
    documented = re.findall(r"^\.\. auto\w+:: clgemm\.dask\.(\w+)$", page, re.M)
    assert sorted(documented) == sorted(module.__all__)


def test_the_reference_has_every_name_for_tests():
    """Every name of ``clgemm.testing.__all__`` is in the API reference."""
    page = text_of(DOCS / "reference.rst")
    documented = re.findall(r"^\.\. auto\w+:: clgemm\.testing\.(\w+)$", page, re.M)
    assert sorted(documented) == sorted(clgemm.testing.__all__)


def test_the_reasons_are_those_of_the_code():
    """Each reason in the table of why a product stayed is one that a report can give."""
    page = text_of(DOCS / "accelerating.md")
    table = page[page.index("| reason | meaning") :].partition("\n\n")[0]
    reasons = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    folders = ROOT / "clgemm" / "accel", ROOT / "clgemm" / "side"
    source = "".join(text_of(file) for folder in folders for file in folder.glob("*.py"))
    assert reasons
    assert [reason for reason in reasons if f'"{reason}"' not in source] == []


def test_the_pages_keep_their_length():
    """README, changelog, performance page and glossary keep their limits of length."""
    assert len(text_of(ROOT / "README.md").splitlines()) <= LONGEST_README
    assert len(text_of(ROOT / "CHANGELOG.md").splitlines()) <= LONGEST_CHANGELOG
    assert len(text_of(DOCS / "performance.md").split()) <= MOST_WORDS_ON_SPEED
    glossary = text_of(DOCS / "design.md").partition("## Glossary")[2]
    assert len(re.findall(r"^\| ", glossary, re.MULTILINE)) - 1 <= MOST_TERMS


def test_every_page_is_in_the_contents():
    """index.md names every page of docs/."""
    contents = text_of(DOCS / "index.md").split()
    assert {file.stem for file in DOCS.glob("*.md")} - {"index"} <= set(contents)
