"""Validation in child processes, of configs and of instructions.

The instructions of tensor cores, and configs from other devices, are validated here before their
first use. Verdicts are stored on disk. No other module of planning starts a process.
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

# The instructions that serve a device, None if it has to do without.
_instructions: WeakKeyDictionary[Device, str | None] = WeakKeyDictionary()
_lock = threading.RLock()


def validated(device: Device, choice: Choice) -> bool:
    """Tell whether a choice gives right results on a device; tried out the first time."""
    trial = functools.partial(trial_child, identity(device))
    return validated_on(identify(device), choice, trial)


def instructions_of(device: Device) -> str | None:
    """Return the instructions that OpenCL does not tell of and that work on a device, or None.

    The compilers of NVIDIA's drivers take those of tensor cores without saying so anywhere. They
    are tried out once for each device and driver.
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
    """Take it for granted in this process that they work, or that none do: what the trial does."""
    _instructions[device] = instructions


def _candidates(device: Device) -> tuple[str, ...]:
    """Return what a device may have, by its traits, the faster first."""
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
            "no %s on %s: the trial ended with %d: %s",
            *(instructions, device.name, done.returncode, done.stderr.strip()[-1000:]),
        )
    return done.returncode == 0
