"""Tests of programs under default settings: NumPy goes on while a device is prepared, or is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs import by_default

HELPERS = Path(__file__).parents[1] / "helpers"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="a process that Linux finds")

IMPORTS = "import sys, numpy; print('pyopencl' in sys.modules, 'clgemm.accel' in sys.modules)"
SMALL = """
import sys
import numpy as np
a, stack = np.ones((64, 64), "f"), np.ones((40, 8, 8), "f")
for _ in range(3000):
    assert (a @ a)[0, 0] == np.dot(a, a)[0, 0] == a.dot(a)[0, 0] == np.inner(a, a)[0, 0] == 64
    assert np.matmul(a, a[0])[0] == 64 and (stack @ stack)[0, 0, 0] == 8
import clgemm.accel
print(clgemm.accel.report().stayed, 'pyopencl' in sys.modules)
"""
LARGE = """
import sys, time
import numpy as np
a, begun, made = np.ones((700, 700), "f"), time.perf_counter(), 0
def goes_on():
    trial = sys.modules.get("clgemm.hardware.trial")
    seconds = time.perf_counter() - begun
    return seconds < 1.5 or ("wait" in sys.argv and seconds < 30 and not trial)
while goes_on():
    assert (a @ a == 700).all() and (np.dot(a, a) == 700).all()
    made += 2
print(sum(row.calls for row in sys.modules["clgemm"].accel.report().rows) == made)
"""


def accelerated(text, folder, *words, **environment):
    """Run a program as a script with accelerated NumPy, and return the lines of its output."""
    (Path(folder) / "program.py").write_text(text)
    arguments = "-m", "clgemm.accel", "program.py", *words
    code, out, err = by_default(*arguments, folder=folder, **environment)
    assert (code, err) == (0, "")
    return out.splitlines()


@on_linux
def test_a_program_that_only_imports_numpy_loads_no_opencl(tmp_path):
    """A program that only imports NumPy is accelerated, imports no pyopencl and starts nothing."""
    assert accelerated(IMPORTS, tmp_path) == ["False True", "no child process"]


@pytest.mark.parametrize("module", ["clgemm", "clgemm.accel"])
def test_an_import_loads_neither_numpy_nor_opencl(module, tmp_path):
    """The import of clgemm, or of clgemm.accel, imports neither NumPy nor pyopencl."""
    code = f"import sys, {module}; print([x for x in ('numpy', 'pyopencl') if x in sys.modules])"
    found = by_default("-c", code, folder=tmp_path)
    assert (found[0], found[1].splitlines()[0], found[2]) == (0, "[]", "")


@on_linux
def test_products_that_are_too_small_start_nothing(tmp_path):
    """A program whose products are too small starts no process and imports no pyopencl."""
    said, started = accelerated(SMALL, tmp_path)
    assert said == "{'size': 18000} False"
    assert started == "no child process"


@on_linux
def test_large_products_start_a_child_process(tmp_path):
    """A program with large products starts a child process, so that the other tests can tell."""
    assert accelerated(LARGE, tmp_path, "wait") == ["True", "child processes"]


@on_linux
@pytest.mark.parametrize("setting", ["CLGEMM_SIDE=host", "CLGEMM_PREPARE=never"])
def test_settings_that_forbid_child_processes(setting, tmp_path):
    """With CLGEMM_SIDE=host or CLGEMM_PREPARE=never, large products start no child process."""
    variable, value = setting.split("=")
    said = accelerated(LARGE, tmp_path, **{variable: value})
    assert said == ["True", "no child process"]


SLOW = """
import sys
import time
import numpy as np
import pytest
sys.path.append(sys.argv[1])
import workers
workers.plant(pytest.MonkeyPatch(), "slow", PLANTED_SECONDS="600")
random = np.random.default_rng(0)
a, b = (random.standard_normal((700, 700)).astype("f") for _ in range(2))
made, begun = [], time.perf_counter()
while len(made) < 40 or time.perf_counter() < begun + 5:  # a child process takes two seconds of it
    made.append((a @ b, np.dot(a, b), a.dot(b)))
    del made[80:]
import clgemm.accel
found = clgemm.accel.report()
clgemm.accel.uninstall()
for each, plain in zip(zip(*made), (a @ b, np.dot(a, b), a.dot(b))):
    assert all(np.array_equal(one, plain) for one in each)
print(found.offloaded, found.stayed.keys() <= {"not known yet", "being prepared"})
print("preparing: 0 of " in found.preparing, "being prepared" in found.stayed)
"""


@on_linux
def test_a_program_goes_on_while_the_worker_is_slow(tmp_path):
    """While a worker builds for minutes, NumPy makes all products, bit for bit as without it."""
    (tmp_path / "program.py").write_text(SLOW)
    arguments = "-m", "clgemm.accel", "program.py", HELPERS
    code, out, err = by_default(*arguments, folder=tmp_path)
    assert (code, err) == (0, "")
    assert out.splitlines() == ["0 True", "True True", "child processes"]


OPERATOR = """
import sys
from clgemm import accel
accel.install()
assert "pyopencl" not in sys.modules
import pyopencl.array
for _ in range(2):
    assert "__matmul__" in vars(pyopencl.array.Array)
    accel.uninstall()
    assert not hasattr(pyopencl.array.Array, "__matmul__")
    accel.install()
"""
UNWANTED = """
from clgemm import accel
accel.install()
accel.uninstall()
import pyopencl.array
assert not hasattr(pyopencl.array.Array, "__matmul__")
accel.install()
assert hasattr(pyopencl.array.Array, "__matmul__")
"""


def test_device_arrays_get_their_operator_when_they_are_imported(tmp_path):
    """The operator ``@`` of pyopencl's arrays comes with their import and goes by uninstall."""
    assert by_default("-c", OPERATOR, folder=tmp_path)[::2] == (0, "")


def test_device_arrays_have_no_operator_after_uninstall(tmp_path):
    """An import of pyopencl's arrays after uninstall defines no operator, and install does."""
    assert by_default("-c", UNWANTED, folder=tmp_path)[::2] == (0, "")


FIRST = """
import os, subprocess, sys
import clgemm
{first}
import numpy as np
import clgemm.accel
a = np.ones((300, 300), "f")
a @ a
print(sum(clgemm.accel.report().stayed.values()))
if len(sys.argv) == 1:
    sys.exit(subprocess.run([sys.executable, __file__, "child"]).returncode)
"""


@pytest.mark.parametrize("first", ["", "clgemm.matmul", "import clgemm.products", "clgemm.sgemm"])
def test_a_program_may_import_clgemm_before_numpy(first, tmp_path):
    """NumPy is accelerated then, too, in the program and in the processes that it starts."""
    (tmp_path / "program.py").write_text(FIRST.format(first=first))
    arguments = "-m", "clgemm.accel", "--children", "program.py"
    code, out, err = by_default(*arguments, folder=tmp_path)
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["1", "1"]


SPINNING = """
import os
name = "OPENBLAS_THREAD_TIMEOUT"
before = os.environ.get(name)
import planted
print(before, os.environ.get(name), planted.seen)
"""
PLANTED = """
import os
import clgemm.accel.__main__ as launcher
seen = []
class Finder:
    def find_spec(self, name, *_):
        if name == "numpy.version":
            seen.append(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
import sys
sys.meta_path.insert(0, Finder())
import numpy
"""


@pytest.mark.parametrize("own", [None, "20"])
def test_idle_threads_of_numpys_blas_sleep_soon(own, tmp_path):
    """NumPy is loaded with a setting for that, which processes of the program do not inherit."""
    (tmp_path / "planted.py").write_text(PLANTED)
    environment = {} if own is None else {"OPENBLAS_THREAD_TIMEOUT": own}
    said, *_ = accelerated(SPINNING, tmp_path, **environment)
    assert said == f"{own} {own} {[own or '26']}"
