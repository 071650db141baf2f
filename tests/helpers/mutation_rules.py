"""The rules by which `mutation.py` breaks kernels and the planner: one change of one line each."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLANNING = ("planner.py", "bounded.py", "cut.py")
CORE = ("problem.py", "plan.py", "transfer.py")


@dataclass(frozen=True)
class Rule:
    """One way to break a line: a pattern and what takes its place."""

    name: str
    pattern: str
    instead: str


CL_RULES = (
    Rule("bound off by one", r"(?<=\w) < (?=\w)", " <= "),
    Rule("bound off by one", r"(?<=\w) <= (?=\w)", " < "),
    Rule("bound off by one", r"(?<=\w) >= (?=\w)", " > "),
    Rule("bound off by one", r" - 1(?=[;,)\] ])", ""),
    Rule("bound off by one", r" \+ 1(?=[;,)\] ])", ""),
    Rule("barrier out", r"\bbarrier\(\w+\);", ";"),
    Rule("barrier out", r"\bmem_fence\(\w+\);", ";"),
    Rule("stride exchanged", r"(?<=\w)_row\b", "_column"),
    Rule("stride exchanged", r"(?<=\w)_column\b", "_row"),
    Rule("stride exchanged", r"\brow_stride\b", "column_stride"),
    Rule("stride exchanged", r"\bcolumn_stride\b", "row_stride"),
    Rule("padding not zero", r": \(?0(?:\.0f)?\)?(?=[;,)])", ": 1.0f"),
    Rule("padding not zero", r"\(0\.0f\)", "(1.0f)"),
    Rule("padding not zero", r"(?<== )0\.0f", "1.0f"),
    Rule("scale forgotten", r"\balpha \* ", ""),
    Rule("scale forgotten", r"\bbeta \* ", ""),
    Rule("scale forgotten", r"\bbeta [!=]= 0\.0f", "0"),
    Rule("offset forgotten", r"\b\w+_offset \+ ", ""),
    Rule("not rounded up", r" \+ (\w+) - 1\) / \1", r") / \1"),
    Rule("min for max", r"\bmin\(", "max("),
    Rule("counts wrongly", r"(?<=\w) \+= (?=\w)", " = "),
)
PY_RULES = (
    Rule("bound off by one", r"(?<=\w) < (?=\w)", " <= "),
    Rule("bound off by one", r"(?<=\w) <= (?=\w)", " < "),
    Rule("bound off by one", r"(?<=\w) >= (?=\w)", " > "),
    Rule("bound off by one", r"(?<=\w) > (?=\w)", " >= "),
    Rule("bound off by one", r" - 1(?=[,)\] ]|$)", ""),
    Rule("bound off by one", r" \+ 1(?=[,)\] ]|$)", ""),
    Rule("stride exchanged", r"\brow_stride\b", "column_stride"),
    Rule("stride exchanged", r"\bcolumn_stride\b", "row_stride"),
    Rule("stride exchanged", r"\.rows\b", ".columns"),
    Rule("stride exchanged", r"\.columns\b", ".rows"),
    Rule("not rounded up", r"(?<!def )\bceil_div\(", "int.__floordiv__("),
    Rule("not rounded up", r"(?<!def )\bround_up\(", "max(1 and "),
    Rule("min for max", r"\bmin\(", "max("),
    Rule("min for max", r"\bmax\(", "min("),
    Rule("scale forgotten", r"\bSCALED\b|\bbeta\b(?= if)", "1.0"),
    Rule("counts wrongly", r"(?<=\w) \+= (?=\w)", " = "),
)
# Lines that change speed, or nothing: prefetches, the compiler's hints, texts.
HARMLESS = re.compile(
    r"FETCH|#pragma|#error|#ifn?def|__attribute__|^\s*//|^\s*#|^\s*(from|import) |raise |f\""
)


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    family: str
    file: str
    line: int  # from 1
    rule: str
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is, wherever its line stands."""
        return self.file, self.before, self.after.strip()


def files_of(family: str) -> list[Path]:
    """Return the files that a family's mutants change."""
    if family == "planning":
        return [ROOT / "clgemm" / "planning" / name for name in PLANNING]
    if family == "core":
        return [ROOT / "clgemm" / "core" / name for name in CORE]
    folder = ROOT / "clgemm" / "kernels" / family
    names = ("plan.py", "panels.py", "in_place.py", "narrow.py")
    planning = [folder / x for x in names if (folder / x).exists()] or [folder / "family.py"]
    return [*sorted(folder.glob("*.cl")), *planning]


def mutants_of(family: str) -> Iterator[Mutant]:
    """Yield every change that the rules allow in a family's files."""
    for path in files_of(family):
        rules = CL_RULES if path.suffix == ".cl" else PY_RULES
        name, text = path.relative_to(ROOT).as_posix(), False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if path.suffix == ".py":  # docstrings
                quotes = line.count('"""')
                inside, text = text or quotes > 0, text != (quotes % 2 == 1)
                if inside:
                    continue
            if HARMLESS.search(line):
                continue
            code = line if path.suffix == ".py" else line.split("//")[0]
            for rule in rules:
                for found in re.finditer(rule.pattern, code):
                    new = found.expand(rule.instead) if "\\" in rule.instead else rule.instead
                    after = line[: found.start()] + new + line[found.end() :]
                    if after != line:
                        yield Mutant(family, name, number, rule.name, line.strip(), after)


def in_turns(family: str, seed: int) -> Iterator[Mutant]:
    """Yield a family's mutants in random order, its rules in turns."""
    rng = random.Random(f"{family} {seed}")
    by_rule: dict[str, list[Mutant]] = {}
    for mutant in mutants_of(family):
        by_rule.setdefault(mutant.rule, []).append(mutant)
    for some in by_rule.values():
        rng.shuffle(some)
    while any(by_rule.values()):
        for some in by_rule.values():
            if some:
                yield some.pop()
