"""Breaks kernels and the planner on purpose, by rules, and reports what the tests catch.

    python tests/mutation.py                          # some mutants of every family
    python tests/mutation.py --families tiled,pack --each 20 --seed 3
    python tests/mutation.py --again mutants.json     # those that survived, after new tests

Each mutant changes one place in a copy of this checkout: a bound is off by one, a barrier is left
out, strides are exchanged, padding is not zero, a scale is forgotten, a size is not rounded up.
The tests run on the OpenCL device at hand. Kernels that it cannot run (tensor cores need an NVIDIA
GPU) are left out unless their family is named. Tests that compare hashes of sources do not count:
they notice every change and understand none. CI does not run this: a mutant takes about 20 seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("clgemm", "tests", "pyproject.toml", "pytest_clgemm.py", "verified")
CAUGHT, SURVIVED, TIMEOUT = "caught", "survived", "timeout"
GONE = "gone"  # of a mutant of another version: its line is not there
MOST_BYTES = 12 * 2**30  # of a mutant's address space: a wrong size may ask for anything


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

KERNELS = ("blocked", "common", "direct", "pack", "skinny_cpu", "skinny_gpu", "split_k", "tiled")
CPU_FAMILIES = (*KERNELS, "planning", "core")
PLANNING = ("planner.py", "bounded.py", "windows.py")
CORE = ("layout.py", "problem.py", "shapes.py", "steps.py", "transfer.py")
KERNEL_TESTS = "tests/kernels/test_kernels.py tests/kernels/test_edges.py"
PUBLIC = "tests/test_blas.py tests/test_products.py"
PLANS = " ".join(
    f"tests/kernels/{name}" for name in (*KERNELS, "test_plans.py", "test_arguments.py")
)
PLANNER = "tests/planning tests/core"
# What can tell a family's mutants: files and pytest's -k, in this order, until one fails.
RUNS = {
    "blocked": (
        (KERNEL_TESTS, "blocked or lists or repeat or by_vectors or edges"),
        (PUBLIC, ""),
        (PLANS, ""),
    ),
    "common": ((PUBLIC, ""), (KERNEL_TESTS, ""), (PLANS, "")),
    "direct": ((KERNEL_TESTS, "direct or few_work_items or edges"), (PUBLIC, ""), (PLANS, "")),
    "pack": (
        (KERNEL_TESTS, "packing or any_strides or in_blocks or edges"),
        (PUBLIC, ""),
        (PLANS, ""),
    ),
    "skinny_cpu": ((KERNEL_TESTS, "skinny_cpu or edges"), (PUBLIC, ""), (PLANS, "")),
    "skinny_gpu": ((KERNEL_TESTS, "skinny_gpu or edges"), (PLANS, "")),
    "split_k": ((KERNEL_TESTS, "slices or skinny or edges"), (PUBLIC, ""), (PLANS, "")),
    "tiled": ((KERNEL_TESTS, "tiled or packing or edges"), (PLANS, "")),
    "planning": (
        (PLANNER, ""),
        (PUBLIC, ""),
        (PLANS, ""),
        (KERNEL_TESTS, "few_work_items or edges"),
    ),
    "core": ((PLANNER, ""), (PUBLIC, ""), ("tests/runtime/transfer", ""), (PLANS, "")),
}
EVERYTHING = (("tests/kernels", ""), (PUBLIC, ""))  # of a family that needs a GPU
NOT_COUNTED = ("tests/kernels/test_sources.py", "tests/records/test_verified.py")


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    family: str
    file: str
    line: int  # from 1
    rule: str
    before: str
    after: str


def files_of(family: str) -> list[Path]:
    """Return the files that a family's mutants change."""
    if family == "planning":
        return [ROOT / "clgemm" / "planning" / name for name in PLANNING]
    if family == "core":
        return [ROOT / "clgemm" / "core" / name for name in CORE]
    folder = ROOT / "clgemm" / "kernels" / family
    names = ("plan.py", "panels.py", "few_rows.py", "narrow.py")
    return [*sorted(folder.glob("*.cl")), *(folder / x for x in names if (folder / x).exists())]


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


def chosen(family: str, each: int, seed: int) -> list[Mutant]:
    """Return some mutants of a family, its rules in turns."""
    rng = random.Random(f"{family} {seed}")
    by_rule: dict[str, list[Mutant]] = {}
    for mutant in mutants_of(family):
        by_rule.setdefault(mutant.rule, []).append(mutant)
    for some in by_rule.values():
        rng.shuffle(some)
    found: list[Mutant] = []
    while len(found) < each and any(by_rule.values()):
        for some in by_rule.values():
            if some and len(found) < each:
                found.append(some.pop())
    return found


def outcome(mutant: Mutant, copy: Path, seconds: float) -> tuple[str, str]:
    """Return whether tests catch a mutant, and by what."""
    path = copy / mutant.file
    original = path.read_text(encoding="utf-8")
    lines = original.splitlines(keepends=True)
    same = [i for i, line in enumerate(lines) if line.strip() == mutant.before]
    if not same:
        return GONE, ""
    lines[min(same, key=lambda i: abs(i + 1 - mutant.line))] = mutant.after + "\n"
    path.write_text("".join(lines), encoding="utf-8")
    try:
        begin = time.monotonic()
        for tests, words in RUNS.get(mutant.family, EVERYTHING):
            left = seconds - (time.monotonic() - begin)
            if caught := _first_failure(tests.split(), words, copy, max(left, 1.0)):
                return CAUGHT, caught
        return SURVIVED, ""
    finally:
        path.write_text(original, encoding="utf-8")


def _first_failure(tests: list[str], words: str, copy: Path, seconds: float) -> str:
    """Run tests until one fails; return its name, "" if all pass."""
    there = [test for test in tests if (copy / test).exists()]
    assert there, tests
    ignored = [f"--ignore={test}" for test in NOT_COUNTED]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no"]
    variables = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [*command, *there, *ignored, "-k", words],
        cwd=copy,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=_bounded,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return TIMEOUT
    if process.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return failed[1].split("[")[0] if failed else f"exit status {process.returncode}"


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def table(results: list[dict[str, object]]) -> str:
    """Return what was caught, by family and by rule, as Markdown."""
    lines = ["| family | mutants | caught | survived |", "| --- | --: | --: | --: |"]
    for key in ("family", "rule"):
        for name in dict.fromkeys(str(result[key]) for result in results):
            own = [result for result in results if result[key] == name]
            caught = sum(result["outcome"] == CAUGHT for result in own)
            lines.append(f"| {name} | {len(own)} | {caught} | {len(own) - caught} |")
    return "\n".join(lines)


def main() -> int:
    """Run the mutants; return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", default=",".join(CPU_FAMILIES), metavar="NAMES")
    parser.add_argument("--each", type=int, default=8, metavar="N", help="mutants of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=240, help="after which a mutant hangs")
    parser.add_argument("--minutes", type=float, default=600, help="after which no other begins")
    parser.add_argument("--json", type=Path, default=Path("mutants.json"))
    parser.add_argument("--again", type=Path, help="those that survived or hung in this file")
    parser.add_argument("--trust", action="store_true", help="do not run the tests unbroken first")
    args = parser.parse_args()
    if args.again:
        before = json.loads(args.again.read_text(encoding="utf-8"))
        keys = Mutant.__dataclass_fields__
        survived = [x for x in before if x["outcome"] == SURVIVED or x["by"] == TIMEOUT]
        mutants = [Mutant(**{key: x[key] for key in keys}) for x in survived]
    else:
        by_family = [chosen(x, args.each, args.seed) for x in args.families.split(",")]
        turns = range(max(map(len, by_family)))
        mutants = [some[turn] for turn in turns for some in by_family if turn < len(some)]
    results: list[dict[str, object]] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clgemm-mutants-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                skipped = shutil.ignore_patterns("__pycache__", ".hypothesis")
                shutil.copytree(source, copy / name, ignore=skipped)
            elif source.exists():
                shutil.copy2(source, copy / name)
        families = set() if args.trust else {mutant.family for mutant in mutants}
        for tests in sorted({tests for x in families for tests, _ in RUNS.get(x, EVERYTHING)}):
            if failed := _first_failure(tests.split(), "", copy, 3600):
                print(f"without a mutant {failed} fails already", file=sys.stderr)
                return 2
        for mutant in mutants:
            if time.monotonic() - begin > 60 * args.minutes:
                break
            found, by = outcome(mutant, copy, args.seconds)
            results.append(asdict(mutant) | {"outcome": found, "by": by})
            args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(f"{found:8} {mutant.file}:{mutant.line} {mutant.rule}: {by or mutant.before}")
            sys.stdout.flush()
    print(table(results))
    return int(any(result["outcome"] == SURVIVED for result in results))


if __name__ == "__main__":
    sys.exit(main())
