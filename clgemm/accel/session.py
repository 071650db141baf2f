"""Accelerating NumPy and leaving it as it was: nested, in threads, after forks, at exit."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from typing import Any

import numpy as np

from clgemm.accel.deferred import Rescue
from clgemm.accel.hooks import Hooks
from clgemm.accel.places import (
    Attribute,
    DeviceOperator,
    Implementation,
    Loop,
    Place,
    require_support,
)
from clgemm.accel.routing import Router, Settings
from clgemm.accel.tally import Report, Tally
from clgemm.device import Device, find_device
from clgemm.products import matmul

__all__ = ["enabled", "host_matmul", "install", "report", "uninstall"]

# matmul's loops whose calls a profile counts: every dtype's but that of objects, which fails in
# its own way.
PROFILED = "?bBhHiIlLqQedgFDG"


class _Places:
    """Everything of NumPy's that is exchanged, as it was found."""

    def __init__(self) -> None:
        require_support()
        self.dot, self.inner = Implementation(np.dot), Implementation(np.inner)
        self.operator, self.method = Attribute("__matmul__"), Attribute("dot")
        self.loop = Loop(np.matmul, np.float32)
        self.device_operator = DeviceOperator()
        self.other_loops: list[Loop] = []
        self.host = self.loop.alone()
        self.rescue: Rescue | None = None

    def put(self, hooks: Hooks, profile: bool) -> None:
        loop = hooks.loop()
        self.rescue = Rescue(loop, self.loop.original)
        self.rescue.install()
        self.loop.put(loop)
        dot, inner, method = self.dot.original, self.inner.original, self.method.original
        if profile:  # every call comes to a loop, and is timed there
            dot, inner = hooks.timed("dot", dot), hooks.timed("inner", inner)
            method = hooks.timed("ndarray.dot", method)
            self.other_loops = self.other_loops or [Loop(np.matmul, char) for char in PROFILED]
            for other in self.other_loops:
                other.put(hooks.other_loop(other.original))
        else:
            self.operator.put(hooks.operator(self.operator.original))
        self.dot.put(hooks.dot(dot))
        self.inner.put(hooks.inner(inner))
        self.method.put(hooks.method(method))
        self.device_operator.put(matmul)

    def restore(self) -> None:
        if self.rescue is not None:
            self.rescue.uninstall()
            self.rescue = None
        places: list[Place] = [self.dot, self.inner, self.operator, self.method]
        for place in (*places, self.loop, *self.other_loops, self.device_operator):
            place.restore()


@functools.cache
def _places() -> _Places:
    places = _Places()
    atexit.register(_forget)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)
    return places


class _State:
    """What is in force: the innermost of the enabled blocks, else what was installed."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.installed: Settings | None = None
        self.blocks: list[tuple[object, Settings]] = []
        self.router: Router | None = None
        self.tally = Tally()

    def apply(self) -> None:
        """Put into force what has been asked for."""
        settings = self.blocks[-1][1] if self.blocks else self.installed
        if settings is None and self.router is None:
            return
        places = _places()
        if self.router is None:
            self.tally = Tally()
        elif settings == self.router.settings:
            return
        places.restore()
        if settings is None:
            self.router = None
            return
        self.router = Router(settings, places.host)
        hooks = Hooks(self.router, self.tally, places.loop, places.host, places.dot.original)
        try:
            places.put(hooks, settings.profile)
        except BaseException:
            places.restore()
            self.router = None
            raise
        _last.router = self.router


class _Last:
    """Whose device the report names."""

    router: Router | None = None


_last = _Last()
_state = _State()


def _forget() -> None:
    """Leave NumPy as it was, at the process's end or in a forked child.

    The child has NumPy: OpenCL's runtimes do not survive a fork, and locks that another thread held
    then stay locked; nothing here takes one.
    """
    global _state
    _places().restore()
    tally, _state = _state.tally, _State()
    _state.tally = tally


def _settings(threshold: int | None, device: Any, profile: bool) -> Settings:
    if threshold is not None and (not isinstance(threshold, int) or threshold < 0):
        raise ValueError(f"threshold={threshold!r} is not a whole number of multiply-adds")
    found: Device | None = None if device is None else find_device(device)
    return Settings(threshold, found, profile)


def install(threshold: int | None = None, device: Any = None, *, profile: bool = False) -> None:
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

    Raises
    ------
    RuntimeError
        If this Python or NumPy is not supported; nothing is changed.
    ValueError, TypeError
        If `threshold` is negative, or `device` names none.
    """
    settings = _settings(threshold, device, profile)
    with _state.lock:
        before, _state.installed = _state.installed, settings
        try:
            _state.apply()
        except BaseException:
            _state.installed = before
            raise


def uninstall() -> None:
    """Leave NumPy as it was before `install`, to the same objects; harmless if it is.

    Blocks of `enabled` stay in force until they end.
    """
    with _state.lock:
        _state.installed = None
        _state.apply()


class enabled(contextlib.ContextDecorator):  # noqa: N801 - used as a function, like numpy.errstate
    """Accelerate NumPy, in every thread, within a ``with`` block or a function.

    Parameters
    ----------
    threshold, device, profile
        As for `install`. Blocks may be nested: the one entered last is in force, in every thread.

    Examples
    --------
    >>> with clgemm.accel.enabled():
    ...     c = a @ b
    """

    def __init__(
        self, threshold: int | None = None, device: Any = None, *, profile: bool = False
    ) -> None:
        self._settings = _settings(threshold, device, profile)
        self._entered: list[object] = []

    def _recreate_cm(self) -> enabled:
        made = enabled()  # each call of a decorated function restores for itself
        made._settings = self._settings
        return made

    def __enter__(self) -> None:
        token = object()
        with _state.lock:
            _state.blocks.append((token, self._settings))
            try:
                _state.apply()
            except BaseException:
                _state.blocks.pop()
                raise
        self._entered.append(token)

    def __exit__(self, *exception: object) -> None:
        token = self._entered.pop()
        with _state.lock:
            # In a forked child there is nothing left of it.
            _state.blocks = [block for block in _state.blocks if block[0] is not token]
            _state.apply()


def report() -> Report:
    """Return what became of the products since NumPy was accelerated, or last was."""
    router = _last.router
    return Report(router.device_name if router else "", tuple(_state.tally.rows()))


def host_matmul() -> Any:
    """Return NumPy's float32 matmul, which stays on the host whatever is accelerated."""
    return _places().host
