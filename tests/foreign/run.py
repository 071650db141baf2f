"""Run the test suites of NumPy, SciPy and scikit-learn plain and accelerated, and compare.

The exit status is 1 if a test fails only when NumPy is accelerated, or if a run does not finish.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from comparison import FAILURES, Comparison, Run, compare, parsed, table
from suites import SUITES, chosen, targets

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ("numpy", "scipy", "scikit-learn", "pytest", "hypothesis", "pyopencl")
PLAIN = ("-m", "pytest")
ACCELERATED = ("-m", "clgemm.accel", "--threshold", "0", "-m", "pytest")
PYTEST = (
    *("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "outcomes", "-q", "--tb=short"),
    *("--continue-on-collection-errors", "--hypothesis-seed=0"),
)
DEVICE = """
import clgemm, json
device = clgemm.get_device()
name = f"{device.name} ({device.platform})"
print(json.dumps({"device": name, "driver": device.queue.device.driver_version}))
"""
MOST_REPEATED = 40  # the most failures of a suite that are run again; the rest count as real


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", metavar="SUITES", help='such as "numpy.linalg,sklearn", with commas between'
    )
    parser.add_argument(
        "--minutes", type=float, default=60, help="time limit of a run of a suite (default 60)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    args = parser.parse_args(arguments)
    try:
        names = chosen(args.only.split(",") if args.only else SUITES)
    except ValueError as error:
        parser.error(str(error))
    if args.json and not args.json.resolve().parent.is_dir():
        parser.error(f"--json {args.json}: there is no folder {args.json.resolve().parent}")
    for name in names:
        if not targets(name):
            parser.error(f"{name} has no tests here: pip install scikit-learn scipy hypothesis")
    try:
        about = _about()
    except RuntimeError as error:
        parser.error(f"clgemm has no OpenCL device: {error}")
    found: list[Comparison] = []
    for name in names:
        _say(f"{name} ...")
        found.append(_compared(name, 60 * args.minutes))
        _say(table(found[-1:]).splitlines()[2])
        if args.json:
            results = {"about": about, "suites": [c.as_json() for c in found]}
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    print(table(found), "", *_remarks(found), *_listed(about), sep="\n")
    return 0 if all(c.is_good for c in found) else 1


def _compared(name: str, most_seconds: float) -> Comparison:
    """Run a suite plain and accelerated, and repeat the tests that fail only when accelerated."""
    wanted = ["--pyargs", *targets(name)]
    root = _packages_folder(targets(name)[0])

    def run(command: Sequence[str], wanted: Sequence[str]) -> Run:
        return _run(command, wanted, root, most_seconds)

    found = compare(name, run(PLAIN, wanted), run(ACCELERATED, wanted))
    for test in found.only_accelerated[:MOST_REPEATED]:
        _say(f"again: {test}")
        alone = [str(root / test)]
        if run(ACCELERATED, alone).failures():
            # A test that needs other tests before it fails alone both ways.
            is_real = not run(PLAIN, alone).failures()
        else:  # the tests before it may matter
            file = [str(root / test.partition("::")[0])]
            is_real = run(ACCELERATED, file).outcomes.get(test) in FAILURES
        found.repeated[test] = "real" if is_real else "flaky"
    return found


def _run(python: Sequence[str], wanted: Sequence[str], root: Path, most_seconds: float) -> Run:
    """Run pytest in another process and an empty folder, without any project's settings."""
    with tempfile.TemporaryDirectory(prefix="foreign-") as folder:
        settings, outcomes = Path(folder, "pytest.ini"), Path(folder, "outcomes.jsonl")
        settings.write_text("[pytest]\n")
        outcomes.touch()
        command = [sys.executable, *python, *PYTEST, "-c", str(settings), "--rootdir", str(root)]
        start = time.monotonic()
        status: int | None
        with Path(folder, "output").open("w+") as output:
            try:
                status = subprocess.run(
                    [*command, "--outcomes", str(outcomes), *wanted],
                    cwd=folder,
                    env=_environment(),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=most_seconds,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                status = None
            with outcomes.open() as lines:
                run = parsed(lines, status, time.monotonic() - start)
            if not run.ended_well:
                output.seek(0)
                _say(f"exit status {status} of {' '.join(python)}; the end of its output:")
                _say("".join(output.readlines()[-20:]))
        return run


def _environment() -> dict[str, str]:
    """Return the environment of both runs: this clgemm, a memory limit and random seeds."""
    env = {k: v for k, v in os.environ.items() if k not in ("CLGEMM_THRESHOLD", "PYTEST_ADDOPTS")}
    packages = [str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, packages))
    env.setdefault("NPY_AVAILABLE_MEM", "4 GB")  # NumPy skips tests that need more
    # scikit-learn skips its float32 tests by default.
    return env | {"PYTHONHASHSEED": "0", "SKLEARN_SEED": "0", "SKLEARN_RUN_FLOAT32_TESTS": "1"}


def _packages_folder(module: str) -> Path:
    """Return the folder that holds a module's package."""
    spec = find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{module} is not installed")
    return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0].resolve()


def _about() -> dict[str, Any]:
    """Return the date, the versions and the device.

    Raises
    ------
    RuntimeError
        If no device works: then every product would stay on the host.
    """

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        except FileNotFoundError:  # git is not installed
            return ""
        return done.stdout.strip()

    about = {"date": datetime.date.today().isoformat(), "python": platform.python_version()}
    about |= {package: _version(package) for package in PACKAGES}
    changed = ", changed" if git("status", "--porcelain", "--", "clgemm") else ""
    about["clgemm"] = (git("rev-parse", "--short", "HEAD") or "not in a git checkout") + changed
    done = subprocess.run(
        [sys.executable, "-c", DEVICE], env=_environment(), capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return about | json.loads(done.stdout)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _remarks(found: Sequence[Comparison]) -> list[str]:
    """Return the lines below the table: runs that did not finish, and tests that differ."""
    lines: list[str] = []
    for c in found:
        for side, run in (("plain", c.plain), ("accelerated", c.accelerated)):
            if run.status is None:
                lines.append(f"- {c.suite}, {side}: it took too long")
            elif not run.ended_well:
                lines.append(f"- {c.suite}, {side}: exit status {run.status}")
        if failed := (c.accelerated.products or {}).get("stayed", {}).get("device failure"):
            lines.append(f"- {c.suite}: {failed:,} products stayed on the host: device failure")
        for test in c.only_accelerated:
            why = (c.accelerated.messages.get(test) or "crashed").strip().splitlines()[-1]
            lines.append(f"- only accelerated, {c.repeated.get(test, 'real')}: `{test}`: {why}")
        lines += [f"- only plain: `{test}`" for test in c.only_plain]
        lines += [f"- {test}: {' -> '.join(pair)}" for test, pair in c.otherwise.items()]
    return [*lines, ""] if lines else []


def _listed(about: dict[str, Any]) -> list[str]:
    return [f"- {key}: {value}" for key, value in about.items()]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
