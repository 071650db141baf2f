"""A pytest plugin: runs tests on OpenCL devices, with every product on the device.

It does nothing until a test asks for the fixture ``opencl_device`` or has the marker
``clgemm_precision``, or until the option ``--clgemm-device`` is given. Until then it does not
import clgemm. It is a module of its own for that reason: what imports from the package
imports pyopencl.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from clgemm import Device

FIXTURE, MARKER, OPTION = "opencl_device", "clgemm_precision", "--clgemm-device"
THRESHOLD = "CLGEMM_THRESHOLD"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting of the same name."""
    group = parser.getgroup("clgemm")
    what = "OpenCL devices for the fixture opencl_device: 'all', or one as clgemm.set_device takes"
    group.addoption(OPTION, metavar="DEVICE", dest="clgemm_device", help=what)
    parser.addini("clgemm_device", what, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", f'{MARKER}(mode): compute in this precision: "strict", "float32" or "fast"'
    )


def _wanted(config: pytest.Config) -> str:
    """Return what the option or the setting says, "" if neither is there."""
    return str(config.getoption("clgemm_device") or config.getini("clgemm_device") or "")


def _devices(config: pytest.Config) -> tuple[Device, ...]:
    """Return the devices for the fixture.

    Raises
    ------
    pytest.UsageError
        If the option names no device that works.
    """
    import clgemm
    from clgemm.hardware.choice import find_device, no_device

    wanted = _wanted(config)
    if wanted in ("", "all"):
        if wanted and not clgemm.devices():
            raise pytest.UsageError(str(no_device()))
        return tuple(clgemm.devices())
    try:
        return (find_device(wanted),)
    except (ValueError, RuntimeError) as error:
        raise pytest.UsageError(f"{OPTION}={wanted}: {error}") from None


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the devices that are tested, and those that are left out, if the option is given."""
    if not _wanted(config):
        return []
    from clgemm.hardware.choice import failed_devices

    lines = [f"OpenCL device: {device.label}" for device in _devices(config)]
    return lines + [f"left out: {device.label}: {why}" for device, why in failed_devices().items()]


def _name(device: Device | None) -> str:
    return f"{device.platform.split(',')[0]}-{device.name}" if device else "no device"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for the fixture once for each device."""
    if FIXTURE in metafunc.fixturenames:
        devices = _devices(metafunc.config) or (None,)
        metafunc.parametrize(FIXTURE, devices, ids=_name, indirect=True, scope="session")


@pytest.fixture(scope="session")
def opencl_device(request: pytest.FixtureRequest) -> Device:
    """Each OpenCL device that works, in turn.

    During the test it is the chosen device, and every product runs on it, however small.

    Returns
    -------
    clgemm.Device
    """
    device: Device | None = request.param
    if device is None:
        from clgemm.hardware.choice import no_device

        pytest.fail(str(no_device()), pytrace=False)
    return device


@contextmanager
def _everything_on(device: Device) -> Iterator[None]:
    """Choose a device and run every product on it; put back what was before."""
    from clgemm.core.settings import named
    from clgemm.hardware import choice

    chosen, before = named.by_process, os.environ.get(THRESHOLD)
    os.environ[THRESHOLD] = "0"
    choice.set_device(device)
    try:
        yield
    finally:
        named.by_process = chosen
        if before is None:
            os.environ.pop(THRESHOLD, None)
        else:
            os.environ[THRESHOLD] = before


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Set the device and the precision for a test, its set-up and its clean-up."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    marker = item.get_closest_marker(MARKER)
    with ExitStack() as stack:
        if (device := parameters.get(FIXTURE)) is not None:
            stack.enter_context(_everything_on(device))
        if marker is not None:
            import clgemm

            with suppress(TypeError, ValueError):  # `pytest_runtest_setup` reports it
                stack.enter_context(clgemm.precision(*marker.args, **marker.kwargs))
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker names no precision."""
    marker = item.get_closest_marker(MARKER)
    if marker is not None:
        import clgemm

        try:
            clgemm.precision(*marker.args, **marker.kwargs)
        except (TypeError, ValueError) as error:
            pytest.fail(f"the marker {MARKER}: {error}", pytrace=False)
