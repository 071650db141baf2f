"""Child processes that run a module of this folder instead of clgemm's own trial."""

from __future__ import annotations

import os
from pathlib import Path

from clgemm.core import child


def child_of(module):
    """Return a function that starts children which run another module of this folder."""

    def made(identified, *name):
        started = child.trial_child(identified, *name)
        started.command[2] = module
        paths = [str(Path(__file__).parent), started.variables["PYTHONPATH"]]
        started.variables = started.variables | {"PYTHONPATH": os.pathsep.join(paths)}
        return started

    return made
