"""Accelerating NumPy and leaving it as it was: nested, in threads, after forks, at exit."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from typing import Any

import numpy as np

from clgemm.accel.children import (
    forget_children,
    lead_children,
    note_on_children,
    release_children,
    watch_children,
)
from clgemm.accel.hooks import Hooks
from clgemm.accel.inside import Passages
from clgemm.accel.places import (
    Attribute,
    Call,
    DeviceOperator,
    Implementation,
    Place,
    copied,
    require_support,
)
from clgemm.accel.routing import Router, Settings
from clgemm.accel.tally import Report, Tally
from clgemm.hardware.choice import find_device
from clgemm.hardware.device import Device
from clgemm.planning.selection import require_settings, threshold
from clgemm.products import matmul

__all__ = ["enabled", "host_matmul", "install", "report", "uninstall"]

# What the exit waits for products of daemon threads: Python ends such a thread wherever it is, and
# in the runtime's own code that aborts the process.
EXIT_SECONDS = 3.0
KEPT_SETTINGS = 16  # whose routers remember what they have learned


class _Places:
    """Everything of NumPy's that is exchanged, as it was found."""

    def __init__(self) -> None:
        require_support()
        self.dot, self.inner = Implementation(np.dot), Implementation(np.inner)
        self.operator = Attribute(np.ndarray, "__matmul__")
        self.method = Attribute(np.ndarray, "dot")
        self.matmul = Call(np.matmul)
        self.device_operator = DeviceOperator()
        self.host = copied(np.matmul)

    def restore(self) -> None:
        """Put everything back."""
        places: list[Place] = [self.dot, self.inner, self.operator, self.method, self.matmul]
        for place in (*places, self.device_operator):
            place.restore()


@functools.cache
def _places() -> _Places:
    places = _Places()
    atexit.register(_close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)
    return places


class _Replacements:
    """What goes to NumPy's places for some settings."""

    def __init__(self, settings: Settings, tally: Tally) -> None:
        at = _places()
        self.router = Router(settings, at.host)
        hooks = Hooks(
            *(self.router, tally, _passages),
            host=at.host,
            matmul=at.matmul.original,
            dot=at.dot.original,
        )
        self._all: list[tuple[Place, Any]] = [
            (at.matmul, hooks.matmul()),
            (at.dot, hooks.dot(at.dot.original)),
            (at.inner, hooks.inner(at.inner.original)),
            (at.method, hooks.method(at.method.original)),
            (at.device_operator, matmul),
        ]
        if not settings.profile:  # which times every call in one place
            self._all.append((at.operator, hooks.operator(at.operator.original)))

    def put(self) -> None:
        for place, replacement in self._all:
            place.put(replacement)

    def restore(self) -> None:
        _places().restore()


class _State:
    """What is in force: the innermost of the enabled blocks, else what was installed."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.installed: Settings | None = None
        self.blocks: list[tuple[object, Settings, bool]] = []  # and whether for children, too
        self.installed_for_children: Settings | None = None
        self.active: _Replacements | None = None
        self.last: _Replacements | None = None  # whose device the report names

    def apply(self) -> None:
        """Put into force what has been asked for."""
        if _passages.is_closed:
            return
        settings = self.blocks[-1][1] if self.blocks else self.installed
        wanted = None if settings is None else _replacements(settings, threshold())
        if wanted is self.active:
            return
        if self.active is None:
            _tally.reset()
            if wanted is not None:
                wanted.router.begin()
        else:
            self.active.restore()
            self.active = None
        if wanted is not None:
            try:
                wanted.put()
            except BaseException:
                wanted.restore()
                raise
            self.active = self.last = wanted
        watch_children(wanted is not None)

    def lead(self) -> None:
        """Let processes that are started from now on follow what has been asked for them."""
        blocks = [settings for _, settings, for_children in self.blocks if for_children]
        settings = blocks[-1] if blocks else self.installed_for_children
        if settings is None:
            release_children()
        else:
            lead_children(settings)


@functools.lru_cache(maxsize=KEPT_SETTINGS)
def _replacements(settings: Settings, environment: int | None) -> _Replacements:  # noqa: ARG001
    # The router reads the environment's threshold: another one is another router.
    return _Replacements(settings, _tally)


_tally = Tally()
_passages = Passages()
_state = _State()


def _restore() -> None:
    """Leave NumPy as it was, whatever is in force; take no lock."""
    if _state.active is not None:
        _state.active.restore()
    _places().restore()


def _close() -> None:
    """Leave NumPy as it was, and the device before Python ends the threads that are using it."""
    _restore()
    _passages.close(EXIT_SECONDS)
    _restore()  # whatever another thread has put into force meanwhile


def _forget() -> None:
    """Give a forked child NumPy as it was: OpenCL's runtimes do not survive a fork.

    Locks that another thread held at that moment stay locked: new ones take their place.
    """
    global _state, _tally, _passages
    _restore()
    forget_children()
    _state, _tally, _passages = _State(), Tally(), Passages()
    _replacements.cache_clear()


def _settings(threshold: int | None, device: Any, profile: bool) -> Settings:
    require_settings()
    if isinstance(threshold, float) and threshold.is_integer():  # 1e6
        threshold = int(threshold)
    if threshold is not None and (not isinstance(threshold, int) or threshold < 0):
        raise ValueError(f"threshold={threshold!r} is not a whole number of multiply-adds")
    found: Device | None = None if device is None else find_device(device)
    return Settings(threshold, found, profile)


def install(
    threshold: int | None = None,
    device: Any = None,
    *,
    profile: bool = False,
    children: bool = False,
) -> None:
    """Let NumPy's float32 products run on an OpenCL device from now on, in every thread.

    They are np.dot, np.matmul, ``@``, ``ndarray.dot``, np.inner, np.tensordot, np.linalg.multi_dot,
    matrix_power and whatever else in NumPy is made of these, however it was imported. Every other
    product is NumPy's own. pyopencl's arrays get the operator ``@``.

    Parameters
    ----------
    threshold : int, optional
        Multiply-adds (m n k, all matrices) from which on the device multiplies; 0: always. Left
        out, it is CLGEMM_THRESHOLD, else what has been measured on this machine.
    device : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue, optional
        As for `clgemm.set_device`; the one that `clgemm.get_device` names if left out.
    profile : bool, optional
        Count and time every product, small ones and those of other dtypes too.
    children : bool, optional
        Accelerate Python processes that are started from now on too, by subprocess, joblib or
        multiprocessing's "spawn" and "forkserver": by a ``sitecustomize`` in PYTHONPATH. Forked
        ones have NumPy as it is.

    Raises
    ------
    RuntimeError
        If this Python or NumPy is not supported; nothing is changed.
    ValueError, TypeError
        If `threshold` is negative or no whole number, `device` names none, or CLGEMM_THRESHOLD or
        CLGEMM_PRECISION is set to what it cannot be.
    """
    settings = _settings(threshold, device, profile)
    with _state.lock:
        before, _state.installed = _state.installed, settings
        try:
            _state.apply()
        except BaseException:
            _state.installed = before
            raise
        _state.installed_for_children = settings if children else None
        _state.lead()


def uninstall() -> None:
    """Leave NumPy as it was before `install`, to the same objects; harmless if it is.

    Blocks of `enabled` stay in force until they end.
    """
    with _state.lock:
        _state.installed = _state.installed_for_children = None
        _state.lead()
        _state.apply()


class enabled(contextlib.ContextDecorator):  # noqa: N801 - used as a function, like numpy.errstate
    """Accelerate NumPy, in every thread, within a ``with`` block or a function.

    Parameters
    ----------
    threshold, device, profile, children
        As for `install`. Blocks may be nested: the one entered last is in force, in every thread.

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
    ) -> None:
        self._settings = _settings(threshold, device, profile)
        self._children = children
        self._entered: list[object] = []

    def _recreate_cm(self) -> enabled:
        made = enabled()  # each call of a decorated function restores for itself
        made._settings, made._children = self._settings, self._children
        return made

    def __enter__(self) -> None:
        token = object()
        with _state.lock:
            _state.blocks.append((token, self._settings, self._children))
            try:
                _state.apply()
            except BaseException:
                _state.blocks.pop()
                raise
            _state.lead()
        self._entered.append(token)

    def __exit__(self, *exception: object) -> None:
        token = self._entered.pop()
        with _state.lock:
            # In a forked child there is nothing left of it.
            _state.blocks = [block for block in _state.blocks if block[0] is not token]
            _state.lead()
            _state.apply()


def report() -> Report:
    """Return what became of the products since NumPy was accelerated, or last was."""
    last = _state.last
    name, left_out = (last.router.device_name, last.router.left_out()) if last else ("", ())
    moved = _tally.offloaded_bytes
    return Report(name, tuple(_tally.rows()), left_out, note_on_children(), moved)


def host_matmul() -> Any:
    """Return NumPy's matmul, which stays on the host whatever is accelerated."""
    return _places().host
