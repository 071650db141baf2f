"""Accelerates a Python process that an accelerated program has started.

`clgemm.accel.children` puts this folder in front of PYTHONPATH, so that Python imports this module
as it starts. It imports the user's own ``sitecustomize``, if there is one, and then waits until the
process imports NumPy: others pay nothing.
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
    """Finds NumPy where it is, once, and accelerates the process after its import."""

    def find_spec(self, name: str, *_: Any) -> Any:
        """Return NumPy's spec with a loader of our own; leave all else to the other finders."""
        if name != "numpy" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = NumpyLoader(spec.loader)
        return spec


class NumpyLoader(Loader):
    """Loads NumPy as its own loader does, then accelerates it."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: Any) -> Any:
        """Return what NumPy's own loader makes."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Import NumPy, and leave its own loader behind."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        accelerate()


def accelerate() -> None:
    """Accelerate NumPy as the program that started this process asked for."""
    try:
        settings = json.loads(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return  # uninstalled meanwhile
    try:
        if importlib.util.find_spec("clgemm") is None:
            sys.path.append(PACKAGES)  # the program found it by a path of its own
        from clgemm import accel
        from clgemm.hardware.identity import find

        device = None if settings["device"] is None else find(settings["device"])
        accel.install(settings["threshold"], device, children=True)
    except (ImportError, RuntimeError, ValueError) as error:
        print(f"clgemm: this process has plain NumPy: {error}", file=sys.stderr)


def follow() -> None:
    """Accelerate NumPy now, if it is there, else as soon as it is."""
    if "numpy" in sys.modules:
        accelerate()
    else:
        sys.meta_path.insert(0, NumpyFinder())


def import_own() -> None:
    """Import the ``sitecustomize`` that this one hides."""
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
        # It only forks: OpenCL is to be opened in its children, which do not survive it otherwise.
        os.register_at_fork(after_in_child=follow)
    elif os.environ.get(VARIABLE):
        follow()
