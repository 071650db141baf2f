"""Executes notebooks with the Python that runs the tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest


def execute(notebook: Any, folder: Path, patch: pytest.MonkeyPatch, **options: Any) -> None:
    """Execute a notebook of nbformat's, which gets the outputs; skip without nbclient.

    Parameters
    ----------
    folder : Path
        An empty folder for the kernel's description.
    **options
        Of `nbclient.NotebookClient`.
    """
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    specification = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "this Python",
        "language": "python",
    }
    kernel = folder / "kernels" / "this"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(specification))
    patch.setenv("JUPYTER_PATH", str(folder))
    nbclient.NotebookClient(notebook, kernel_name="this", **options).execute()
