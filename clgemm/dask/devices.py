"""The device of a worker: one each, as far as there are enough."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyopencl as cl

from clgemm.dask.claims import Claim, claim_first
from clgemm.hardware.choice import (
    ENVIRONMENT_VARIABLE,
    devices,
    find_device,
    find_devices,
    no_device,
)
from clgemm.hardware.device import Device, present

__all__ = ["ONE_EACH", "Assigned", "Candidate", "assign", "candidates"]

ONE_EACH = "one-each"


class Candidate(NamedTuple):
    """A device, or a part of one, that a worker may get.

    Attributes
    ----------
    takes : tuple of str
        Names, unique on this machine, of everything that it takes.
    part : str
        Which part of the device it is; empty for a whole one.
    """

    device: Device
    takes: tuple[str, ...]
    part: str = ""


class Assigned(NamedTuple):
    """The device that this process has got.

    Attributes
    ----------
    claim : Claim or None
        None where the user named one device for all workers.
    """

    candidate: Candidate
    claim: Claim | None


def assign(wanted: Any, cores: int, folder: Path | None = None) -> Assigned:
    """Choose this process's device and claim it.

    Parameters
    ----------
    wanted : str, int or sequence of those
        ``"one-each"``; or a device as `clgemm.set_device` names it, for all workers; or a list of
        such names, of which each worker of a machine gets another.
    cores : int
        This worker's share of the machine's cores: as many compute units of a CPU it gets.

    Raises
    ------
    RuntimeError
        If there is no device that works.
    ValueError
        If a name, or CLGEMM_DEVICE, names none.
    """
    if isinstance(wanted, str | int) and wanted != ONE_EACH:
        return Assigned(Candidate(find_device(wanted), ()), None)
    found = candidates(None if wanted == ONE_EACH else wanted, cores)
    claim = claim_first([candidate.takes for candidate in found], folder)
    return Assigned(found[claim.position], claim)


def candidates(names: Sequence[str | int] | None, cores: int) -> list[Candidate]:
    """Return what workers of this machine may get, the best first.

    GPUs and accelerators come first, each as a whole. Then come parts of the processor: those of
    the first runtime for it that works, as another one would use the same cores. With `names`, or
    CLGEMM_DEVICE, they are the devices that these name.
    """
    if names is not None:
        # The user has chosen runtimes: each has the claims of its own.
        each = [find_device(name) for name in names]
        return [Candidate(d, (f"{i}: {_name(d)}",)) for i, d in enumerate(each)]
    setting = os.environ.get(ENVIRONMENT_VARIABLE, "")
    found = _named(setting) if setting else list(devices())
    if not found:
        raise no_device()
    whole = [Candidate(d, (_name(d),)) for d in found if d.kind != "CPU"]
    processors = [d for d in found if d.kind == "CPU"][:1]
    return whole + [part for d in processors for part in _parts(d, cores)]


def _named(setting: str) -> list[Device]:
    """Return every device that CLGEMM_DEVICE names, the one first that it names elsewhere."""
    chosen = find_devices(setting)
    if len(chosen) > 1:
        return list(chosen)
    (first,) = chosen
    wanted = setting.strip().lower()
    if wanted.isdecimal():
        return [first]
    alike = [
        d
        for d in devices()
        if wanted == d.kind.lower() or wanted in f"{d.name} {d.platform}".lower()
    ]
    return [first, *(d for d in alike if d.cl_device != first.cl_device and d.kind == first.kind)]


def _parts(device: Device, cores: int) -> list[Candidate]:
    """Return the parts of a CPU with so many compute units each; all of it if it cannot be cut."""
    units, part = device.limits.compute_units, max(1, cores)
    every = tuple(f"core {unit}" for unit in range(units))
    if part >= units:
        return [Candidate(device, every)]
    try:
        # pyopencl's types know no numbers here.
        properties: list[Any] = [cl.device_partition_property.EQUALLY, part]
        cut = device.cl_device.create_sub_devices(properties)
    except cl.Error:
        return [Candidate(device, every)]
    return [
        Candidate(Device(sub), every[i * part : (i + 1) * part], f"part {i + 1} of {len(cut)}")
        for i, sub in enumerate(cut)
    ]


def _name(device: Device) -> str:
    """Return a device's name on this machine, whichever devices this process sees.

    CUDA_VISIBLE_DEVICES and its like let processes see other devices, or in another order.
    """
    d = device.cl_device
    with contextlib.suppress(cl.Error, AttributeError):  # not NVIDIA's
        return f"PCI {d.pci_domain_id_nv}:{d.pci_bus_id_nv}:{d.pci_slot_id_nv}"
    alike = [x for x in present().devices if (x.name, x.platform) == (device.name, device.platform)]
    position = next((i for i, x in enumerate(alike) if x.cl_device == d), 0)
    return f"{device.name}, {device.platform}, {position}"
