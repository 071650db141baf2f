"""Programs under ``python -m clgemm.accel``: as Python itself would run them, but accelerated."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import clgemm
from clgemm.accel import __main__ as command
from clgemm.accel import enabled, report

ROOT = Path(clgemm.__file__).parents[1]
# Packages may lie on this process's path alone.
PACKAGES = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
PRODUCT = "import numpy as np; a = np.ones((40, 40), 'f'); assert ((a @ a) == 40).all()\n"


def python(*arguments, folder, **environment):
    """Run Python in a folder; return its exit code, output and errors."""
    env = os.environ | {"PYTHONPATH": PACKAGES, "CLGEMM_THRESHOLD": "0"} | environment
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def both(*arguments, folder):
    """Run a program as it is and accelerated."""
    accelerated = python("-m", "clgemm.accel", *arguments, folder=folder)
    return python(*arguments, folder=folder), accelerated


SCRIPT = """
import atexit, pickle, sys
import numpy as np, helper
class Named: pass
def fail(depth):
    a = np.ones((3, 4), "f")
    fail(depth - 1) if depth else np.dot(a, a)
if __name__ == "__main__":
    print(sys.argv, __file__, __spec__, __package__, helper.__name__, sys.path[0])
    print(pickle.loads(pickle.dumps(Named())).__class__)
    print(sys.modules["__main__"].__dict__ is globals())
    print(sorted(name for name in globals() if name.startswith("__")))
    a = np.ones((40, 40), "f")
    print((a @ a).sum(), a.dot(a).sum(), np.dot(a, a).sum())
    atexit.register(lambda: print("last", pickle.dumps(Named())[:1]))
    if "exit" in sys.argv: sys.exit(7)
    if "word" in sys.argv: sys.exit("a word")
    if "hook" in sys.argv: sys.excepthook = lambda *e: print("own hook", e[0], e[2].tb_lineno)
    fail(1)
"""


def test_a_script_runs_as_in_python(tmp_path):
    """Arguments, names, exit codes and tracebacks, with nothing of ours in them."""
    (tmp_path / "program.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("")
    for arguments in (["exit", "--profile", "-m"], ["word"], [], ["hook"]):
        plain, accelerated = both("program.py", *arguments, folder=tmp_path)
        assert accelerated == plain
    assert "last" in plain[1]


def test_modules_folders_and_archives(tmp_path):
    """As `python -m`, `python folder` and `python archive` run them."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    program = (
        PRODUCT + "import sys; print(__name__, sys.argv, __package__, __spec__.name); a @ a.T[1:]"
    )
    (package / "__main__.py").write_text(program)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", program)
    for arguments in (["-m", "package", "-x"], ["package"], ["archive.zip", "y"]):
        plain, accelerated = both(*arguments, folder=tmp_path)
        assert accelerated == plain
        assert "ValueError" in plain[2]
    for arguments in (["no_such.py"], ["-m", "no_such"]):
        plain, accelerated = both(*arguments, folder=tmp_path)
        assert accelerated == plain


DAEMONS = """
import sys, threading, time
import numpy as np
x = np.ones((200, 200), "f")
begun = threading.Event()
def work():
    while True:
        x @ x; np.dot(x, x); np.matmul(x, x); begun.set()
for _ in range(3): threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(float(sys.argv[1]))
"""


def test_the_exit_is_clean_while_daemon_threads_multiply(tmp_path):
    """With code 0 and no words, as with NumPy alone."""
    (tmp_path / "program.py").write_text(DAEMONS)
    for i in range(8):
        found = python("-m", "clgemm.accel", "program.py", f"0.00{i}", folder=tmp_path)
        assert found == (0, "", "")


RECURSION = """
import sys
import numpy as np
def total(x, depth=0):
    if depth: return total(x, depth - 1)
    def descend(x):
        try: return descend(x)
        except RecursionError: return x @ x
    return descend(x)
x = np.ones((64, 64), "f"); x @ x
for depth in range(60): assert (total(x, depth) == 64).all(), depth
"""


def test_a_program_at_the_recursion_limit_gets_products(tmp_path):
    """Right ones, at whatever depth it meets the limit, and nothing is printed."""
    (tmp_path / "program.py").write_text(RECURSION)
    assert python("-m", "clgemm.accel", "program.py", folder=tmp_path) == (0, "", "")


STRICT = (
    PRODUCT
    + """
import clgemm
assert (np.dot(a, a) == 40).all() and (a.dot(a) == 40).all() and (np.matmul(a, a) == 40).all()
assert (clgemm.sgemm(1.0, a, a) == 40).all() and (clgemm.matmul(a, a) == 40).all()
for i in range(10_000): pass
import clgemm.accel
assert clgemm.accel.report().offloaded == 4, clgemm.accel.report()
"""
)


def test_a_strict_python_finds_nothing_to_warn_of(tmp_path):
    """``python -bb -W error``: no product raises a warning, at the call or later."""
    (tmp_path / "program.py").write_text(STRICT)
    found = python("-bb", "-W", "error", "-m", "clgemm.accel", "program.py", folder=tmp_path)
    assert found == (0, "", "")


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_an_interrupt_ends_a_program_as_in_python(tmp_path):
    """By the signal, after its clean-up, with the program's own traceback."""
    (tmp_path / "program.py").write_text(
        PRODUCT + "import os, signal\ntry: os.kill(os.getpid(), signal.SIGINT)\n"
        "finally: print('cleaned up')\n"
    )
    plain, accelerated = both("program.py", folder=tmp_path)
    assert accelerated == plain
    assert plain[0] == -signal.SIGINT


def test_a_profile_ends_with_a_table(tmp_path):
    """On the error stream, with the calls of both sides, a program's failure notwithstanding."""
    (tmp_path / "program.py").write_text(PRODUCT + "a.astype('d') @ a; print('out'); 1 / 0")
    code, out, err = python(
        "-m", "clgemm.accel", "--profile", "--threshold", "0", "program.py", folder=tmp_path
    )
    assert (code, out) == (1, "out\n")
    assert err.index("ZeroDivisionError") < err.index("where and why")
    rows = [line.split() for line in err.splitlines() if line.startswith(("matmul", "all"))]
    assert [row[:-1] for row in rows] == [
        ["matmul", "1", "device"],
        ["matmul", "1", "host:", "dtype"],
        ["all", "1", "device"],
        ["all", "1", "host"],
    ]


def test_wrong_options_are_refused(capsys):
    """With Python's exit code for that, before anything runs."""
    for options in (["--threshold", "x", "p.py"], ["--device", "no such", "p.py"], []):
        with pytest.raises(SystemExit) as ended:
            command.main(options)
        assert ended.value.code == 2
    assert "there is no program to run" in capsys.readouterr().err


PROCESSES = """
import multiprocessing, sys
import numpy as np
a = np.arange(400, dtype="f").reshape(20, 20) % 7
def product(i):
    import clgemm.accel as accel
    found = (a @ a).sum(), np.dot(a, a).sum()
    return found, accel.report().offloaded
if __name__ == "__main__":
    import clgemm.accel as accel
    expected = product(0)
    assert expected[1] == 2, expected
    for method in sys.argv[1:]:
        with multiprocessing.get_context(method).Pool(2) as pool:
            for found, offloaded in pool.map(product, range(4)):
                assert found == expected[0]
                assert offloaded == 0
    assert product(0)[1] == 4
    print("done")
"""


def test_child_processes_have_numpy(tmp_path):
    """Whether they are forked or spawned; the parent's acceleration goes on."""
    (tmp_path / "program.py").write_text(PROCESSES)
    methods = ["spawn"] if sys.platform == "win32" else ["fork", "spawn"]
    code, out, err = python(
        "-W", "ignore", "-m", "clgemm.accel", "program.py", *methods, folder=tmp_path
    )
    assert (code, out) == (0, "done\n"), err


def test_without_a_device_there_is_one_warning(tmp_path):
    """And NumPy."""
    (tmp_path / "program.py").write_text(PRODUCT + "a @ a; np.dot(a, a)")
    code, _, err = python(
        "-m", "clgemm.accel", "program.py", folder=tmp_path, CLGEMM_DEVICE="no such device"
    )
    assert code == 0
    assert err.count("NumPy is not accelerated") == len(err.strip().splitlines()) == 1


def test_a_sitecustomize_of_the_readme(tmp_path):
    """Its three lines accelerate every program that is asked for by CLGEMM_ACCEL."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = text[text.index("# sitecustomize.py") :]
    (tmp_path / "sitecustomize.py").write_text(lines[: lines.index("```")])
    path = os.pathsep.join([str(tmp_path), PACKAGES])
    program = PRODUCT + "import clgemm.accel; print(clgemm.accel.report().offloaded)"
    for wanted, offloaded in (("1", "1"), ("", "0")):
        found = python("-c", program, folder=tmp_path, PYTHONPATH=path, CLGEMM_ACCEL=wanted)
        assert found == (0, f"{offloaded}\n", "")


def test_notebooks(tmp_path, monkeypatch):
    """``%load_ext clgemm.accel`` and ``%unload_ext`` in cells; an error in one harms no other."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [
        "%load_ext clgemm.accel\n" + PRODUCT,
        "a @ a[:3]",
        "import clgemm.accel as accel\na.dot(a)\nprint(accel.report().offloaded)",
        "%unload_ext clgemm.accel\na @ a\nprint(accel.report().offloaded)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(x) for x in cells])
    monkeypatch.setenv("PYTHONPATH", PACKAGES)
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    specification = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "this Python",
        "language": "python",
    }
    folder = tmp_path / "kernels" / "this"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(specification))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    client = nbclient.NotebookClient(notebook, kernel_name="this", timeout=60, allow_errors=True)
    client.execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert outputs[0] == []
    assert outputs[1][0].ename == "ValueError"
    assert [outputs[i][0].text for i in (2, 3)] == ["2\n", "2\n"]


def test_the_network_computes_the_same(tmp_path):
    """Made small, and everything offloaded: the same to float32's accuracy."""
    pytest.importorskip("sklearn")
    code, out, err = python(
        ROOT / "examples" / "accelerated.py", "--threshold", "0", "--profile",
        "--programs", "network", "--network=--hidden 16 --epochs 2", folder=tmp_path,
    )  # fmt: skip
    assert code == 0, err
    assert "times as fast, results within" in out
    totals = [line.split() for line in out.splitlines() if line.startswith("all ")]
    assert [int(calls) for _, calls, side, _ in totals if side == "device"] == [19]


def test_the_scikit_program_computes_the_same(tmp_path, monkeypatch, capsys):
    """Likewise; scikit-learn's own products are what is offloaded."""
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    program = importlib.import_module("plain_scikit")
    monkeypatch.setattr(program, "STEP", 16)
    saved = [tmp_path / "plain.npy", tmp_path / "accelerated.npy"]
    for path, around in zip(saved, (contextlib.nullcontext(), enabled(threshold=0)), strict=True):
        monkeypatch.setattr(
            sys, "argv", ["x", "--parts", "8", "--iterations", "3", "--save", str(path)]
        )
        with around:
            program.main()
    assert report().offloaded > 10
    plain, accelerated = map(np.load, saved)
    assert abs(accelerated - plain).max() < 1e-3 * abs(plain).max()
    assert capsys.readouterr().out.count("fitted in") == 2
