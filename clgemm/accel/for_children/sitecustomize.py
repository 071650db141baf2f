"""Acceleration of a Python process that an accelerated program starts.

`clgemm.accel.children` puts this folder first in PYTHONPATH, so that Python imports this module
when it starts. The module imports the user's own ``sitecustomize``, if there is one. It accelerates
the process only when the process imports NumPy.
"""

# ruff: noqa: PTH100, PTH120 - pathlib would delay the start of every process

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
VARIABLE = "CLGEMM_ACCEL_CHILDREN"


class NumpyFinder(MetaPathFinder):
    """A finder for NumPy, until it is imported, with a loader that accelerates the process.

    Packages that only ask whether NumPy is installed get a spec too, and throw it away.
    """

    def find_spec(self, name: str, *_: Any) -> Any:
        """Return NumPy's spec with a NumpyLoader, and None for all other modules."""
        if name != "numpy" or self not in sys.meta_path:
            return None
        place = sys.meta_path.index(self)
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(place, self)
        if spec is not None and spec.loader is not None:
            spec.loader = NumpyLoader(spec.loader, self)
        return spec


class NumpyLoader(Loader):
    """A loader that imports NumPy by NumPy's own loader and then accelerates it."""

    def __init__(self, own: Any, finder: NumpyFinder) -> None:
        self._own, self._finder = own, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: Any) -> Any:
        """Return the module of NumPy's own loader."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Import NumPy, restore its own loader and accelerate the process."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        accelerate()


def accelerate() -> None:
    """Accelerate NumPy with the settings of the parent process."""
    try:
        settings = json.loads(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return  # the parent has called uninstall
    try:
        if importlib.util.find_spec("clgemm") is None:
            sys.path.append(PACKAGES)  # the parent found clgemm by a path of its own
        from clgemm import accel
        from clgemm.hardware.identity import find

        device = None if settings["device"] is None else find(settings["device"])
        accel.install(settings["threshold"], device, children=True)
    except (ImportError, RuntimeError, ValueError) as error:
        print(f"clgemm: this process uses plain NumPy: {error}", file=sys.stderr)


def follow() -> None:
    """Accelerate NumPy now if it is imported, and otherwise after its import."""
    if "numpy" in sys.modules:
        accelerate()
    else:
        sys.meta_path.insert(0, NumpyFinder())


def import_own() -> None:
    """Import the user's ``sitecustomize``, which this module hides."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


try:
    import_own()
finally:
    if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
        # The fork server must not open OpenCL, which does not survive a fork; its children may.
        os.register_at_fork(after_in_child=follow)
    elif os.environ.get(VARIABLE):
        follow()
