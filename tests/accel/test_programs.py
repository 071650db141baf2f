"""Tests of ``python -m clgemm.accel``: programs run as in Python, but accelerated."""

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
from clgemm.accel import enabled, install, report, uninstall

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
    """A script has the arguments, names, exit codes and tracebacks of plain Python."""
    (tmp_path / "program.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("")
    for arguments in (["exit", "--profile", "-m"], ["word"], [], ["hook"]):
        plain, accelerated = both("program.py", *arguments, folder=tmp_path)
        assert accelerated == plain
    assert "last" in plain[1]


def test_modules_folders_and_archives(tmp_path):
    """Modules, folders and archives run as under `python -m`, `python folder` and `python zip`."""
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


TEXT = """
import sys
import numpy as np
print(sys.argv, repr(sys.path[0]), __name__, __doc__, __package__, __spec__, __loader__)
print(sorted(name for name in globals() if name.startswith("__")), globals().get("__file__"))
print(sys.modules["__main__"].__dict__ is globals(), repr(sys.stdin.read()))
a = np.ones((40, 40), "f")
def fail(x):
    return x / 0
assert ((a @ a) == 40).all()
if "exit" in sys.argv: sys.exit(7)
if "word" in sys.argv: sys.exit("a word")
fail(1)
"""


@pytest.mark.parametrize("arguments", [[], ["exit", "--profile", "-m", "-c", "x"], ["word"]])
def test_a_program_may_be_a_text_or_the_standard_input(arguments, tmp_path):
    """A text and the standard input run as under `python -c` and `python -`."""
    plain, accelerated = both("-c", TEXT, *arguments, folder=tmp_path, stdin="the rest")
    assert accelerated == plain
    assert "'the rest'" in plain[1]
    plain, accelerated = both("-", *arguments, folder=tmp_path, stdin=TEXT)
    assert accelerated == plain
    assert "<stdin>" in plain[1]


def test_a_text_that_is_no_program_is_an_error_as_in_python(tmp_path):
    """A text with a syntax error prints the same error as plain Python."""
    plain, accelerated = both("-c", "x = (", folder=tmp_path)
    assert accelerated == plain
    plain, accelerated = both("-", folder=tmp_path, stdin="x = (")
    assert accelerated == plain
    assert "SyntaxError" in plain[2]


def test_a_text_is_accelerated(tmp_path):
    """The products of a text or of the standard input run on the device."""
    text = PRODUCT + "import clgemm.accel; print(clgemm.accel.report().offloaded)"
    for arguments, stdin in ((["-c", text], ""), (["-"], text)):
        found = python("-m", "clgemm.accel", *arguments, folder=tmp_path, stdin=stdin)
        assert found == (0, "1\n", "")


@pytest.mark.parametrize("module", ["clgemm", "clgemm.accel"])
def test_commands_say_their_version(module, tmp_path):
    """The option ``--version`` prints clgemm's version."""
    assert python("-m", module, "--version", folder=tmp_path) == (
        *(0, f"clgemm {clgemm.__version__}\n", ""),
    )


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
    """A program ends with code 0 and no output while daemon threads multiply."""
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
    """A program at the recursion limit gets right products, and nothing is printed."""
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
    """No product gives a warning under ``python -bb -W error``."""
    (tmp_path / "program.py").write_text(STRICT)
    found = python("-bb", "-W", "error", "-m", "clgemm.accel", "program.py", folder=tmp_path)
    assert found == (0, "", "")


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_an_interrupt_ends_a_program_as_in_python(tmp_path):
    """A SIGINT ends a program by the signal, after its clean-up, with its own traceback."""
    (tmp_path / "program.py").write_text(
        PRODUCT + "import os, signal\ntry: os.kill(os.getpid(), signal.SIGINT)\n"
        "finally: print('cleaned up')\n"
    )
    plain, accelerated = both("program.py", folder=tmp_path)
    assert accelerated == plain
    assert plain[0] == -signal.SIGINT


def test_a_profile_ends_with_a_table(tmp_path):
    """A profile prints a table to the error stream at the end, also if the program fails."""
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


def test_a_profile_of_a_short_program_says_why_nothing_was_offloaded(tmp_path):
    """The profile of a short program ends with the reason and the options that help."""
    (tmp_path / "program.py").write_text(
        "import numpy as np; a = np.ones((600, 600), 'f'); a @ a; np.dot(a, a)"
    )
    command = ["-m", "clgemm.accel", "--profile"]
    _, _, err = python(*command, "program.py", folder=tmp_path, CLGEMM_THRESHOLD="")
    last = err.strip().splitlines()[-1]
    assert last.startswith("Nothing was offloaded: its large products took 0.")
    assert "a device is opened once they have taken 0.5 s" in last
    assert "--measure" in last
    assert "--threshold" in last
    _, _, err = python(*command, "--threshold", "0", "program.py", folder=tmp_path)
    assert "Nothing" not in err


def test_wrong_options_are_refused(capsys):
    """Wrong options end the command with exit code 2 before the program runs."""
    for options in (["--threshold", "x", "p.py"], ["--device", "no such", "p.py"], [], ["-c"]):
        with pytest.raises(SystemExit) as ended:
            command.main(options)
        assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "there is no program to run" in err
    assert "argument -c: expected a program" in err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("CLGEMM_PRECISION", "quick", "CLGEMM_PRECISION='quick' is not one of strict, float32, fa"),
        ("CLGEMM_THRESHOLD", "1.5", "CLGEMM_THRESHOLD='1.5' is not a whole number"),
    ],
)
@pytest.mark.parametrize("options", [["p.py"], ["--measure"]])
def test_wrong_settings_are_refused_at_the_start(
    options, variable, value, said, monkeypatch, capsys
):
    """The command, `install` and `enabled` refuse a wrong variable and name it with its value."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as ended:
        command.main(options)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    for start in (install, enabled):
        with pytest.raises(ValueError, match=said):
            start()
    monkeypatch.delenv(variable)
    before = report().offloaded
    np.ones((9, 9), "f") @ np.ones((9, 9), "f")
    assert report().offloaded == before  # nothing was installed


@pytest.mark.parametrize(("option", "offloaded"), [("6.4e4", "1"), ("64001", "0")])
def test_a_threshold_in_any_notation(option, offloaded, tmp_path):
    """The option ``--threshold`` takes numbers such as 6.4e4."""
    (tmp_path / "program.py").write_text(
        PRODUCT + "import clgemm.accel; print(clgemm.accel.report().offloaded)"
    )
    found = python("-m", "clgemm.accel", "--threshold", option, "program.py", folder=tmp_path)
    assert found == (0, f"{offloaded}\n", "")


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
    """Forked and spawned children have plain NumPy, and the parent stays accelerated."""
    (tmp_path / "program.py").write_text(PROCESSES)
    methods = ["spawn"] if sys.platform == "win32" else ["fork", "spawn"]
    code, out, err = python(
        "-W", "ignore", "-m", "clgemm.accel", "program.py", *methods, folder=tmp_path
    )
    assert (code, out) == (0, "done\n"), err


CHILDREN = """
import os, subprocess, sys
import numpy as np
a = np.arange(400, dtype="f").reshape(20, 20) % 7
CODE = "import numpy as np, sys; a = np.ones((20, 20), 'f'); assert ((a @ a) == 20).all(); " \\
    "print(sys.modules['clgemm.accel'].report().offloaded if 'clgemm.accel' in sys.modules else 0)"
def product(i):
    found = float((a @ a).sum())
    accel = sys.modules.get("clgemm.accel")
    return found, accel.report().offloaded if accel else 0, os.getpid()
def of_pool(method):
    import multiprocessing
    multiprocessing.set_forkserver_preload(["numpy"])
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(product, range(4))
def of_joblib(_):
    import joblib
    return joblib.Parallel(n_jobs=2)(joblib.delayed(product)(i) for i in range(4))
def of_subprocess(_):
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert not out.stderr, out.stderr
    return [(float((a @ a).sum()), int(out.stdout), 0)]
if __name__ == "__main__":
    import clgemm.accel as accel
    method = sys.argv[1]
    results = {"joblib": of_joblib, "subprocess": of_subprocess}.get(method, of_pool)(method)
    expected = float((a @ a).sum())
    assert [found for found, _, _ in results] == [expected] * len(results)
    assert os.getpid() not in [process for _, _, process in results]
    print(all(offloaded > 0 for _, offloaded, _ in results), accel.report().children[:6])
"""
METHODS = ["subprocess", "joblib", "spawn", "forkserver"]


@pytest.mark.skipif(os.name != "posix", reason="other systems start processes differently")
@pytest.mark.parametrize("method", [*METHODS, "fork"])
@pytest.mark.parametrize("options", [[], ["--children"]])
def test_children_are_accelerated_if_that_is_asked_for(method, options, tmp_path):
    """--children accelerates all but forked children; otherwise the report says they are not."""
    if method == "joblib":
        pytest.importorskip("joblib")
    (tmp_path / "program.py").write_text(CHILDREN)
    code, out, err = python(
        "-W", "ignore", "-m", "clgemm.accel", *options, "program.py", method, folder=tmp_path
    )
    assert (code, err) == (0, "")
    accelerated = bool(options) and method != "fork"
    said = "" if accelerated else "forked" if options else "Python"
    assert out == f"{accelerated} {said}\n"


def test_workers_of_pytest_are_accelerated(tmp_path):
    """With --children, the workers of ``pytest -n 2`` are accelerated."""
    pytest.importorskip("xdist")
    (tmp_path / "test_it.py").write_text(
        PRODUCT
        + "import clgemm.accel\ndef test_it():\n    before = clgemm.accel.report().offloaded"
        "\n    a @ a\n    assert clgemm.accel.report().offloaded == before + 1\n"
    )
    for options, expected in ((["--children"], 0), ([], 1)):
        code, out, err = python(
            *("-m", "clgemm.accel", *options, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"),
            folder=tmp_path,
        )
        assert code == expected, out + err


def test_a_sitecustomize_of_the_users_own_is_imported_too(tmp_path):
    """A user's sitecustomize is imported, and a child without NumPy does not import clgemm."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys; sys.own = __file__")
    (tmp_path / "program.py").write_text(
        "import subprocess, sys\n"
        "for code in sys.argv[1:]: subprocess.run([sys.executable, '-c', code], check=True)"
    )
    path = os.pathsep.join([str(tmp_path / "own"), PACKAGES])
    codes = [
        "import sys; print(sys.own, 'numpy' in sys.modules, 'clgemm' in sys.modules)",
        "import numpy, sys; print('clgemm.accel' in sys.modules, numpy.__loader__)",
        "import sys; print([p for p in sys.path if 'for_children' in p])",
    ]
    run = ["-m", "clgemm.accel", "--children", "program.py", *codes]
    code, out, err = python(*run, folder=tmp_path, PYTHONPATH=path)
    assert (code, err) == (0, "")
    own, accelerated, paths = out.splitlines()
    assert own == f"{tmp_path / 'own' / 'sitecustomize.py'} False False"
    assert accelerated.startswith("True <")
    assert "NumpyLoader" not in accelerated
    assert paths == "[]"


@pytest.mark.parametrize("before", [None, "x" + os.pathsep + "y"])
def test_the_environment_is_as_it_was_after_uninstall(before, device, monkeypatch):
    """install(children=True) sets the children's settings, and uninstall restores os.environ."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    environment = dict(os.environ)
    install(5, device, children=True)
    install(6, device, children=True)
    settings = json.loads(os.environ["CLGEMM_ACCEL_CHILDREN"])
    assert settings["threshold"] == 6
    assert settings["device"][0] == device.name
    first, *rest = os.environ["PYTHONPATH"].split(os.pathsep)
    assert Path(first, "sitecustomize.py").is_file()
    assert rest == ([] if before is None else ["x", "y"])
    uninstall()
    assert dict(os.environ) == environment


def test_a_child_that_cannot_be_accelerated_says_so(tmp_path):
    """A child that cannot be accelerated prints one line and uses plain NumPy."""
    (tmp_path / "program.py").write_text(
        "import json, os, subprocess, sys\n"
        "settings = json.loads(os.environ['CLGEMM_ACCEL_CHILDREN'])\n"
        "settings['device'] = ['no such', 'platform', '0']\n"
        "os.environ['CLGEMM_ACCEL_CHILDREN'] = json.dumps(settings)\n"
        "subprocess.run([sys.executable, '-c', 'import numpy; print(numpy.ones(2))'], check=True)"
    )
    code, out, err = python("-m", "clgemm.accel", "--children", "program.py", folder=tmp_path)
    assert (code, out) == (0, "[1. 1.]\n")
    assert err.startswith("clgemm: this process uses plain NumPy: this process has no device no su")
    assert err.count("\n") == 1


def test_without_a_device_there_is_one_warning(tmp_path):
    """Without a device a program runs on plain NumPy with one warning."""
    (tmp_path / "program.py").write_text(PRODUCT + "a @ a; np.dot(a, a)")
    code, _, err = python(
        "-m", "clgemm.accel", "program.py", folder=tmp_path, CLGEMM_DEVICE="no such device"
    )
    assert code == 0
    assert err.count("NumPy is not accelerated") == len(err.strip().splitlines()) == 1


def test_the_sitecustomize_of_the_docs(tmp_path):
    """The file that docs/accelerating.md shows accelerates programs if CLGEMM_ACCEL=1 is set."""
    text = (ROOT / "docs" / "accelerating.md").read_text(encoding="utf-8")
    lines = text[text.index("# sitecustomize.py") :]
    (tmp_path / "sitecustomize.py").write_text(lines[: lines.index("```")])
    path = os.pathsep.join([str(tmp_path), PACKAGES])
    program = PRODUCT + "import clgemm.accel; print(clgemm.accel.report().offloaded)"
    for wanted, offloaded in (("1", "1"), ("", "0")):
        found = python("-c", program, folder=tmp_path, PYTHONPATH=path, CLGEMM_ACCEL=wanted)
        assert found == (0, f"{offloaded}\n", "")


def test_notebooks(tmp_path, monkeypatch):
    """A notebook is accelerated by ``%load_ext clgemm.accel`` until ``%unload_ext``."""
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
    """The example network gives the same results accelerated, to float32's accuracy."""
    pytest.importorskip("sklearn")
    code, out, err = python(
        ROOT / "examples" / "accelerated.py", "--threshold", "0", "--profile",
        "--programs", "network", "--network=--hidden 16 --epochs 2", folder=tmp_path,
    )  # fmt: skip
    assert code == 0, err
    assert "times as fast, results within" in out
    totals = [line.split() for line in out.splitlines() if line.startswith("all ")]
    assert [int(calls) for _, calls, side, _ in totals if side == "device"] == [19]


def test_the_network_with_resident_features_computes_the_same(tmp_path, monkeypatch):
    """Its features are protected during the training, accelerated or not."""
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    program, made = importlib.import_module("plain_network"), []

    def keep(x):
        made.append(clgemm.resident(x))
        return made[-1]

    results = []
    for keep_features in (contextlib.nullcontext, keep):
        path = tmp_path / "scores.npy"
        arguments = ["x", "--hidden", "8", "--epochs", "1", "--save", str(path)]
        monkeypatch.setattr(sys, "argv", arguments)
        with enabled(threshold=0):
            program.main(keep_features)
        results.append(np.load(path))
    # As in accelerated.py: rounding errors, which grow in training.
    assert abs(results[0] - results[1]).max() < 1e-3 * abs(results[0]).max()
    assert len(made) == 1
    with pytest.raises(RuntimeError, match="released"), made[0]:
        pass
    example = (ROOT / "examples" / "resident_network.py").read_text()
    assert "main(keep=clgemm.resident)" in example


def test_the_scikit_program_computes_the_same(tmp_path, monkeypatch, capsys):
    """The scikit-learn example gives the same results accelerated, to float32's accuracy."""
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
