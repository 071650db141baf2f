"""Tests of ``python -m clgemm.accel``: programs run as in Python, but accelerated."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

import numpy as np
import pytest
from notebooks import execute
from programs import PACKAGES, PRODUCT, ROOT, by_default, python

import clgemm
from clgemm.accel import __main__ as command
from clgemm.accel import enabled, install, report


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
    # Plain NumPy hangs at such an exit where OpenBLAS has threads of its own: its `gotoblas_quit`
    # waits for one that has missed the signal to end (13 of 36 times; OpenBLAS 0.3.31).
    alone = {"OPENBLAS_NUM_THREADS": "1"}
    for i in range(8):
        arguments = "-m", "clgemm.accel", "program.py", f"0.00{i}"
        found = python(*arguments, folder=tmp_path, **alone)
        assert found == (0, "", "")


JOINED = """
import atexit, threading
import numpy as np
x, stop, begun = np.ones((200, 200), "f"), threading.Event(), threading.Event()
def work():
    while not stop.is_set():
        x @ x
        begun.set()
def finish():
    stop.set()
    worker.join(10)
    print("alive" if worker.is_alive() else "joined")
atexit.register(finish)
worker = threading.Thread(target=work, daemon=True)
worker.start()
begun.wait()
"""


def test_a_function_at_exit_may_wait_for_threads_that_multiply(tmp_path):
    """A program whose own function at exit waits for a thread's products ends as in Python."""
    (tmp_path / "program.py").write_text(JOINED)
    found = python("-m", "clgemm.accel", "program.py", folder=tmp_path)
    assert found == (0, "joined\n", "")


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
    """The profile of a short program ends with the reason and with what helps."""
    (tmp_path / "program.py").write_text(
        "import numpy as np; a = np.ones((600, 600), 'f'); a @ a; np.dot(a, a)"
    )
    command = ["-m", "clgemm.accel", "--profile"]
    _, _, err = by_default(*command, "program.py", folder=tmp_path)
    last = err.strip().splitlines()[-1]
    assert last.startswith("Nothing was offloaded: its products were too few to compare both sides")
    assert "'python -m clgemm warmup' prepares the device" in last
    assert "--threshold N" in last
    _, _, err = python(*command, "--threshold", "0", "program.py", folder=tmp_path)
    assert "Nothing" not in err


MEASURED = """
import sys
from clgemm.trials import warm
def main(arguments):
    print("prepared")
    return {code}
warm.main = main
from clgemm.accel.__main__ import main
sys.exit(main(["--measure", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("code", [0, 1])
def test_a_measurement_writes_nothing_to_the_programs_output(code, tmp_path):
    """With --measure, the program's output is as without it, also if a part of it failed."""
    (tmp_path / "program.py").write_text("print('out')")
    found = python("-c", MEASURED.format(code=code), "program.py", folder=tmp_path)
    assert found == (0, "out\n", "prepared\n")


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_measurement_alone_ends_with_its_exit_code(code, tmp_path):
    """With --measure and no program, the exit code tells whether the device was prepared."""
    found = python("-c", MEASURED.format(code=code), folder=tmp_path)
    assert found == (code, "", "prepared\n")


def test_a_measurement_without_a_device_ends_the_command(tmp_path):
    """With --measure, the command ends with exit code 2 before the program if no device works."""
    (tmp_path / "program.py").write_text("print('out')")
    arguments = "-m", "clgemm.accel", "--measure", "program.py"
    code, out, err = python(*arguments, folder=tmp_path, CLGEMM_DEVICE="no such device")
    assert (code, out) == (2, "")
    assert "names no OpenCL device" in err


UNSUPPORTED = """
import sysconfig
sysconfig.get_config_var = lambda _: 1
import numpy as np
print(np.ones((2, 2), "f") @ np.ones(2, "f"), type(np.ndarray.dot).__name__)
"""


def test_a_numpy_that_is_not_supported_is_left_as_it_is(tmp_path):
    """Where this Python or NumPy is not supported, the program runs on plain NumPy, and is told."""
    (tmp_path / "program.py").write_text(UNSUPPORTED)
    code, out, err = python("-m", "clgemm.accel", "program.py", folder=tmp_path)
    assert (code, out) == (0, "[2. 2.] method_descriptor\n")
    assert err.startswith("clgemm: this process uses plain NumPy: clgemm.accel does not support")
    assert err.count("\n") == 1


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
    nbformat = pytest.importorskip("nbformat")
    cells = [
        "%load_ext clgemm.accel\n" + PRODUCT,
        "a @ a[:3]",
        "import clgemm.accel as accel\na.dot(a)\nprint(accel.report().offloaded)",
        "%unload_ext clgemm.accel\na @ a\nprint(accel.report().offloaded)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(x) for x in cells])
    monkeypatch.setenv("PYTHONPATH", PACKAGES)
    execute(notebook, tmp_path, monkeypatch, timeout=60, allow_errors=True)
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
