"""Which device a worker gets: its own, as long as there are enough.

A worker claims its device by locked files. The operating system unlocks a file when its process
ends. So if a worker is killed, its successor finds the device free.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyopencl as cl
from filelock import FileLock, Timeout

from clgemm.core.settings import DEVICE_VARIABLE
from clgemm.hardware.choice import (
    devices,
    find_device,
    find_devices,
    matching,
    no_device,
)
from clgemm.hardware.device import Device, identity

ONE_EACH = "one-each"
MOST_SHARED = 64  # the most processes with a claim on one device; others have none


class Candidate(NamedTuple):
    """A device, or a part of one, that a worker may get.

    Attributes
    ----------
    takes : tuple of str
        The names of all resources to claim for it, unique on this machine.
    part : str
        Which part of the device it is, or which of several of the same name; empty for a whole
        device that is the only one.
    """

    device: Device
    takes: tuple[str, ...]
    part: str = ""


def assign(wanted: Any, cores: int, folder: Path | None = None) -> tuple[Candidate, Claim | None]:
    """Choose this process's device and claim it.

    No claim is needed where the user names one device for all workers.

    Parameters
    ----------
    wanted : str, int or sequence of those
        ``"one-each"``; or a device as `clgemm.set_device` names it, for all workers; or a list of
        such names, one for each worker of a machine.
    cores : int
        This worker's share of the machine's cores. If its device is a CPU, it gets as many compute
        units.

    Raises
    ------
    RuntimeError
        If there is no device that works.
    ValueError
        If `wanted` or CLGEMM_DEVICE names no device.
    """
    if isinstance(wanted, str | int) and wanted != ONE_EACH:
        return Candidate(find_device(wanted), ()), None
    found = candidates(None if wanted == ONE_EACH else wanted, cores)
    claim = claim_first([candidate.takes for candidate in found], folder)
    return found[claim.position], claim


def candidates(names: Sequence[str | int] | None, cores: int) -> list[Candidate]:
    """Return the devices and parts that workers of this machine may get, the best first.

    GPUs and accelerators come first, each as a whole. Then come the parts of the processor. Only
    the first working runtime of the processor counts, because another one would use the same cores.
    If `names` or CLGEMM_DEVICE is given, only the devices that it names are candidates.
    """
    if names is not None:
        # The user has chosen the runtimes: devices of different entries share no claims.
        each = [find_device(name) for name in names]
        return [Candidate(d, (f"{i}: {_name(d)}",)) for i, d in enumerate(each)]
    setting = os.environ.get(DEVICE_VARIABLE, "")
    found = _named(setting) if setting else list(devices())
    if not found:
        raise no_device()
    whole = [Candidate(d, (_name(d),), _which(d, found)) for d in found if d.kind != "CPU"]
    processors = [d for d in found if d.kind == "CPU"][:1]
    return whole + [part for d in processors for part in _parts(d, cores)]


def _named(setting: str) -> list[Device]:
    """Return every device that CLGEMM_DEVICE names, beginning with that of `find_device`."""
    chosen = find_devices(setting)
    if len(chosen) > 1:
        return list(chosen)
    (first,) = chosen
    wanted = setting.strip().lower()
    if wanted.isdecimal():
        return [first]
    others = (d for d in matching(wanted, devices()) if d.cl_device != first.cl_device)
    return [first, *(d for d in others if d.kind == first.kind)]


def _parts(device: Device, cores: int) -> list[Candidate]:
    """Divide a CPU into parts of `cores` compute units; return it whole if that is impossible."""
    units, part = device.limits.compute_units, max(1, cores)
    every = tuple(f"core {unit}" for unit in range(units))
    # rusticl, which cannot divide devices, ends the process when it is asked to.
    if part >= units or device.cl_device.partition_max_sub_devices < 2:
        return [Candidate(device, every)]
    try:
        # pyopencl's type stubs allow no numbers in this list.
        properties: list[Any] = [cl.device_partition_property.EQUALLY, part]
        cut = device.cl_device.create_sub_devices(properties)
    except cl.Error:
        return [Candidate(device, every)]
    return [
        Candidate(Device(sub), every[i * part : (i + 1) * part], f"part {i + 1} of {len(cut)}")
        for i, sub in enumerate(cut)
    ]


def _which(device: Device, found: Sequence[Device]) -> str:
    """Return which one a device is of several of the same name; empty if it is the only one."""
    same = [d for d in found if d.name == device.name]
    return f"{same.index(device) + 1} of {len(same)}" if len(same) > 1 else ""


def _name(device: Device) -> str:
    """Return a name for a device that all processes of this machine share.

    With CUDA_VISIBLE_DEVICES and its like, each process may list other devices, or list them in
    another order. On other drivers than NVIDIA's, the position in the list is part of the name.
    """
    d = device.cl_device
    with contextlib.suppress(cl.Error, AttributeError):  # other drivers than NVIDIA's
        return f"PCI {d.pci_domain_id_nv}:{d.pci_bus_id_nv}:{d.pci_slot_id_nv}"
    return ", ".join(identity(device))


class Claim:
    """Resources of this machine that this process holds until `release` or its end.

    Attributes
    ----------
    position : int
        The index of the claimed candidate.
    others : int
        How many other processes had claimed it before.
    """

    def __init__(self, position: int, others: int, locks: Sequence[FileLock]) -> None:
        self.position, self.others = position, others
        self._locks = locks

    def release(self) -> None:
        """Release the resources for other processes."""
        for lock in self._locks:
            lock.release(force=True)


def claim_first(candidates: Sequence[Sequence[str]], folder: Path | None = None) -> Claim:
    """Claim the first candidate that no process of this user holds.

    If every candidate is held, claim the first of those that the fewest processes hold.

    Parameters
    ----------
    candidates : sequence of sequences of str
        For each candidate the names of its resources. They are claimed together.
    folder : Path, optional
        The folder of the files. The default is one for each user, in the system's folder for
        temporary files.
    """
    folder = folder or _folder()
    for others in range(MOST_SHARED):
        for position, names in enumerate(candidates):
            hashes = (hashlib.sha256(name.encode()).hexdigest()[:16] for name in names)
            locks = _locked([folder / f"{each}.{others}.lock" for each in hashes])
            if locks is not None:
                return Claim(position, others, locks)
    return Claim(0, MOST_SHARED, ())


def _folder() -> Path:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may have users without a name
        user = "nobody"
    return (
        Path(tempfile.gettempdir()) / f"clgemm-claims-{hashlib.sha1(user.encode()).hexdigest()[:8]}"
    )


def _locked(files: Sequence[Path]) -> list[FileLock] | None:
    """Lock all files; return None if one of them is locked already.

    If the folder cannot be written, no file is locked, and the list is empty.
    """
    held: list[FileLock] = []
    try:
        for file in files:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Another thread may release it.
            lock = FileLock(file, thread_local=False)
            lock.acquire(timeout=0)
            held.append(lock)
    except Timeout:
        for lock in held:
            lock.release(force=True)
        return None
    except (OSError, NotImplementedError):
        with contextlib.suppress(OSError):
            for lock in held:
                lock.release(force=True)
        return []
    return held
