"""The pytest plugin: off unless asked, and then on every device with everything on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import clgemm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(pytester, monkeypatch):
    """What pytest says of a test module with the plugin, warnings as errors."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")

    def ran(source, *options):
        pytester.makepyfile(source)
        given = ("-p", "pytest_clgemm", "-p", "no:cacheprovider", "-W", "error", "--strict-markers")
        return pytester.runpytest_inprocess(*given, "-rA", *options)

    return ran


def test_a_test_runs_once_for_each_device_with_everything_on_it(run):
    """The device is chosen during the test, small products too run on it, then all is as before."""
    before = clgemm.get_device()
    result = run(
        """
        import os
        import clgemm

        def test_it(opencl_device):
            assert clgemm.get_device() is opencl_device
            assert os.environ["CLGEMM_THRESHOLD"] == "0"

        def test_another():
            assert "CLGEMM_THRESHOLD" not in os.environ
        """
    )
    result.assert_outcomes(passed=len(clgemm.devices()) + 1)
    assert clgemm.get_device() is before
    assert "CLGEMM_THRESHOLD" not in os.environ


def test_a_failing_test_leaves_everything_as_before(run):
    """After a failure, the device and the threshold are those before the test."""
    before = clgemm.get_device()
    result = run("def test_it(opencl_device): assert 0")
    result.assert_outcomes(failed=len(clgemm.devices()))
    assert clgemm.get_device() is before
    assert "CLGEMM_THRESHOLD" not in os.environ


def test_the_marker_sets_the_precision(run):
    """The marker holds in its test and its fixtures; another value than the three is refused."""
    result = run(
        """
        import pytest
        from clgemm.core.settings import chosen_precision

        @pytest.fixture
        def seen():
            return chosen_precision()

        @pytest.mark.clgemm_precision("strict")
        def test_strict(seen):
            assert chosen_precision() == seen == "strict"

        def test_default(seen):
            assert chosen_precision() == seen == "float32"
        """
    )
    result.assert_outcomes(passed=2)


def test_a_marker_of_no_precision_fails_its_test_alone(run):
    """With an error that names the value; other tests go on."""
    result = run(
        """
        import pytest

        @pytest.mark.clgemm_precision("exact")
        def test_wrong():
            pass

        @pytest.mark.clgemm_precision()
        def test_empty():
            pass

        def test_another():
            pass
        """
    )
    result.assert_outcomes(passed=1, errors=2)
    assert "the marker clgemm_precision: precision='exact' is not one of" in result.stdout.str()


def test_the_header_names_the_devices_if_it_is_asked(run, pytester):
    """With the option or the setting, pytest's header has a line for each device."""
    line = f"OpenCL device: {clgemm.devices()[0].label}"
    asks = "def test_it(opencl_device): pass"
    assert line in run(asks, "--clgemm-device", "all").stdout.str()
    assert "OpenCL device" not in run(asks).stdout.str()
    pytester.makeini("[pytest]\nclgemm_device = 0")
    result = run(asks)
    assert line in result.stdout.str()
    result.assert_outcomes(passed=1)


def test_a_name_of_no_device_is_a_usage_error(run):
    """The error names the option and what devices there are."""
    result = run("def test_it(opencl_device): pass", "--clgemm-device", "nothing at all")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "'nothing at all' names no OpenCL device; there is" in result.stderr.str()


def test_without_a_device_such_a_test_fails(run, monkeypatch):
    """A suite that tests nothing may not pass."""
    monkeypatch.setattr(clgemm, "devices", lambda: ())
    result = run("def test_it(opencl_device): pass")
    result.assert_outcomes(errors=1)


def test_nobody_who_does_not_ask_waits_for_opencl(tmp_path):
    """Without the fixture, marker and option, pytest imports neither clgemm nor pyopencl."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    assert not {'clgemm', 'pyopencl', 'numpy', 'hypothesis'} & set(sys.modules)\n"
    )
    ran = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-p", "pytest_clgemm", "-p", "no:cacheprovider"), "-q"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
