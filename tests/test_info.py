"""What show_config and the command line say."""

from __future__ import annotations

import numpy as np
import pytest

import clgemm
from clgemm.__main__ import main


def test_show_config_names_versions_devices_choice_and_folders(device, capsys):
    """As text and as a dict."""
    assert clgemm.show_config() is None
    text = capsys.readouterr().out
    config = clgemm.show_config("dicts")
    assert config["Versions"]["numpy"] == np.__version__
    assert config["Chosen device"]["name"] == device.name
    assert config["Chosen device"]["why"] == "chosen by clgemm.set_device(...)"
    assert [d["name"] for d in config["OpenCL devices"].values()] == [
        d.name for d in clgemm.devices()
    ]
    for part in ("pyopencl: ", device.platform, "compiled programs: ", "why: chosen by"):
        assert part in text


def test_show_config_knows_two_modes():
    """Like NumPy's."""
    with pytest.raises(ValueError, match="mode='json' is neither"):
        clgemm.show_config("json")


def test_info_prints_it(capsys):
    """``python -m clgemm info``."""
    assert main(["info"]) == 0
    assert "OpenCL devices:" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([])
