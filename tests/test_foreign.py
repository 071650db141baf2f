"""Tests of the script that runs other projects' test suites, with small suites of their own."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "foreign"


@pytest.fixture(scope="module")
def script():
    """Return the script's modules, as they import one another."""
    sys.path.insert(0, str(HERE))
    yield {name: importlib.import_module(name) for name in ("run", "suites", "comparison")}
    sys.path.remove(str(HERE))
    for name in ("run", "suites", "comparison"):
        del sys.modules[name]


PRELUDE = """
import os, pathlib, sys
import numpy as np, pytest
accelerated = "clgemm.accel" in sys.modules
def test_product():
    a = np.ones((40, 40), "f")
    assert (a @ a == 40).all()
"""


@pytest.fixture(scope="module")
def planted(script, tmp_path_factory):
    """Return a function that runs a small suite and returns the exit status and the JSON."""

    def call(source):
        folder = tmp_path_factory.mktemp("planted")
        results = folder / "found.json"
        (folder / "test_planted.py").write_text(PRELUDE + source)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(folder))
            # Other plugins that are installed take seconds to import in each of the processes.
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            patch.setenv("PYTEST_PLUGINS", "_hypothesis_pytestplugin")
            patch.syspath_prepend(str(folder))
            patch.setitem(script["suites"].SUITES, "planted", ("test_planted",))
            status = script["run"].main(["--only", "planted", "--json", str(results)])
        return status, json.loads(results.read_text())["suites"][0]

    return call


def names(tests):
    """Return the functions of tests."""
    return [test.partition("::")[2] for test in tests]


@pytest.fixture(scope="module")
def faulty(planted):
    """Run a suite with all kinds of failures except those that end the process."""
    return planted("""
mark, state = pathlib.Path(__file__ + ".mark"), []
def test_wrong(): assert False
def test_skipped(): pytest.skip("not today")
@pytest.mark.xfail
def test_expected(): assert False
def test_before(): state.append(accelerated)
def test_depends(): assert state != [True]
@pytest.mark.parametrize("x", ["a::b", "[/]"])
def test_ours(x): assert not accelerated or x == "a::b", "our fault"
def test_once():
    if accelerated and not mark.exists():
        mark.touch()
        assert False
""")


def test_what_fails_only_accelerated_is_found(faulty):
    """A test that fails only when NumPy is accelerated is named, and the exit status is 1."""
    status, results = faulty
    assert status == 1
    assert names(results["failed_only_accelerated"]) == [
        "test_depends",
        "test_once",
        "test_ours[[/]]",
    ]
    assert "our fault" in results["messages"]["test_planted.py::test_ours[[/]]"]


def test_flaky_tests_are_distinguished_from_real_failures(faulty):
    """A failure that does not repeat is flaky; one that needs the tests before it is real."""
    verdicts = {test.partition("::")[2]: x for test, x in faulty[1]["failed_again"].items()}
    assert verdicts == {"test_depends": "real", "test_once": "flaky", "test_ours[[/]]": "real"}


def test_everything_is_counted(faulty):
    """Tests, skips, failures both ways and the products on the device are counted."""
    results = faulty[1]
    assert (results["tests"], results["skipped"], results["products"]["offloaded"]) == (9, 1, 1)
    assert names(results["failed_both"]) == ["test_wrong"]


def test_what_fails_both_ways_is_no_fault_of_ours(planted, capsys):
    """If the same tests fail plain and accelerated, the exit status is 0."""
    status, _ = planted("def test_wrong(): assert False\n")
    assert status == 0
    assert "| planted | 2 | 0 | 1 | 0 | 0 | 0 | 0 | 1 |" in capsys.readouterr().out


def test_a_crash_is_a_failure(planted, capsys):
    """A test that ends the process fails, the tests after it are lost, and the status is 1."""
    status, results = planted(
        "def test_crash():\n    if accelerated: os._exit(7)\ndef test_after(): pass\n"
    )
    assert status == 1
    assert names(results["failed_only_accelerated"]) == ["test_crash"]
    assert names(results["lost"]) == ["test_after"]
    assert results["status"] == {"plain": 0, "accelerated": 7}
    assert "planted, accelerated: exit status 7" in capsys.readouterr().out


def test_a_suite_that_cannot_be_imported_fails(planted):
    """An error when tests are collected is a failure like others."""
    status, results = planted("assert not accelerated, 'cannot be imported'\n")
    assert status == 1
    assert results["failed_only_accelerated"] == ["test_planted.py"]


def test_a_run_that_is_out_of_time_is_not_good(script):
    """A run that was killed is not good, and the test that it was in counts as a failure."""
    parsed = script["comparison"].parsed
    lines = ['{"started": "x"}', '{"test": "x", "outcome": "passed"}', '{"started": "y"}']
    plain = parsed([*lines, '{"test": "y", "outcome": "passed"}', '{"products": null}'], 0, 1.0)
    found = script["comparison"].compare("planted", plain, parsed([*lines, '{"test'], None, 9.0))
    assert found.only_accelerated == ["y"]
    assert not found.is_good
    assert not script["comparison"].compare("planted", found.accelerated, plain).is_good


def test_the_worst_phase_counts(script):
    """A test that passes but cannot be torn down has failed."""
    phases = ["passed", "failed"]
    lines = [json.dumps({"test": "x", "outcome": outcome}) for outcome in phases]
    for order in (lines, lines[::-1]):
        assert script["comparison"].parsed(order, 1, 1.0).failures() == {"x"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--only", "numpy.linalg,nonsense"],
            "'nonsense' is not a suite; the suites are numpy.linalg",
        ),
        (["--json", "missing/found.json"], "there is no folder"),
    ],
)
def test_wrong_options_are_refused_at_once(arguments, message, script, capsys):
    """Wrong options are refused before any suite runs."""
    with pytest.raises(SystemExit) as end:
        script["run"].main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_device_nothing_is_run(script, monkeypatch, tmp_path, capsys):
    """Without an OpenCL device no suite runs, since NumPy would make every product."""
    monkeypatch.setenv("CLGEMM_DEVICE", "no such device")
    with pytest.raises(SystemExit) as end:
        script["run"].main(["--only", "numpy.linalg"])
    assert end.value.code == 2
    assert "no OpenCL device" in capsys.readouterr().err


def test_suites_are_chosen_by_their_names(script):
    """A project's name chooses all of its suites, each of them once."""
    suites = script["suites"]
    found = suites.chosen(["numpy.linalg", "numpy"])
    assert found[0] == "numpy.linalg"
    assert set(found) == {name for name in suites.SUITES if name.startswith("numpy.")}
    assert len(found) == len(set(found))
