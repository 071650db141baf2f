"""Tests of the processes that an accelerated program starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from programs import PRODUCT, python

from clgemm.accel import enabled, install, uninstall
from clgemm.accel.children import VARIABLE


def test_a_block_leads_processes_only_while_it_lasts(device):
    """`children` of a block accelerates child processes until its end, also in other blocks."""
    path = os.environ.get("PYTHONPATH")
    install(7, device, children=True)
    try:
        outer = os.environ[VARIABLE]
        with enabled(8, device, children=True):
            assert '"threshold": 8' in os.environ[VARIABLE]
            with enabled(9, device):  # not for children
                assert '"threshold": 8' in os.environ[VARIABLE]
        assert os.environ[VARIABLE] == outer
    finally:
        uninstall()
    assert VARIABLE not in os.environ
    assert os.environ.get("PYTHONPATH") == path


def test_a_decorated_function_leads_processes(device):
    """`children` of a decorated function accelerates child processes in each call."""

    @enabled(5, device, children=True)
    def function():
        return os.environ.get(VARIABLE, "")

    assert '"threshold": 5' in function()
    assert VARIABLE not in os.environ


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
    before = accel.report().offloaded
    expected = float((a @ a).sum())
    assert accel.report().offloaded == before + 1
    assert [found for found, _, _ in results] == [expected] * len(results)
    assert os.getpid() not in [process for _, _, process in results]
    print(all(offloaded > 0 for _, offloaded, _ in results), accel.report().children[:6])
"""
METHODS = ["subprocess", "joblib", "spawn", "forkserver"]


@pytest.mark.skipif(os.name != "posix", reason="other systems start processes differently")
@pytest.mark.parametrize("method", [*METHODS, "fork"])
@pytest.mark.parametrize("options", [[], ["--children"]])
def test_children_are_accelerated_if_that_is_asked_for(method, options, tmp_path):
    """--children accelerates all but forked children; otherwise the report says they are not.

    Of a plain command, it does not know. The parent stays accelerated.
    """
    if method == "joblib":
        pytest.importorskip("joblib")
    (tmp_path / "program.py").write_text(CHILDREN)
    code, out, err = python(
        "-W", "ignore", "-m", "clgemm.accel", *options, "program.py", method, folder=tmp_path
    )
    assert (code, err) == (0, "")
    accelerated = bool(options) and method != "fork"
    is_unknown = method == "subprocess"
    said = "" if accelerated or is_unknown else "forked" if options else "Python"
    assert out == f"{accelerated} {said}\n"


def test_workers_of_pytest_are_accelerated(tmp_path, monkeypatch):
    """With --children, the workers of ``pytest -n 2`` are accelerated."""
    pytest.importorskip("xdist")
    # Other plugins that are installed take seconds to import in each of the processes.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "test_it.py").write_text(
        PRODUCT
        + "import clgemm.accel\ndef test_it():\n    before = clgemm.accel.report().offloaded"
        "\n    a @ a\n    assert clgemm.accel.report().offloaded == before + 1\n"
    )
    for options, expected in ((["--children"], 0), ([], 1)):
        code, out, err = python(
            *("-m", "clgemm.accel", *options, "-m", "pytest", "-p", "xdist", "-n", "2"),
            *("-p", "no:cacheprovider"),
            folder=tmp_path,
        )
        assert code == expected, out + err


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


def test_no_audit_hook_slows_the_program_down(tmp_path):
    """Each import, `id` and file that a program opens would be reported to it."""
    program = (
        "import sys\nsys.addaudithook = lambda hook: print('a hook')\n"
        "import clgemm.accel\nwith clgemm.accel.enabled(): print('none')"
    )
    assert python("-c", program, folder=tmp_path)[:2] == (0, "none\n")
