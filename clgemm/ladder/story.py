"""The rungs' kernel files: their code, and the words of their headers."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

from clgemm.ladder.rung import Rung
from clgemm.ladder.rungs import RUNGS

_FOLDER = resources.files("clgemm").joinpath("kernels", "ladder")


def source(rung: Rung) -> str:
    """Return the OpenCL C of a rung, including its supporting kernels."""
    supporting = ["transpose.cl"] if hasattr(rung, "transpose") else []
    return "\n".join(map(kernel_text, [*supporting, rung.file]))


def kernel_text(name: str) -> str:
    """Return a file of the ladder's folder of kernels, such as ``wgsl/01_naive.wgsl``."""
    return _FOLDER.joinpath(*name.split("/")).read_text(encoding="utf-8")


def wgsl_names() -> set[str]:
    """Return the names of the rungs' files in WGSL, such as ``wgsl/01_naive.wgsl``."""
    return {f"wgsl/{file.name}" for file in _FOLDER.joinpath("wgsl").iterdir()}


SECTION = re.compile(r"// ([A-Z][\w -]*?)(, [^:]*)?: *(.*)")
MACRO = re.compile(r'^#ifndef \w+\n#error ".*"\n#endif\n', re.MULTILINE)


class Block(NamedTuple):
    """A paragraph, or a picture whose lines stay as they are."""

    text: str
    is_picture: bool


class Line(NamedTuple):
    """A line of a difference: its mark is ``" "``, ``"+"`` or ``"-"``, as in a diff."""

    mark: str
    text: str


@dataclass(frozen=True)
class Story:
    """What the header of a kernel file says.

    Attributes
    ----------
    layout : str
        The index formulas of the matrices and tiles, one a line.
    sections : dict of str to list of Block
        The paragraphs by their names, such as ``"New"``, ``"Why"`` and ``"Cost"``.
    code : list of str
        The lines of the file after the header and the checks of the macros.
    """

    layout: str
    sections: dict[str, list[Block]]
    code: list[str]


def story(rung: type[Rung]) -> Story:
    """Return the words and the code of a rung's kernel file."""
    lines = kernel_text(rung.file).splitlines()
    length = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    layout: list[str] = []
    sections: dict[str, list[list[str]]] = {}
    current: list[list[str]] | None = None
    for line in lines[1:length]:  # the first line is the title
        found = SECTION.match(line)
        if found:
            current = sections.setdefault(found[1], [])
            current.append([found[3]] if found[3] else [])
        elif current is None:
            layout.append(line.removeprefix("//"))
        elif line == "//":
            current.append([])
        else:
            current[-1].append(line.removeprefix("//"))
    code = MACRO.sub("", "\n".join(lines[length:])).strip("\n").splitlines()
    formulas = textwrap.dedent("\n".join(layout)).strip("\n")
    return Story(formulas, {n: _blocks(s) for n, s in sections.items()}, code)


def _blocks(paragraphs: list[list[str]]) -> list[Block]:
    """Tell the paragraphs from the pictures, which stand between empty lines after the first."""
    blocks = []
    for position, lines in enumerate(filter(None, paragraphs)):
        if position:
            blocks.append(Block(textwrap.dedent("\n".join(lines)), True))
        else:
            blocks.append(Block(" ".join(" ".join(lines).split()), False))
    return blocks


def step(rung: type[Rung]) -> list[Line]:
    """Return the code of a rung with the difference to the rung that it follows."""
    after = story(rung).code
    before = story(RUNGS[rung.before() - 1]).code if rung.before() else []
    return list(_difference(before, after)) if before else [Line(" ", text) for text in after]


def _difference(before: list[str], after: list[str]) -> Iterator[Line]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        if kind == "equal":
            yield from (Line(" ", text) for text in after[j:j_end])
        else:
            yield from (Line("-", text) for text in before[i:i_end])
            yield from (Line("+", text) for text in after[j:j_end])
