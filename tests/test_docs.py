"""Tests of README and docs: code runs, commands and links exist, tables match the data."""

from __future__ import annotations

import fnmatch
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
    *(ROOT / "verified" / "README.md", DOCS / "measured" / "README.md"),
    *sorted((ROOT / ".github").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted(ROOT.glob("clgemm/kernels/**/README.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Programs that the tests of commands below check, with what they run
CHECKED = {"python", "clgemm", "pip", "dask"}
PARSED_MODULES = {"clgemm", "clgemm.accel", "venv", "sphinx", "build"}  # argparse's, by themselves
MODULES = PARSED_MODULES | {"pytest", "timeit"}
# What no test here checks, and why
UNCHECKED = {
    "apt-get": "a system's package manager; .ci/run installs the same packages where it may",
    "cd": "a shell's own",
    "echo": "a shell's own",
    "export": "a shell's own; another test checks the variables",
    "git": "clones from, and pushes to, a server",
    "helm": "needs a Kubernetes cluster",
    "mkdir": "a system's program",
    "pre-commit": "writes into .git; .ci/run executes what it runs",
    "ruff": ".ci/run executes it",
    "taskset": "a system's program; not every machine has the processors that it names",
    "twine": ".ci/run executes it",
}
STARTS_COMMAND = re.compile(
    r"(?:\S*/)?(?:python3?|pip|clgemm|dask|apt-get|git|helm|ruff|taskset|twine) \S"
)
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


def lines_of(block: str) -> Iterator[str]:
    """Yield the lines of a shell's block. What a backslash or an open quotation joins is one."""
    line = ""
    for part in block.splitlines():
        line += part
        if line.endswith("\\"):
            line = line[:-1]
            continue
        try:
            shlex.split(line, comments=True)
        except ValueError:  # the quotation goes on in the next line
            line += "\n"
            continue
        yield line
        line = ""
    assert not line, f"a quotation without an end: {block}"


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, each with what follows it."""
    joined = dockerfile.replace("\\\n", " ").splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined if line.strip()]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a page.

    They stand in blocks of a shell, in a Dockerfile's RUN, and, where they begin with the name of a
    program that pages have typed, in other blocks without a language and in spans of code.
    """
    lines = []
    for kind, block in FENCE.findall(text):
        if kind == "sh":
            lines += lines_of(block)
        elif kind == "dockerfile":
            lines += [rest for instruction, rest in instructions(block) if instruction == "RUN"]
        elif kind in ("", "text"):
            typed = [line for line in block.splitlines() if STARTS_COMMAND.match(line)]
            lines += [line for line in typed if not line.startswith("clgemm ")]  # output
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    lines += [span for span in spans if STARTS_COMMAND.match(span)]
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # in a block of output: the quotation goes on in the next line
            words = shlex.split(line + '"')
        for is_end, command in itertools.groupby(words, lambda word: word in ("&&", ";")):
            if not is_end:
                command = [PLACEHOLDERS.get(word, word) for word in command]
                yield [Path(command[0]).name.replace("python3", "python"), *command[1:]]


@pytest.fixture(scope="module")
def every_command() -> list[list[str]]:
    """Return every command of the pages, once."""
    found = {tuple(each) for page in LINKED for each in commands(text_of(page))}
    return sorted(map(list, found))


def of_program(found: list[list[str]], *words: str) -> list[list[str]]:
    """Return what follows these words in the commands that begin with them."""
    return [each[len(words) :] for each in found if tuple(each[: len(words)]) == words]


def test_every_program_of_the_pages_is_checked_or_listed(every_command):
    """Each program that a page has typed has a test below, or a reason why it has none."""
    programs = {each[0] for each in every_command}
    assert programs <= CHECKED | set(UNCHECKED), programs
    assert set(UNCHECKED) <= programs
    modules = {each[2] for each in every_command if each[:2] == ["python", "-m"] and each[2:]}
    assert modules <= MODULES, modules


def test_every_command_of_the_pages_is_parsed(every_command):
    """Each Python module and script that a page has typed exists and takes its options."""
    ours = of_program(every_command, "python")
    ours += [["-m", "clgemm", *words] for words in of_program(every_command, "clgemm") if words]
    ours = [
        words
        for words in ours
        if (words[:1] == ["-m"] and words[1] in PARSED_MODULES)
        or re.fullmatch(r"(docs|examples|tests)/(?!render)[\w/]+\.py", words[0] if words else "")
    ]
    assert len(ours) > 50
    told = subprocess.run(
        [sys.executable, ROOT / "tests" / "helpers" / "parse_commands.py"],
        input=json.dumps(ours),
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


def test_tables_that_pages_have_printed_exist(every_command, render, capsys):
    """Each ``docs/render.py NAME`` of a page prints."""
    asked = [words for words in of_program(every_command, "python", "docs/render.py") if words]
    asked.remove([PLACEHOLDERS["NAME"]])
    assert asked
    for names in asked:
        assert render.main(names) == 0
    assert capsys.readouterr().out


def test_pytest_takes_its_options(every_command, tmp_path):
    """Each ``python -m pytest`` of a page names options and files that exist."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    asked = of_program(every_command, "python", "-m", "pytest")
    assert asked
    for words in asked:
        assert [word for word in words if word.endswith(".py") and not (ROOT / word).exists()] == []
        options = [word for word in words if not word.endswith(".py")]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--collect-only"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, f"{words}: {done.stderr}"


def test_timeit_takes_its_options(every_command):
    """Each ``python -m timeit`` of a page runs, with ``pass`` in the place of its statements."""
    for words in of_program(every_command, "python", "-m", "timeit"):
        statements = {"SETUP": "pass", "EXPRESSION": "pass"}
        words = [statements.get(word, word) for word in words]
        subprocess.run([sys.executable, "-m", "timeit", *words], check=True, capture_output=True)


def test_dask_takes_its_options(every_command):
    """Each ``dask worker`` and ``dask ssh`` of a page is parsed by Dask; what it loads exists."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    asked = of_program(every_command, "dask")
    assert asked
    for name, *words in asked:
        command = importlib.import_module(f"distributed.cli.dask_{name}").main
        known = {option for each in command.params for option in each.opts + each.secondary_opts}
        assert [word for word in words if word.startswith("-") and word not in known] == []
        context = command.make_context(name, list(words))
        for module in context.params.get("preload") or ():
            importlib.import_module(module)


def test_pip_takes_its_options(every_command):
    """Each ``pip install`` of a page has options that pip knows; clgemm's extras exist."""
    pytest.importorskip("pip", reason="this environment has no pip")
    extras = text_of(ROOT / "pyproject.toml").partition("[project.optional-dependencies]")[2]
    known = set(re.findall(r"^([\w-]+) = \[", extras.partition("\n[")[0], re.M))
    assert {"cpu", "dask", "dev"} <= known
    asked = of_program(every_command, "pip", "install")
    assert len(asked) > 10
    for words in asked:
        for word in words:
            found = re.fullmatch(r"(-.+|\.|[\w-]+)(?:\[([\w,]+)\])?", word)
            assert found, f"{word}: neither an option nor a package"
            if found[2]:
                assert found[1] in (".", "clgemm"), word
                assert set(found[2].split(",")) <= known, word
    options = {tuple(word for word in words if word.startswith("-")) for words in asked}
    for each in options:
        arguments = [*each, "."] if each else []
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", *arguments, "--help"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{each}: {done.stderr}"


def test_shells_and_dockerfiles_of_the_pages_parse():
    """bash parses each block of a shell and each RUN; a Dockerfile has Docker's instructions."""
    for page in LINKED:
        for kind, block in FENCE.findall(text_of(page)):
            if kind == "dockerfile":
                parts = instructions(block)
                assert parts[0][0] == "FROM"
                assert {part for part, _ in parts} <= {
                    "FROM",
                    "RUN",
                    "ENV",
                    "COPY",
                    "WORKDIR",
                    "CMD",
                }
                assert all(rest for _, rest in parts)
                block = "\n".join(rest for part, rest in parts if part == "RUN")
            elif kind != "sh":
                continue
            subprocess.run(["bash", "-n"], input=block, text=True, check=True)


def test_every_variable_of_the_pages_is_read():
    """Each variable CLGEMM_... that a page names is read by the package, its tests or scripts."""
    folders = ROOT / "clgemm", ROOT / "tests", ROOT / "docs"
    source = "".join(text_of(file) for folder in folders for file in folder.glob("**/*.py"))
    known = set(re.findall(r"""["'](CLGEMM_[A-Z_]+)["']""", source))
    for page in LINKED:
        assert set(re.findall(r"\bCLGEMM_[A-Z_]+\b", text_of(page))) <= known, page


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


def test_every_measured_file_is_listed(render):
    """Each file of docs/measured/ is in its README's table, and each name there is a file's."""
    rows = re.findall(r"^\| (`.+?) \|", text_of(render.MEASURED / "README.md"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    names = {file.name.removesuffix(".json") for file in render.MEASURED.glob("*.json*")}
    assert names == {each for name in listed for each in fnmatch.filter(names, name)}
    assert all(fnmatch.filter(names, name) for name in listed)


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
