"""The start and the end of acceleration: for the process, for blocks, after a fork and at exit."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from typing import Any

import numpy as np

from clgemm.accel.children import accelerate_children, leave_children_plain, started
from clgemm.accel.failures import Failures, RunningProducts
from clgemm.accel.hooks import Hooks, Settings
from clgemm.accel.patches import (
    Attribute,
    Call,
    DeviceOperator,
    Implementation,
    Patch,
    copied,
    require_support,
)
from clgemm.accel.reporting import Report, advisor, make_report
from clgemm.core.settings import least_of, require_settings
from clgemm.numpy_rules import numpys
from clgemm.products import matmul
from clgemm.side.counts import counts
from clgemm.side.decision import reset_counts

# The longest wait for products of daemon threads at exit. Python ends these threads anywhere; in
# the code of an OpenCL runtime that aborts the process.
EXIT_SECONDS = 3.0
CACHED_SETTINGS = 16  # settings whose replacements are cached, with their failures


class _Patches:
    """All places of NumPy that are patched, with their original contents."""

    def __init__(self) -> None:
        require_support()
        self.dot, self.inner = Implementation(np.dot), Implementation(np.inner)
        self.operator = Attribute(np.ndarray, "__matmul__")
        self.method = Attribute(np.ndarray, "dot")
        self.matmul = Call(np.matmul)
        self.device_operator = DeviceOperator()
        self.host = copied(np.matmul)

    def restore(self) -> None:
        """Restore NumPy at all places."""
        patches: list[Patch] = [self.dot, self.inner, self.operator, self.method, self.matmul]
        for patch in (*patches, self.device_operator):
            patch.restore()
        numpys.reset()


@functools.cache
def _patches() -> _Patches:
    patches = _Patches()
    atexit.register(_close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)
    return patches


class _Replacements:
    """The replacements for all places, under one group of settings."""

    def __init__(self, settings: Settings) -> None:
        at = _patches()
        self.device, self.failures = settings.device, Failures(settings.device)
        hooks = Hooks(
            *(settings, _running, self.failures),
            host=at.host,
            matmul=at.matmul.original,
            dot=at.dot.original,
        )
        self._all: list[tuple[Patch, Any]] = [
            (at.matmul, hooks.matmul()),
            (at.dot, hooks.dot(at.dot.original)),
            (at.inner, hooks.inner(at.inner.original)),
            (at.method, hooks.method(at.method.original)),
            (at.device_operator, matmul),
        ]
        if not settings.profile:  # with a profile, the operator calls matmul's, which times it
            self._all.append((at.operator, hooks.operator(at.operator.original)))

    def put(self) -> None:
        for patch, replacement in self._all:
            patch.put(replacement)
        at = _patches()
        numpys.matmul, numpys.dot = at.matmul.original, at.dot.original
        numpys.inner = at.inner.original


class _State:
    """The settings in force: those of the innermost enabled block, or else of `install`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.installed: Settings | None = None
        self.blocks: list[Settings] = []
        self.active: _Replacements | None = None
        self.last: _Replacements | None = None  # the report names its device

    def apply(self) -> None:
        """Patch or restore NumPy, according to the settings that are now in force."""
        if _running.is_closed:
            return
        asked = self._asked()
        wanted = _replacements(asked[-1]._replace(children=False)) if asked else None
        if wanted is self.active:
            return
        if self.active is None:
            reset_counts()
            advisor.reset()
            if wanted is not None:
                wanted.failures.clear()
        else:
            _patches().restore()
            self.active = None
        if wanted is not None:
            try:
                wanted.put()
            except BaseException:
                _patches().restore()
                raise
            self.active = self.last = wanted
        started.watch(wanted is not None)

    def apply_to_children(self) -> None:
        """Accelerate the processes that are started from now on, or not, as was asked for them."""
        settings = [each for each in self._asked() if each.children]
        if settings:
            accelerate_children(settings[-1].least, settings[-1].device)
        else:
            leave_children_plain()

    def _asked(self) -> list[Settings]:
        """Return all that is asked for; the last counts."""
        return ([] if self.installed is None else [self.installed]) + self.blocks


@functools.lru_cache(maxsize=CACHED_SETTINGS)
def _replacements(settings: Settings) -> _Replacements:
    return _Replacements(settings)


_running = RunningProducts()
_state = _State()


def _close() -> None:
    """Restore NumPy at exit, and wait for the products of other threads."""
    _patches().restore()  # without a lock
    _running.close(EXIT_SECONDS)
    _patches().restore()  # another thread may have patched NumPy during the wait


def _forget() -> None:
    """Restore NumPy in a forked child, since OpenCL runtimes do not survive a fork.

    The locks are new, because another thread may have held one of them during the fork.
    """
    global _state, _running
    _patches().restore()
    started.clear()
    counts.renew_lock()
    reset_counts()
    advisor.reset()
    _state, _running = _State(), RunningProducts()
    _replacements.cache_clear()


def _settings(
    threshold: int | None, device: Any, profile: bool, children: bool, side: str | None
) -> Settings:
    require_settings()
    least = least_of(threshold, side)
    if device is None:
        return Settings(least, None, profile, children)
    from clgemm.hardware.choice import find_devices

    found = find_devices(device)
    if len(found) > 1:
        names = ", ".join(each.label for each in found)
        raise ValueError(
            f"device={device!r} names several devices ({names}): choose them by clgemm.set_device, "
            "clgemm.device or CLGEMM_DEVICE, and leave device= out here"
        )
    return Settings(least, found[0], profile, children)


def install(
    threshold: int | None = None,
    device: Any = None,
    *,
    profile: bool = False,
    children: bool = False,
    side: str | None = None,
) -> None:
    """Run NumPy's float32 products on an OpenCL device from now on, in every thread.

    This accelerates np.dot, np.matmul, ``@``, ``ndarray.dot``, np.inner, np.tensordot,
    np.linalg.multi_dot, matrix_power and all of NumPy that is built on them, however a program
    imports them. NumPy computes every other product. pyopencl's arrays get the operator ``@``.

    Parameters
    ----------
    threshold : int, optional
        Multiply-adds (m n k times the number of matrices) from which on the device multiplies; 0
        for all products. The default is CLGEMM_THRESHOLD or CLGEMM_SIDE; without these, the times
        of both sides decide.
    device : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue, optional
        As for `clgemm.set_device`. The default is the device of `clgemm.get_device`.
    profile : bool, optional
        Whether to count and time every product, also small ones and those of other dtypes.
    children : bool, optional
        Whether to accelerate Python processes too that subprocess, joblib or multiprocessing's
        "spawn" and "forkserver" start from now on. They find a ``sitecustomize`` in PYTHONPATH.
        Forked processes always use plain NumPy.
    side : {"auto", "host", "device"}, optional
        Where float32 products are computed, in place of CLGEMM_SIDE: on the faster side, by NumPy,
        or on the device. With ``"device"`` or a threshold, no measured time decides anything, so
        that a program's bits repeat.

    Raises
    ------
    RuntimeError
        If this Python or NumPy is not supported; then nothing is changed.
    ValueError, TypeError
        If `threshold` is negative or not whole, if `device` names no device, or if the value of
        CLGEMM_THRESHOLD or CLGEMM_PRECISION is wrong.
    """
    settings = _settings(threshold, device, profile, children, side)
    with _state.lock:
        before, _state.installed = _state.installed, settings
        try:
            _state.apply()
        except BaseException:
            _state.installed = before
            raise
        _state.apply_to_children()


def uninstall() -> None:
    """Undo `install` and restore NumPy's own objects.

    Without `install`, this does nothing. Blocks of `enabled` stay in force until they end.
    """
    with _state.lock:
        _state.installed = None
        _state.apply_to_children()
        _state.apply()


class enabled(contextlib.ContextDecorator):
    """Accelerate NumPy in every thread during a ``with`` block or a function.

    Blocks may be nested. The block entered last is in force, in every thread.

    Parameters
    ----------
    threshold, device, profile, children, side
        As for `install`.

    Examples
    --------
    >>> with clgemm.accel.enabled():
    ...     c = a @ b
    """

    def __init__(
        self,
        threshold: int | None = None,
        device: Any = None,
        *,
        profile: bool = False,
        children: bool = False,
        side: str | None = None,
    ) -> None:
        self._asked = _settings(threshold, device, profile, children, side)
        self._entered: list[Settings] = []

    def _recreate_cm(self) -> enabled:
        made = enabled()  # each call of a decorated function restores for itself
        made._asked = self._asked
        return made

    def __enter__(self) -> None:
        asked = Settings(*self._asked)  # another object each time
        with _state.lock:
            _state.blocks.append(asked)
            try:
                _state.apply()
            except BaseException:
                _state.blocks.pop()
                raise
            _state.apply_to_children()
        self._entered.append(asked)

    def __exit__(self, *exception: object) -> None:
        asked = self._entered.pop()
        with _state.lock:
            # In a child forked inside the block, the list is empty.
            _state.blocks = [block for block in _state.blocks if block is not asked]
            _state.apply_to_children()
            _state.apply()


def report() -> Report:
    """Count the products on each side since the start of the current or last acceleration.

    Products of clgemm's own functions count too.
    """
    last = _state.last
    failed, device = ((), None) if last is None else (last.failures.failed(), last.device)
    return make_report(failed, started.note(), device)
