"""The choice of several devices: by call, by block, by environment variable."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pyopencl as cl
import pytest

import clgemm
from clgemm.hardware import choice
from clgemm.hardware.choice import devices, find_devices


def parts_of(device):
    """Two parts of a CPU device; skip where it has none."""
    if device.limits.compute_units < 2:
        pytest.skip("the device has one compute unit")
    half = device.limits.compute_units // 2
    try:
        cut = device.cl_device.create_sub_devices([cl.device_partition_property.EQUALLY, half])
    except cl.Error:
        pytest.skip("the device cannot be divided")
    return cut[:2]


def test_all_are_the_devices_of_the_fastest_ones_kind():
    """All GPUs, or all processors where there is no GPU."""
    expected = tuple(d for d in devices() if d.kind == devices()[0].kind)
    assert find_devices("all") == expected
    assert find_devices("ALL ") == expected


def test_positions_and_names_may_be_listed():
    """As arguments or with commas between them, in the order given."""
    names = [str(i) for i in range(len(devices()))]
    assert find_devices(*range(len(devices()))) == devices()
    assert find_devices(",".join(names)) == devices()
    assert find_devices(", ".join(reversed(names))) == devices()[::-1]


def test_a_name_may_have_a_comma_in_it():
    """It is looked up as a whole before it is divided."""
    first = devices()[0]
    assert find_devices(first.platform) == (first,)
    assert "," in first.platform


def test_a_device_takes_part_once():
    """Twice the same one is a mistake."""
    first = devices()[0]
    with pytest.raises(ValueError, match=r"0, 'all' names .* twice"):
        find_devices(0, "all")
    with pytest.raises(ValueError, match="twice"):
        find_devices(first, first.cl_device)
    with pytest.raises(ValueError, match="no device is named"):
        find_devices()


def test_a_name_of_several_that_is_wrong_is_named():
    """And nothing is changed."""
    before = clgemm.get_devices()
    with pytest.raises(ValueError, match="'no such thing' names no OpenCL device"):
        clgemm.set_device(0, "no such thing")
    with pytest.raises(TypeError, match="set_device takes a device"):
        clgemm.set_device()
    assert clgemm.get_devices() == before


def test_parts_of_a_processor_are_devices(device):
    """set_device and device take them; get_device is the first; None restores the default."""
    parts = parts_of(device)
    with clgemm.device(*parts) as first:
        chosen = clgemm.get_devices()
        assert [d.cl_device for d in chosen] == parts
        assert clgemm.get_device() is first is chosen[0]
        found = []
        thread = threading.Thread(target=lambda: found.append(clgemm.get_devices()))
        thread.start()
        thread.join()
        assert found != [chosen], "a block holds for its thread"
    clgemm.set_device(*parts)
    assert [d.cl_device for d in clgemm.get_devices()] == parts
    clgemm.set_device(None)
    assert clgemm.get_devices() == choice._default("")


def test_a_function_can_be_decorated_with_several(device):
    """Each call chooses them and restores what was."""
    parts = parts_of(device)

    @clgemm.device(*parts)
    def chosen():
        return [d.cl_device for d in clgemm.get_devices()]

    before = clgemm.get_devices()
    assert chosen() == chosen() == parts
    assert clgemm.get_devices() == before


@pytest.mark.parametrize("setting", ["all", "0", ",".join(map(str, range(len(devices()))))])
def test_the_environment_names_several(setting):
    """As set_device would."""
    script = "import clgemm; print(*clgemm.get_devices(), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "CLGEMM_DEVICE": setting},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [repr(d) for d in find_devices(setting)]


def test_a_wrong_name_in_the_environment_is_named():
    """With the variable that it came from."""
    with pytest.raises(ValueError, match="CLGEMM_DEVICE='nothing like it' names no OpenCL device"):
        choice._default("0,nothing like it")
