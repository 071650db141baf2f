"""Tests of the choice of a device, of the reasons why one is missing, and of the remedies."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pyopencl as cl
import pytest

import clgemm
from clgemm.hardware import choice, runtimes
from clgemm.hardware.choice import devices, find_device, find_devices, matching
from clgemm.hardware.runtimes import Runtime

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems' loaders differ")


@pytest.fixture(autouse=True)
def default_device(monkeypatch):
    """Start each test with the default device and restore it afterwards."""
    monkeypatch.delenv("CLGEMM_DEVICE", raising=False)
    clgemm.set_device(None)
    yield
    clgemm.set_device(None)


def test_the_default_is_the_first_device():
    """The default device is the first of devices(), which lists the fastest first."""
    assert clgemm.get_device() is clgemm.devices()[0]


def test_devices_are_named_by_position_kind_or_part_of_a_name():
    """A position, a kind, or a part of a name in any case names a device."""
    first = clgemm.devices()[0]
    for spec in (0, "0", first.name, first.name[3:9].upper(), first.platform, first.kind, first):
        assert find_device(spec) is first
    assert find_device(first.cl_device) is first


def test_a_platforms_name_goes_first():
    """PoCL has the processor's maker in its device's name; "intel" is still Intel's runtime."""
    pocl, intel = (
        SimpleNamespace(name=name, platform=platform, kind="CPU")
        for name, platform in (
            ("pthread-Intel(R) Xeon(R)", "Portable Computing Language, OpenCL 3.0 PoCL 3.1"),
            ("Intel(R) Xeon(R)", "Intel(R) OpenCL, OpenCL 3.1 LINUX"),
        )
    )
    assert matching("intel", [pocl, intel]) == [intel, pocl]
    assert matching("xeon", [pocl, intel]) == [pocl, intel]
    assert matching("pocl", [pocl, intel]) == [pocl]


def test_contexts_and_queues_name_devices():
    """A context or a queue names its device, which then uses that context."""
    first = clgemm.devices()[0]
    context = cl.Context([first.cl_device])
    assert find_device(context).context == context
    queue = cl.CommandQueue(context)
    assert find_device(queue).context == context
    assert find_device(queue) is find_device(context)


@pytest.mark.parametrize("spec", ["no such device", "", "99", 99])
def test_a_name_of_nothing_lists_what_there_is(spec):
    """The error for a name of no device lists the devices."""
    with pytest.raises(ValueError, match="names no OpenCL device; there is 0: ") as error:
        find_device(spec)
    assert clgemm.devices()[0].name in str(error.value)


def test_other_types_are_refused():
    """A spec of another type, such as a float, raises TypeError."""
    with pytest.raises(TypeError, match="not float"):
        find_device(1.5)


def test_the_environment_names_the_default(monkeypatch):
    """CLGEMM_DEVICE names the default device, and the error for a wrong name lists the devices."""
    monkeypatch.setenv("CLGEMM_DEVICE", "0")
    assert clgemm.get_device() is clgemm.devices()[0]
    monkeypatch.setenv("CLGEMM_DEVICE", "nothing")
    with pytest.raises(
        ValueError, match="CLGEMM_DEVICE='nothing' names no OpenCL device; there is 0: "
    ):
        clgemm.get_device()
    with pytest.raises(ValueError, match="CLGEMM_DEVICE='nothing'"):
        clgemm.sgemm(1.0, [[1.0]], [[1.0]])


def test_device_scopes_nest_and_restore():
    """device(...) nests and restores the outer device, as a block and as a decorator."""
    first = clgemm.devices()[0]
    other = clgemm.Device(first.cl_device)
    with clgemm.device(other) as chosen:
        assert chosen is other
        assert clgemm.get_device() is other
        with contextlib.suppress(KeyError), clgemm.device(first):
            assert clgemm.get_device() is first
            raise KeyError
        assert clgemm.get_device() is other
    assert clgemm.get_device() is first

    @clgemm.device(other)
    def inside(depth: int) -> clgemm.Device:
        return inside(depth - 1) if depth else clgemm.get_device()

    assert inside(2) is other
    assert clgemm.get_device() is first


def test_set_device_holds_in_every_thread_and_a_scope_in_its_own():
    """set_device holds in every thread, and a device(...) block only in its own."""
    first = clgemm.devices()[0]
    everywhere, here = clgemm.Device(first.cl_device), clgemm.Device(first.cl_device)
    clgemm.set_device(everywhere)
    seen = []
    with clgemm.device(here):
        thread = threading.Thread(target=lambda: seen.append(clgemm.get_device()))
        thread.start()
        thread.join()
        assert clgemm.get_device() is here
    assert seen == [everywhere]
    with pytest.raises(ValueError, match="names no"):
        clgemm.set_device("nothing")
    assert clgemm.get_device() is everywhere


def test_without_a_platform_the_error_says_what_helps():
    """Without an OpenCL platform, sgemm raises an error that says what helps."""
    code = """
import pyopencl, clgemm, numpy as np
def get_platforms():
    raise pyopencl.LogicError("PLATFORM_NOT_FOUND_KHR")
pyopencl.get_platforms = get_platforms
assert clgemm.devices() == ()
small = np.ones((2, 2), np.float32)
assert (clgemm.dot(small, small) == 2).all()  # the host's BLAS needs no device
clgemm.show_config()
try:
    clgemm.sgemm(1.0, small, small)
except RuntimeError as error:
    assert "What helps: " in str(error), error
else:
    raise AssertionError("no error")
"""
    environment = {k: v for k, v in os.environ.items() if k != "CLGEMM_THRESHOLD"}
    paths = [str(Path(clgemm.__file__).parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def parts_of(device):
    """Two parts of a CPU device; skip where it has none."""
    # rusticl, which cannot divide devices, ends the process when it is asked to.
    if min(device.limits.compute_units, device.cl_device.partition_max_sub_devices) < 2:
        pytest.skip("the device cannot be divided")
    half = device.limits.compute_units // 2
    try:
        cut = device.cl_device.create_sub_devices([cl.device_partition_property.EQUALLY, half])
    except cl.Error:
        pytest.skip("the device cannot be divided")
    return cut[:2]


def test_all_are_the_devices_of_the_fastest_ones_kind():
    """The name "all" stands for every device of the kind of the fastest one."""
    expected = tuple(d for d in devices() if d.kind == devices()[0].kind)
    assert find_devices("all") == expected
    assert find_devices("ALL ") == expected


def test_positions_and_names_may_be_listed():
    """Several devices are named by arguments or with commas between them, in this order."""
    names = [str(i) for i in range(len(devices()))]
    assert find_devices(*range(len(devices()))) == devices()
    assert find_devices(",".join(names)) == devices()
    assert find_devices(", ".join(reversed(names))) == devices()[::-1]


def test_a_name_may_have_a_comma_in_it():
    """A name with a comma is looked up as a whole first."""
    first = devices()[0]
    assert find_devices(first.platform) == (first,)
    assert "," in first.platform


def test_a_device_takes_part_once():
    """The same device named twice raises ValueError, and so does no device."""
    first = devices()[0]
    with pytest.raises(ValueError, match=r"0, 'all' names .* twice"):
        find_devices(0, "all")
    with pytest.raises(ValueError, match="twice"):
        find_devices(first, first.cl_device)
    with pytest.raises(ValueError, match="twice"):
        find_devices(first, cl.Context([first.cl_device]))
    with pytest.raises(ValueError, match="no device is named"):
        find_devices()


def test_a_name_of_several_that_is_wrong_is_named():
    """An error names the wrong spec and leaves the choice as it was."""
    before = clgemm.get_devices()
    with pytest.raises(ValueError, match="'no such thing' names no OpenCL device"):
        clgemm.set_device(0, "no such thing")
    with pytest.raises(TypeError, match="set_device takes a device"):
        clgemm.set_device()
    assert clgemm.get_devices() == before


def test_parts_of_a_processor_are_devices(device):
    """set_device and device take parts of a processor, and get_device returns the first."""
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
    """Each call of a decorated function chooses several devices and restores the choice."""
    parts = parts_of(device)

    @clgemm.device(*parts)
    def chosen():
        return [d.cl_device for d in clgemm.get_devices()]

    before = clgemm.get_devices()
    assert chosen() == chosen() == parts
    assert clgemm.get_devices() == before


@pytest.mark.parametrize("setting", ["all", "0", ",".join(map(str, range(len(devices()))))])
def test_the_environment_names_several(setting):
    """CLGEMM_DEVICE names several devices as set_device does."""
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
    """An error from CLGEMM_DEVICE names the variable and the wrong name."""
    with pytest.raises(ValueError, match="CLGEMM_DEVICE='nothing like it' names no OpenCL device"):
        choice._default("0,nothing like it")


# Why a device is missing.


@ON_LINUX
def test_findings_name_what_the_loader_could_not_open(place, monkeypatch):
    """findings() names an ICD file whose library is missing and a variable that names no folder."""
    monkeypatch.setattr(runtimes, "_own_home", str(place))
    monkeypatch.setenv(runtimes.HOME, str(place))
    (place / "vendors" / "gone.icd").write_text("/nowhere/libgone.so")
    (line,) = [x for x in choice.findings() if "has no device" not in x]
    assert line.startswith(f"{place}/vendors/gone.icd: ")
    assert "/nowhere/libgone.so: cannot open shared object file" in line
    monkeypatch.setenv(runtimes.VENDORS, "/nowhere")
    lines = choice.findings()
    assert "OCL_ICD_VENDORS=/nowhere: no such file or folder" in lines


@pytest.mark.parametrize(
    ("system", "machine", "packages", "said"),
    [
        ("linux", "x86_64", (), "pip install 'clgemm[cpu]'"),
        ("linux", "x86_64", ("intel-opencl-rt",), "apt-get install pocl-opencl-icd"),
        ("linux", "aarch64", (), "apt-get install pocl-opencl-icd"),
        ("win32", "AMD64", (), "pip install 'clgemm[cpu]'"),
        ("win32", "ARM64", (), "driver"),
        ("darwin", "arm64", (), "ocl_icd_wrapper_apple"),
    ],
)
def test_the_remedy_is_one_that_exists_for_the_system(system, machine, packages, said, monkeypatch):
    """The remedy is available for the system: PyPI has runtimes for x86-64 only."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(choice.platform, "machine", lambda: machine)
    found = tuple(Runtime(name, "1", Path(name)) for name in packages)
    monkeypatch.setattr(runtimes, "installed", lambda: found)
    assert said in choice.remedy()
    assert ("clgemm[cpu]" in choice.remedy()) == ("clgemm[cpu]" in said)


@ON_LINUX
def test_a_library_in_use_is_no_finding(monkeypatch):
    """A library in use is no finding, even if its name in memory has another version."""
    (name,) = {
        Path(line.split()[-1]).name.partition(".so")[0]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/libc.so" in line or "/libc-" in line
    }
    files = [(Path("one.icd"), f"{name}.so.99"), (Path("two.icd"), "/nowhere/libgone.so.1")]
    monkeypatch.setattr(runtimes, "icd_files", lambda: files)
    (line,) = [x for x in choice.findings() if ".icd: " in x]
    assert line.startswith("two.icd: ")
