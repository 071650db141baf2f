"""Validation of configs and instructions in child processes.

Configs from other devices, and the instructions of tensor cores, are validated before their first
use. Verdicts are stored on disk. No other module of planning starts a process.
"""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
import threading
from weakref import WeakKeyDictionary

from clgemm.core.cache import recall, remember
from clgemm.core.child import child_environment, trial_child
from clgemm.core.config import KernelConfig
from clgemm.core.nesting import non_reentrant
from clgemm.hardware.device import Device
from clgemm.hardware.identity import identify, identity
from clgemm.kernels import FAMILIES
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.sources import sources_hash
from clgemm.records.verdicts import validated_on

__all__ = ["assume", "instructions_of", "tried_kernels", "validated"]

log = logging.getLogger(__name__)

TRIAL_SECONDS = 120

# For each device the instructions that it uses; None if none of them works.
_instructions: WeakKeyDictionary[Device, str | None] = WeakKeyDictionary()
_lock = threading.RLock()


def validated(device: Device, choice: Choice) -> bool:
    """Tell whether a choice gives right results on a device; the first call validates it."""
    trial = functools.partial(trial_child, identity(device))
    return validated_on(identify(device), choice, trial)


def instructions_of(device: Device) -> str | None:
    """Return the instructions beyond OpenCL C that work on a device, such as ``"wgmma"``, or None.

    The compilers of NVIDIA's drivers accept the instructions of tensor cores, but no query reports
    this. So a child process tries them, once for each device and driver.
    """
    try:
        return _instructions[device]
    except KeyError:
        pass
    return _tried(device)


@non_reentrant
def _tried(device: Device) -> str | None:
    with _lock:
        if device not in _instructions:
            tried = (name for name in _candidates(device) if _verdict(device, name))
            _instructions[device] = next(tried, None)
        return _instructions[device]


def assume(device: Device, instructions: str | None) -> None:
    """Assume in this process that the instructions work (None: that none do), without a trial.

    The trial's own child process calls this.
    """
    _instructions[device] = instructions


def _candidates(device: Device) -> tuple[str, ...]:
    """Return the instructions that a device may have by its traits, the fastest first."""
    able = (family.instructions for family in FAMILIES if family.runs_on(device.traits))
    return tuple(dict.fromkeys(filter(None, able)))


def tried_kernels(instructions: str) -> tuple[type[KernelConfig], ...]:
    """Return the configs of the kernels that a trial of the instructions multiplies with."""
    families = [family for family in FAMILIES if family.instructions == instructions]
    return tuple(kind for family in families for kind in (family.config, *family.kernels))


def _verdict(device: Device, instructions: str) -> bool:
    driver = device.cl_device.driver_version
    kernels = sources_hash(*tried_kernels(instructions))
    key = f"{device.name}, driver {driver}: {instructions}, kernels {kernels}"
    able = recall(key)
    if not isinstance(able, bool):
        able = _try_out(device, instructions)
        remember(key, able)
    return able


def _try_out(device: Device, instructions: str) -> bool:
    """Multiply in a child process and return whether the results were right."""
    log.info("trying %s on %s", instructions, device.name)
    command = [sys.executable, "-m", "clgemm.tuning.tensor_trial", device.name, instructions]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TRIAL_SECONDS, env=child_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("no %s on %s: %s", instructions, device.name, error)
        return False
    if done.returncode != 0:
        log.warning(
            "no %s on %s: the trial ended with exit status %d: %s",
            *(instructions, device.name, done.returncode, done.stderr.strip()[-1000:]),
        )
    return done.returncode == 0
