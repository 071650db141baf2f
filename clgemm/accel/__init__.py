"""NumPy itself, accelerated: its float32 products run on an OpenCL device where that is faster.

`install` and `uninstall` hold for the process, `enabled` for a block or function; `report` tells
what became of the calls. ``python -m clgemm.accel program.py`` runs an unmodified program so, and
``%load_ext clgemm.accel`` a notebook. What happens is logged to ``logging.getLogger("clgemm")``.
"""

from typing import Any

from clgemm.accel.session import enabled, install, report, uninstall
from clgemm.accel.tally import Report

__all__ = [
    "Report",
    "enabled",
    "install",
    "load_ipython_extension",
    "report",
    "uninstall",
    "unload_ipython_extension",
]


def load_ipython_extension(shell: Any) -> None:  # noqa: ARG001 - IPython's protocol
    """Accelerate NumPy: ``%load_ext clgemm.accel``."""
    install()


def unload_ipython_extension(shell: Any) -> None:  # noqa: ARG001 - IPython's protocol
    """Leave NumPy as it was: ``%unload_ext clgemm.accel``."""
    uninstall()
