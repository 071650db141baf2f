"""Acceleration of NumPy: its float32 products run on an OpenCL device where that is faster.

`install` and `uninstall` change the whole process, `enabled` a block or function. `report` counts
the products on the device and on the host. ``python -m clgemm.accel program.py`` accelerates an
unmodified program, and ``%load_ext clgemm.accel`` a notebook. Warnings go to
``logging.getLogger("clgemm")``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clgemm.accel.reporting import Report
    from clgemm.accel.session import enabled, install, report, uninstall

__all__ = [
    "Report",
    "enabled",
    "install",
    "load_ipython_extension",
    "report",
    "uninstall",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    """Import what a name stands for at its first use: that imports NumPy."""
    if name not in ("Report", "enabled", "install", "report", "uninstall"):
        raise AttributeError(f"module 'clgemm.accel' has no attribute {name!r}")
    from clgemm.accel import session

    value = globals()[name] = getattr(session, name)
    return value


def load_ipython_extension(_shell: Any) -> None:
    """Accelerate NumPy: ``%load_ext clgemm.accel``."""
    from clgemm.accel.session import install

    install()


def unload_ipython_extension(_shell: Any) -> None:
    """Restore NumPy: ``%unload_ext clgemm.accel``."""
    from clgemm.accel.session import uninstall

    uninstall()
