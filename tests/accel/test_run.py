"""Tests of programs that run as in Python, with its arguments, errors and exit codes."""

from __future__ import annotations

import os
import signal
import zipfile

import pytest
from programs import PRODUCT, both

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
