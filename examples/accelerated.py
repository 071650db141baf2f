"""Runs the plain programs of this folder in Python and under ``python -m clgemm.accel``.

It compares their results and prints both times. The plain programs know nothing of this. "resident"
is the network once more, accelerated with its features kept on the device.

    python examples/accelerated.py [--device D] [--threshold N] [--turns N] [--programs NAME]
        [--network="ARGUMENTS"] [--scikit="ARGUMENTS"]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

# Each program as it is, and as it is accelerated.
PROGRAMS = {
    "network": ("plain_network.py", "plain_network.py"),
    "resident": ("plain_network.py", "resident_network.py"),
    "scikit": ("plain_scikit.py", "plain_scikit.py"),
}
FOLDER = Path(__file__).parent
TIME = re.compile(r"(?:trained|fitted) in ([\d.]+) s")


def run(command: list[str], save: Path) -> tuple[np.ndarray, float, str]:
    """Run a program, and return its result, the seconds that it prints, and its error stream."""
    done = subprocess.run(
        [sys.executable, *command, "--save", str(save)], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    found = TIME.search(done.stdout)
    assert found is not None
    return np.load(save), float(found[1]), done.stderr


def compare(program: str, arguments: list[str], options: list[str], turns: int) -> float:
    """Run a program in turns without and with acceleration, and return the largest difference."""
    script, accelerated_script = (str(FOLDER / name) for name in PROGRAMS[program])
    plain_seconds, seconds, difference = [], [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        save = Path(folder) / "result.npy"
        for _ in range(turns):
            plain, taken, _ = run([script, *arguments], save)
            plain_seconds.append(taken)
            accelerated, taken, profile = run(
                ["-m", "clgemm.accel", *options, accelerated_script, *arguments], save
            )
            seconds.append(taken)
            difference = max(difference, abs(accelerated - plain).max() / abs(plain).max())
    ratio = median(plain_seconds) / median(seconds)
    print(f"{program} {' '.join(arguments)}")
    print(f"  NumPy: {median(plain_seconds):.2f} s    accelerated: {median(seconds):.2f} s", end="")
    print(f"    {ratio:.2f} times as fast, results within {difference:.1e}")
    if profile:
        print(profile)
    return difference


def main() -> None:
    """Run both programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="as for python -m clgemm.accel")
    parser.add_argument("--threshold", help="as for python -m clgemm.accel")
    parser.add_argument("--profile", action="store_true", help="print a table of all products")
    parser.add_argument(
        "--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS], help="run only these"
    )
    parser.add_argument("--turns", type=int, default=1, help="runs of each side")
    parser.add_argument("--network", default="", help="arguments of the network")
    parser.add_argument("--scikit", default="", help="arguments for plain_scikit.py")
    args = parser.parse_args()
    options = ["--profile"] if args.profile else []
    for name in ("device", "threshold"):
        if (value := getattr(args, name)) is not None:
            options += [f"--{name}", value]
    programs = {"network": args.network, "resident": args.network, "scikit": args.scikit}
    differences = [
        compare(name, programs[name].split(), options, args.turns) for name in args.programs
    ]
    # The limit is for rounding errors and their growth in training and fitting.
    if not max(differences) < 1e-3:
        raise SystemExit("the results disagree")


if __name__ == "__main__":
    main()
