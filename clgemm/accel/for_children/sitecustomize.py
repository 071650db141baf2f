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

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
VARIABLE = "CLGEMM_ACCEL_CHILDREN"


def accelerate() -> None:
    """Accelerate NumPy with the settings of the parent process."""
    try:
        settings = json.loads(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return  # the parent has called uninstall
    try:
        from clgemm.accel.session import install

        device = None
        if settings["device"] is not None:
            from clgemm.hardware.device import find

            device = find(settings["device"])
        install(settings["threshold"], device, children=True)
    except (ImportError, RuntimeError, ValueError) as error:
        print(f"clgemm: this process uses plain NumPy: {error}", file=sys.stderr)


def follow() -> None:
    """Accelerate NumPy now if it is imported, and otherwise after its import."""
    if importlib.util.find_spec("clgemm") is None:
        sys.path.append(PACKAGES)  # the parent found clgemm by a path of its own
    from clgemm.core.imports import after_import

    after_import("numpy", accelerate)


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
