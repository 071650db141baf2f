"""Tests of the acceleration of a worker's process."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")


import clgemm
import clgemm.dask
from clgemm.dask import process
from clgemm.dask.process import Settings


def test_the_precision_holds_while_the_plugin_does(undone, monkeypatch):
    """The plugin's precision is in the environment until the plugin is removed."""
    monkeypatch.setenv("CLGEMM_PRECISION", "fast")
    process.begin("test", Settings(0, "strict", "one-each"), 1)
    assert os.environ["CLGEMM_PRECISION"] == "strict"
    process.begin("another", Settings(0, "float32", None), 1)
    process.end("another")
    assert os.environ["CLGEMM_PRECISION"] == "strict"
    process.end("test")
    assert os.environ["CLGEMM_PRECISION"] == "fast"


def test_a_device_that_the_program_has_set_is_left(undone, device):
    """The plugin keeps a device that the program has chosen before."""
    clgemm.set_device(device)
    process.begin("test", Settings(0, None, "one-each"), 1)
    assert clgemm.get_device().cl_device == device.cl_device
    process.end("test")
    assert clgemm.get_device() is device
