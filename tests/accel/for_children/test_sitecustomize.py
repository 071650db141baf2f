"""Tests of the module that accelerates a child process when it starts."""

from __future__ import annotations

import os

from programs import PACKAGES, python


def test_a_sitecustomize_of_the_users_own_is_imported_too(tmp_path):
    """A user's sitecustomize is imported, and a child without NumPy loads no more than a hook."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys; sys.own = __file__")
    (tmp_path / "program.py").write_text(
        "import subprocess, sys\n"
        "for code in sys.argv[1:]: subprocess.run([sys.executable, '-c', code], check=True)"
    )
    path = os.pathsep.join([str(tmp_path / "own"), PACKAGES])
    loaded = "sorted(x for x in sys.modules if x.partition('.')[0] in ('clgemm', 'numpy'))"
    codes = [
        f"import sys; print(sys.own, *{loaded})",
        "import numpy, sys; print('clgemm.accel' in sys.modules, numpy.__loader__)",
        "import sys; print([p for p in sys.path if 'for_children' in p])",
    ]
    run = ["-m", "clgemm.accel", "--children", "program.py", *codes]
    code, out, err = python(*run, folder=tmp_path, PYTHONPATH=path)
    assert (code, err) == (0, "")
    own, accelerated, paths = out.splitlines()
    of_user = tmp_path / "own" / "sitecustomize.py"
    assert own == f"{of_user} clgemm clgemm.core clgemm.core.imports"
    assert accelerated.startswith("True <")
    assert "clgemm" not in accelerated
    assert paths == "[]"


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


def test_a_child_that_first_asks_whether_numpy_is_installed_is_accelerated(tmp_path):
    """``importlib.util.find_spec`` finds a module and does not import it."""
    (tmp_path / "program.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    )
    question = "import importlib.util as i, sys; x = [i.find_spec('numpy') for _ in range(2)]\n"
    answer = "print(x[1].origin == i.find_spec('numpy').origin, 'numpy' in sys.modules)\n"
    imported = "import numpy; print('clgemm.accel' in sys.modules, numpy.__spec__.loader)"
    run = ["-m", "clgemm.accel", "--children", "program.py", question + answer + imported]
    code, out, err = python(*run, folder=tmp_path)
    assert (code, err) == (0, "")
    asked, accelerated = out.splitlines()
    assert asked == "True False"
    assert accelerated.startswith("True <")
    assert "clgemm" not in accelerated
