"""Tests of show_config and of the commands' settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clgemm
from clgemm import info
from clgemm.__main__ import main
from clgemm.core.costs import H200
from clgemm.records import verdicts


def test_show_config_names_versions_devices_choice_and_folders(device, capsys):
    """show_config names versions, devices, the choice and folders, as text and as a dict."""
    assert clgemm.show_config() is None
    text = capsys.readouterr().out
    config = clgemm.show_config("dicts")
    assert config["Versions"]["numpy"] == np.__version__
    assert config["Chosen device"]["name"] == device.name
    assert config["Chosen device"]["why"] == "chosen by clgemm.set_device(...)"
    assert [d["name"] for d in config["OpenCL devices"].values()] == [
        d.name for d in clgemm.devices()
    ]
    for part in ("pyopencl: ", device.short_platform, "compiled programs: ", "why: chosen by"):
        assert part in text


def test_a_notebook_shows_the_description_as_a_table(device):
    """Each section is a heading, and each value has a row with the names that lead to it."""
    shown = clgemm.show_config("dicts")._repr_html_()
    assert shown.count("<table>") == 1
    assert ">Versions</th></tr>" in shown
    assert f"<tr><td>numpy</td><td>{np.__version__}</td></tr>" in shown
    assert f"<tr><td>0: platform</td><td>{clgemm.devices()[0].short_platform}</td></tr>" in shown


def test_show_config_says_where_expected_times_come_from(device, tmp_path, monkeypatch):
    """For devices whose plans are chosen by them: those of one that is known, or measured ones."""
    monkeypatch.setattr(type(device.traits), "has_cost_model", True)
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    known = "a CPU" if device.traits.has_vectors else "an H200"
    assert f"as on {known}" in clgemm.show_config("dicts")["Tuning"]["expected times"]
    verdicts.keep_costs(device.name, device.runtime, H200, 77)
    assert "with 77 plans" in clgemm.show_config("dicts")["Tuning"]["expected times"]
    monkeypatch.undo()


def test_info_advises_warmup_until_all_is_there(device, monkeypatch):
    """Parts that are missing are named with the command; afterwards nothing is advised."""
    monkeypatch.setattr(info, "missing", lambda _: [("family", {}), ("plan", {})])
    prepared = clgemm.show_config("dicts")["Chosen device"]["prepared"]
    assert (
        "2 parts are missing (kernel families, products of device arrays): 'python -m" in prepared
    )
    monkeypatch.setattr(info, "missing", lambda _: [])
    assert clgemm.show_config("dicts")["Chosen device"]["prepared"] == "yes"


def test_show_config_knows_two_modes():
    """show_config refuses a mode other than "stdout" and "dicts"."""
    with pytest.raises(ValueError, match="mode='json' is neither"):
        clgemm.show_config("json")


def test_info_prints_it(capsys):
    """The command ``info`` prints the description and returns 0; it says if it checks first."""
    assert main(["info", "--check-again"]) == 0
    out, err = capsys.readouterr()
    assert "OpenCL devices:" in out
    assert err.startswith("Checks ")
    assert main(["info"]) == 0
    assert "Checks " not in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("CLGEMM_THRESHOLD", "abc", "CLGEMM_THRESHOLD='abc' is not a whole number"),
        ("CLGEMM_THRESHOLD", "1.5", "CLGEMM_THRESHOLD='1.5' is not a whole number"),
        ("CLGEMM_SIDE", "gpu", "CLGEMM_SIDE='gpu' is not one of auto, host, device"),
        ("CLGEMM_PREPARE", "no", "CLGEMM_PREPARE='no' is neither auto nor never"),
        ("CLGEMM_PRECISION", "quick", "CLGEMM_PRECISION='quick' is not one of strict, float32, fa"),
    ],
)
@pytest.mark.parametrize("command", ["info", "warmup", "bench", "tune", "verify", "ladder"])
def test_a_wrong_setting_is_one_line_and_exit_code_2(
    command, variable, value, said, monkeypatch, capsys
):
    """With a wrong setting, each command prints one line that names it and returns 2."""
    if variable != "CLGEMM_THRESHOLD":
        monkeypatch.delenv("CLGEMM_THRESHOLD")  # it goes before CLGEMM_SIDE
    monkeypatch.setenv(variable, value)
    assert main([command]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(said)
    assert (out, err.count("\n")) == ("", 1)


def test_info_shows_each_setting_with_its_source(device, monkeypatch):
    """show_config names the source of each setting: a call, the environment or the default."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", "1e6")
    monkeypatch.setenv("CLGEMM_PRECISION", "strict")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", "somewhere")
    shown = clgemm.show_config("dicts")["Settings"]
    assert shown["device"] == "chosen by clgemm.set_device(...)"
    assert shown["precision"] == "strict (CLGEMM_PRECISION)"
    assert "the device from 1,000,000 multiply-adds on (CLGEMM_THRESHOLD)" in shown.values()
    assert shown["cache folder"] == "somewhere (CLGEMM_CACHE_DIR)"
    with clgemm.precision("fast"):
        assert clgemm.show_config("dicts")["Settings"]["precision"] == "fast (clgemm.precision)"
    for variable in ("CLGEMM_THRESHOLD", "CLGEMM_PRECISION", "CLGEMM_CACHE_DIR"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("CLGEMM_SIDE", "host")
    assert "NumPy (CLGEMM_SIDE)" in clgemm.show_config("dicts")["Settings"].values()
    monkeypatch.delenv("CLGEMM_SIDE")
    shown = clgemm.show_config("dicts")["Settings"]
    assert shown["precision"] == "float32 (default)"
    assert "whichever takes less time (default)" in shown.values()
    assert shown["cache folder"].endswith(" (default)")


def test_a_reader_that_leaves_gets_no_traceback(device):
    """`python -m clgemm info | head -1`."""
    with subprocess.Popen(
        [sys.executable, "-m", "clgemm", "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_disk_is_one_line(device):
    """`python -m clgemm info > /dev/full`."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "clgemm", "info"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "the output is not complete: No space left on device\n"
