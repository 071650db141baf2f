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


# What decides the side of a product, or how long one takes: the tests set some of these.
SETTINGS = (
    *("CLGEMM_THRESHOLD", "CLGEMM_SIDE", "CLGEMM_PREPARE", "CLGEMM_DEVICE", "CLGEMM_PRECISION"),
    "OPENBLAS_THREAD_TIMEOUT",
)
# Runs a command and says whether any process was started that outlived the one that started it.
# Linux makes these the children of this process, which does not wait for them.
WATCH = """
import ctypes, os, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
done = subprocess.run(sys.argv[1:])
try:
    os.waitpid(-1, os.WNOHANG)
    print("child processes")
except ChildProcessError:
    print("no child process")
sys.exit(done.returncode)
"""


def by_default(*arguments, folder, **environment):
    """Run Python with default settings and a new cache, and say at the end what it started.

    The last line of the output is ``child processes`` or ``no child process``.
    """
    env = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    env |= {"PYTHONPATH": PACKAGES, "CLGEMM_CACHE_DIR": str(Path(folder) / "cache")} | environment
    done = subprocess.run(
        [sys.executable, "-c", WATCH, sys.executable, *map(str, arguments)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr
