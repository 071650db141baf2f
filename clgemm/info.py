"""A description of the installation: versions, settings, OpenCL devices, records and folders."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, overload

from clgemm.core.cache import CACHE_VARIABLE, cache_folder, folder_problem, program_cache_folder
from clgemm.core.settings import (
    ALWAYS_HOST,
    SIDE_VARIABLE,
    THRESHOLD_VARIABLE,
    precision_and_source,
    rule,
)
from clgemm.hardware import runtimes
from clgemm.hardware.choice import (
    NoDeviceError,
    check_again,
    devices,
    failed_devices,
    findings,
    get_devices,
    reason,
    remedy,
    verdict_on,
)
from clgemm.hardware.device import Device, identify, present
from clgemm.kernels import OTHER_DTYPES
from clgemm.planning.planner import families, serving
from clgemm.records.tuned import own_records, user_file
from clgemm.records.verdicts import measured_costs
from clgemm.records.verified import COMMAND, all_verified, verification
from clgemm.runtime.kept_memory import kept_bytes
from clgemm.terminal import html_table, say
from clgemm.trials.calibration import is_unknown
from clgemm.trials.warm import NAMES
from clgemm.trials.worker import missing

PACKAGES = ("clgemm", "pyopencl", "numpy", "pocl-binary-distribution", "intel-opencl-rt")


class Description(dict[str, Any]):
    """The description of an installation, which notebooks display as a table."""

    def _repr_html_(self) -> str:
        rows: list[tuple[str, ...]] = []
        for section, found in self.items():
            rows.append((section,))
            rows += _leaves(found) if isinstance(found, dict) else [("", str(found))]
        return html_table(("what", "found"), rows)


def _leaves(found: dict[Any, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value of nested dicts with the names that lead to it."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}: ")
        else:
            yield f"{path}{name}", str(value)


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...
@overload
def show_config(mode: Literal["dicts"]) -> Description: ...
def show_config(mode: str = "stdout") -> Description | None:
    """Show versions, settings, OpenCL devices, the chosen device, tuning records and folders.

    For each shape class it shows the record in use. The verification says when each kernel family
    was verified on such a device.

    Parameters
    ----------
    mode : {"stdout", "dicts"}, optional
        Whether to print the description, as `numpy.show_config` does, or to return it.

    Returns
    -------
    dict or None
        The description, which notebooks display as a table, or None if it is printed.

    Raises
    ------
    ValueError
        If `mode` is neither, or if the value of an environment variable of clgemm's is wrong.
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"mode={mode!r} is neither 'stdout' nor 'dicts'")
    config = Description()
    config |= {
        "Versions": {"python": platform.python_version()}
        | {package: installed_version(package) for package in PACKAGES},
        "Settings": _settings(),
        "OpenCL": _opencl(),
        "OpenCL devices": {str(i): _described(d) for i, d in enumerate(devices())} or "none works",
        "Devices that cannot be used": {
            d.label: {"why": why, "what helps": remedy(d)} for d, why in failed_devices().items()
        }
        or "none",
        **_of_chosen_device(),
        "Folders": {"cache": str(cache_folder()), "compiled programs": str(program_cache_folder())},
    }
    if mode == "dicts":
        return config
    print("\n".join(_lines(config)))
    return None


def _opencl() -> dict[str, Any]:
    """Return the runtimes that pip installed, their registration, all platforms and problems."""
    found: dict[str, Any] = {
        f"{runtime.package} {runtime.version}": str(runtime.library)
        for runtime in runtimes.installed()
    }
    if found:
        found["registered with the loader"] = runtimes.registration().how
    for variable in (runtimes.VENDORS, runtimes.FILE_NAMES, runtimes.HOME):
        if variable in os.environ:
            found[variable] = os.environ[variable]
    found["platforms"] = (
        "; ".join(dict.fromkeys(d.short_platform for d in present().devices)) or "none"
    )
    if problems := findings():
        found["problems"] = dict(enumerate(problems, 1))
    return found


def installed_version(package: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _settings() -> dict[str, str]:
    """Return each setting with its source.

    Raises
    ------
    ValueError
        If the value of an environment variable is wrong.
    """
    least = rule()
    side = "whichever takes less time (default)"
    if least is not None:
        side = "NumPy" if least == ALWAYS_HOST else f"the device from {least:,} multiply-adds on"
        is_threshold = os.environ.get(THRESHOLD_VARIABLE, "").strip()
        side += f" ({THRESHOLD_VARIABLE if is_threshold else SIDE_VARIABLE})"
    source = CACHE_VARIABLE if os.environ.get(CACHE_VARIABLE) else "default"
    problem = ": it is a file, not a folder; nothing is kept" if folder_problem() else ""
    return {
        "device": reason(),
        "precision": "{} ({})".format(*precision_and_source()),
        "side of products that may go to either": side,
        "cache folder": f"{cache_folder()} ({source}){problem}",
        "memory kept for the next products": f"{kept_bytes() / 2**20:.0f} MiB",
    }


def _described(device: Device) -> dict[str, Any]:
    limits = device.limits
    return {
        "name": device.name,
        "kind": device.kind,
        "platform": device.short_platform,
        "driver": str(device.cl_device.driver_version),
        "compute units": limits.compute_units,
        "vector width": f"{limits.vector_width} floats",
        "local memory": f"{limits.local_memory_bytes // 1024} KiB",
        "largest work-group": f"{limits.work_group_size} work-items",
        "largest buffer": f"{limits.allocation_bytes // 2**20} MiB",
    }


def _of_chosen_device() -> dict[str, Any]:
    """Return the sections on the chosen device."""
    try:
        chosen = get_devices()
    except (RuntimeError, ValueError) as error:
        why = str(error)
        if isinstance(error, NoDeviceError):
            why = f"no OpenCL device works here. What helps: {remedy()}"
        none = {"none": "there is no device"}
        return {"Chosen device": {"none": why}, "Tuning": none, "Verification": none}
    return {
        "Chosen device": _chosen(chosen),
        "Tuning": _tuning(chosen[0]),
        "Verification": _verification(chosen[0]),
    }


def _chosen(chosen: tuple[Device, ...]) -> dict[str, Any]:
    first = {
        "name": chosen[0].name,
        "platform": chosen[0].short_platform,
        "why": reason(),
        "NumPy's arrays": "read in place" if chosen[0].shares_host_memory else "sent and fetched",
        "prepared": _prepared(chosen[0]),
    }
    if len(chosen) == 1:
        return first
    others = {str(i): d.label for i, d in enumerate(chosen[1:], 2)}
    return first | {"large products of host arrays are shared with": others}


def _prepared(device: Device) -> str:
    """Return whether the kernels of usual products are checked and built."""
    if not (parts := missing(device)):
        return "yes"
    names = ", ".join(dict.fromkeys(NAMES[name] for name, _ in parts))
    told = (
        "'python -m clgemm warmup' makes them now, else child processes beside the first programs"
    )
    return f"{len(parts)} parts are missing ({names}): {told}"


def _tuning(device: Device) -> dict[str, Any]:
    """Return the record in use for each shape class on a device, and its origin."""
    found: dict[str, Any] = {"records": str(user_file(identify(device)))}
    if device.traits.has_cost_model:
        found["expected times"] = _expected_times(device)
    others = {record.family for record in own_records(identify(device))}
    tuned = (family for family in OTHER_DTYPES.values() if family.name in others)
    return found | serving(device, (*families(device), *tuned))


def _expected_times(device: Device) -> str:
    """Return where the constants come from by which the planner expects times."""
    measured = measured_costs(device.name, device.runtime)
    if measured is None:
        if device.traits.has_vectors:
            return "as on a CPU that is known ('python -m clgemm tune' measures this device)"
        how = "'python -m clgemm warmup' measures this device" if is_unknown(device) else "known"
        return f"as on an H200 ({how})"
    return f"measured here, {measured.date}, with {measured.plans} plans"


def _verification(device: Device) -> dict[str, str]:
    """Return whether the kernels that a device uses are among those verified."""
    who, records = identify(device), all_verified()
    found = {family.name: verification(who, family.name, records) for family in families(device)}
    if any(words.startswith("not verified") for words in found.values()):
        found["what helps"] = f"'{COMMAND}' verifies this device"
    return found


def _lines(config: dict[str, Any], indent: str = "") -> list[str]:
    lines = []
    for name, value in config.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {value}")
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--check-again",
        action="store_true",
        help="check all devices again, whatever was found before",
    )


def main(args: argparse.Namespace) -> int:
    """Print the description; return 1 if no device works."""
    if args.check_again:
        check_again()
    if unchecked := sum(verdict_on(device) is None for device in present().devices):
        say(f"Checks {unchecked} devices: some seconds, or two minutes for a device that hangs.")
    show_config()
    return 0 if devices() else 1
