"""Programs in child processes: plain and accelerated Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import clgemm

ROOT = Path(clgemm.__file__).parents[1]
# Child processes find packages that are on this process's path only.
PACKAGES = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
PRODUCT = "import numpy as np; a = np.ones((40, 40), 'f'); assert ((a @ a) == 40).all()\n"


def python(*arguments, folder, stdin="", **environment):
    """Run Python in a folder, and return its exit code, output and errors."""
    env = os.environ | {"PYTHONPATH": PACKAGES, "CLGEMM_THRESHOLD": "0"} | environment
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder, env=env, input=stdin, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def both(*arguments, folder, stdin=""):
    """Run a program in plain Python and accelerated, and return both results."""
    accelerated = python("-m", "clgemm.accel", *arguments, folder=folder, stdin=stdin)
    return python(*arguments, folder=folder, stdin=stdin), accelerated
