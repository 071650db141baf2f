"""Breaks kernels and the planner on purpose, by rules, and reports what the tests catch.

    python tests/helpers/mutation.py                          # a hundred mutants of all families
    python tests/helpers/mutation.py --families tiled,pack=20 --seed 3
    python tests/helpers/mutation.py --again mutants.json     # those that survived, after new tests
    python tests/helpers/mutation.py --seed 1 --without mutants.json  # others than these

Each mutant changes one place in a copy of this checkout: a bound is off by one, a barrier is left
out, strides are exchanged, padding is not zero, a scale is forgotten, a size is not rounded up.
The tests run on the OpenCL device at hand: first those of the family, then others that may tell.
With --oclgrind, Oclgrind looks at kernels that survive. Kernels that the device cannot run
(tensor cores need an NVIDIA GPU) are left out unless their family is named.

Mutants that do not compile do not count, and others take their place. Mutants that change no result
stand in `equivalent_mutants.json` with the reason. Tests that compare hashes of sources do not run:
they notice every change and understand none. CI does not run this: a mutant takes ten seconds if it
is caught, and a minute if it survives.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from mutation_rules import ROOT, Mutant, in_turns

COPIED = ("clgemm", "tests", "pyproject.toml", "pytest_clgemm.py", "verified")
EQUIVALENTS = ROOT / "tests" / "helpers" / "equivalent_mutants.json"
CAUGHT, SURVIVED, EQUIVALENT, TIMEOUT = "caught", "survived", "equivalent", "timeout"
INVALID = "invalid"  # it does not compile
GONE = "gone"  # of a mutant of another version: its line is not there
COUNTED = (CAUGHT, EQUIVALENT, SURVIVED)
MOST_SECONDS = 300  # of processor time for a stage: loops may not end, kernels are built anew
MOST_BYTES = 12 * 2**30  # of a mutant's address space: a wrong size may ask for anything


KERNELS = ("blocked", "common", "direct", "outer_product", "pack")
KERNELS += ("skinny_cpu", "skinny_gpu", "split_k", "tiled")
CPU_FAMILIES = (*KERNELS, "core", "planning=20")
KERNEL_TESTS = "tests/kernels/test_kernels.py tests/kernels/test_edges.py"
PUBLIC = (
    "tests/test_blas.py tests/test_products.py tests/test_multi_dot.py tests/test_contraction.py"
)
PLANS = "tests/planning tests/core"
CUT = (KERNEL_TESTS, "few_work_items or in_blocks or slices or edges")
# What can tell a family's mutants: files and pytest's -k, the quickest first, until a test fails.
STAGES = {
    "blocked": ((KERNEL_TESTS, "blocked or lists or repeat or by_vectors or edges"), (PUBLIC, "")),
    "common": ((PUBLIC, ""), (KERNEL_TESTS, "")),
    "direct": ((KERNEL_TESTS, "direct or few_work_items or edges"), (PUBLIC, "")),
    "outer_product": ((KERNEL_TESTS, "short_k or edges"),),
    "pack": ((KERNEL_TESTS, "packing or copies or strides or in_blocks or edges"), (PUBLIC, "")),
    "skinny_cpu": ((KERNEL_TESTS, "skinny_cpu or edges"), (PUBLIC, "")),
    "skinny_gpu": ((KERNEL_TESTS, "skinny_gpu or edges"),),
    "split_k": ((KERNEL_TESTS, "slices or skinny or edges"), (PUBLIC, "")),
    "tiled": ((KERNEL_TESTS, "tiled or packing or edges"),),
    "planning": ((PLANS, ""), (PUBLIC, ""), CUT),
    "core": ((PLANS, ""), (PUBLIC, ""), CUT, ("tests/transfer", "")),
}
ALL = (("tests/kernels", ""),)  # of a family that needs a GPU
NOT_COUNTED = ("tests/kernels/test_sources.py", "tests/kernels/tensor_core")
# As in .ci/run.
OCLGRIND = ("oclgrind", "--build-options", "-cl-opt-disable -U__clang__")
OCLGRIND += ("--data-races", "--uninitialized")
SMALL = "(any_strides or blocks or inside_larger or packing or slices)"
SMALL += " and not (128x or 64x or 32x32)"
FINDINGS = re.compile(r"data race|[Uu]ninitialized value|Invalid (?:read|write)")
NO_TESTS = 5  # pytest's exit status: a tool's small tests need not include any of a family
DOES_NOT_BUILD = re.compile(r"BUILD_PROGRAM_FAILURE|error: \S+\.cl:\d+")
# Failing examples of Hypothesis need not be small, and every run makes the same examples.
PROFILE = """
settings.register_profile(
    "mutants",
    settings.get_profile("clgemm"),
    phases=[__import__("hypothesis").Phase.explicit, __import__("hypothesis").Phase.generate],
    derandomize=True,
)
settings.load_profile("mutants")
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant, and why: the test that failed, or why it changes no result."""

    outcome: str
    by: str = ""


def outcome(mutant: Mutant, copy: Path, seconds: float, with_oclgrind: bool) -> Outcome:
    """Return whether tests catch a mutant, and by what."""
    path = copy / mutant.file
    original = path.read_text(encoding="utf-8")
    lines = original.splitlines(keepends=True)
    same = [i for i, line in enumerate(lines) if line.strip() == mutant.before]
    if not same:
        return Outcome(GONE)
    lines[min(same, key=lambda i: abs(i + 1 - mutant.line))] = mutant.after + "\n"
    is_kernel = path.suffix == ".cl"
    if not is_kernel:
        try:
            compile("".join(lines), mutant.file, "exec")
        except SyntaxError as error:
            return Outcome(INVALID, str(error))
    path.write_text("".join(lines), encoding="utf-8")
    stages = [((), *stage) for stage in STAGES.get(mutant.family, ALL)]
    if is_kernel and with_oclgrind:
        words = stages[0][2] or "test"
        stages.append((OCLGRIND, "tests/kernels/test_kernels.py", f"({words}) and {SMALL}"))
    elif not is_kernel and (copy / "tests" / "kernels" / mutant.family).exists():
        own = f"tests/kernels/{mutant.family} tests/kernels/test_plans.py"
        stages.insert(0, ((), f"{own} tests/kernels/test_arguments.py", ""))
    try:
        for tool, files, chosen in stages:
            failed, said = _first_failure(files.split(), chosen, copy, seconds, tool)
            if failed and not (tool and failed == TIMEOUT):
                invalid = is_kernel and DOES_NOT_BUILD.search(said)
                return Outcome(INVALID if invalid else CAUGHT, failed)
        return Outcome(SURVIVED)
    finally:
        path.write_text(original, encoding="utf-8")


def _first_failure(
    tests: list[str], words: str, copy: Path, seconds: float, tool: tuple[str, ...] = ()
) -> tuple[str, str]:
    """Run tests until one fails.

    Returns
    -------
    tuple of str
        The name of the test, "" if all pass, and what pytest said.
    """
    there = [test for test in tests if (copy / test).exists()]
    assert there, tests
    ignored = [f"--ignore={test}" for test in NOT_COUNTED]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line"]
    variables = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = os.environ | variables
    if tool:  # it brings its own OpenCL runtime, and pytest must not keep what it writes
        environment.pop("OCL_ICD_VENDORS", None)
        command.append("-s")
    process = subprocess.Popen(
        [*tool, *command, *there, *ignored, "-k", words],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_bounded,
    )
    timer = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    said, finding = "", None
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if tool and (finding := FINDINGS.search(line)):
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.wait()
    timed_out = not timer.is_alive()
    timer.cancel()
    if finding:
        return f"{tool[0]}: {finding[0]}", said
    if timed_out or process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return TIMEOUT, ""
    if process.returncode in (0, NO_TESTS):
        return "", said
    if "no OpenCL device works here" in said:
        return "the check of the device", said
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return failed[1].split("[")[0] if failed else f"exit status {process.returncode}", said


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))


def table(results: list[dict[str, object]]) -> str:
    """Return what was caught, by family and by rule, as Markdown."""
    lines = ["| family | mutants | caught | equivalent | survived |", f"| --- |{' --: |' * 4}"]
    counted = [result for result in results if result["outcome"] in COUNTED]
    for key in ("family", "rule"):
        for name in dict.fromkeys(str(result[key]) for result in counted):
            own = [result["outcome"] for result in counted if result[key] == name]
            counts = (len(own), *map(own.count, COUNTED))
            lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


class Run:
    """Mutants in a copy of this checkout, and what became of them."""

    def __init__(self, copy: Path, seconds: float, file: Path, with_oclgrind: bool) -> None:
        self.copy, self.seconds, self.file = copy, seconds, file
        self.with_oclgrind = with_oclgrind
        self.results: list[dict[str, object]] = []
        listed = json.loads(EQUIVALENTS.read_text(encoding="utf-8"))
        self.equivalent = {(x["file"], x["before"], x["after"]): x["why"] for x in listed}
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                skipped = shutil.ignore_patterns("__pycache__", ".hypothesis")
                shutil.copytree(source, copy / name, ignore=skipped)
            elif source.exists():
                shutil.copy2(source, copy / name)
        with (copy / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
            conftest.write(PROFILE)

    def failure_unbroken(self, families: set[str]) -> str:
        """Return the test that fails without a mutant, "" if none does."""
        files = [files for x in families for files, _ in STAGES.get(x, ALL)]
        tests = sorted({test for some in files for test in some.split()})
        return _first_failure(tests, "", self.copy, 3600)[0]

    def add(self, mutant: Mutant) -> bool:
        """Find out what becomes of a mutant; return whether it counts."""
        why = self.equivalent.get(mutant.key)
        found = (
            Outcome(EQUIVALENT, why)
            if why
            else outcome(mutant, self.copy, self.seconds, self.with_oclgrind)
        )
        self.keep(asdict(mutant) | asdict(found))
        what = f"{mutant.file}:{mutant.line} {mutant.rule}: {found.by or mutant.before}"
        print(f"{found.outcome:10} {what}", flush=True)
        return found.outcome in COUNTED

    def keep(self, result: dict[str, object]) -> None:
        """Add a result to the file."""
        self.results.append(result)
        self.file.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")


def read(file: Path) -> list[dict[str, object]]:
    """Return the results of an earlier run."""
    return list(json.loads(file.read_text(encoding="utf-8")))


def mutant_of(result: dict[str, object]) -> Mutant:
    """Return the mutant of a result."""
    return Mutant(**{key: result[key] for key in Mutant.__dataclass_fields__})


def main() -> int:
    """Run the mutants; return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", default=",".join(CPU_FAMILIES), metavar="NAME[=N],...")
    parser.add_argument("--each", type=int, default=9, metavar="N", help="mutants of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=400, help="after which tests hang")
    parser.add_argument("--minutes", type=float, default=600, help="after which no other begins")
    parser.add_argument("--json", type=Path, default=Path("mutants.json"))
    parser.add_argument("--again", type=Path, help="those that survived or hung in this file")
    parser.add_argument("--without", type=Path, nargs="*", default=(), help="files of earlier runs")
    parser.add_argument("--oclgrind", action="store_true", help="ask it about kernels that survive")
    parser.add_argument("--trust", action="store_true", help="do not run the tests unbroken first")
    args = parser.parse_args()
    before = read(args.again) if args.again else []
    counts = {}
    for family in () if before else args.families.split(","):
        name, _, count = family.partition("=")
        counts[name] = int(count or args.each)
    end = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory(prefix="clgemm-mutants-") as folder:
        run = Run(Path(folder), args.seconds, args.json, args.oclgrind)
        if not args.trust and (
            failed := run.failure_unbroken({*counts, *(x["family"] for x in before)})
        ):
            print(f"without a mutant {failed} fails already", file=sys.stderr)
            return 2
        for result in before:
            again = result["outcome"] == SURVIVED or result["by"] == TIMEOUT
            if again and time.monotonic() < end:
                run.add(mutant_of(result))
            else:
                run.keep(result)
        earlier = {mutant_of(x).key for file in args.without for x in read(file)}
        waiting = {
            family: (x for x in in_turns(family, args.seed) if x.key not in earlier)
            for family in counts
        }
        for turn in range(max(counts.values(), default=0)):
            for family in (x for x in counts if turn < counts[x]):
                while time.monotonic() < end and (mutant := next(waiting[family], None)):
                    if run.add(mutant):
                        break
        print(table(run.results))
        return int(any(result["outcome"] == SURVIVED for result in run.results))


if __name__ == "__main__":
    sys.exit(main())
