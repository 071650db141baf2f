"""A child process that checks a device, with the fault that PLANTED_FAULT names."""

from __future__ import annotations

import os
import sys
import time

import pyopencl as cl

from clgemm.core.child import serve
from clgemm.runtime import programs
from clgemm.tuning.trial import Server

text_of = programs.text_of
# What PyPI's PoCL 3.0 says on a processor that its LLVM does not know.
POCL_LOG = """clBuildProgram failed: BUILD_PROGRAM_FAILURE - clBuildProgram failed:
error: unknown target CPU 'generic'
1 error generated.
Device pthread failed to build the program, log: (options: -cl-std=CL1.2 -DWORK_M=4)
"""


def refuses(*_arguments, **_keywords):
    """Fail like a compiler that does not know the processor."""
    raise cl.RuntimeError(POCL_LOG)


def hangs(*_arguments, **_keywords):
    """Hang like a compiler that does not end."""
    time.sleep(600)


def aborts(*_arguments, **_keywords):
    """Abort the process, as some compilers do."""
    print("LLVM ERROR: Cannot select", file=sys.stderr)
    os.abort()


def wrong(kind):
    """Build kernels that leave out the last step of k."""
    loop = "for (int p = 0; p < k; p++) {"
    return text_of(kind).replace(loop, loop.replace("p < k", "p < k - 1"))


def denies(*_arguments):
    """Find that kernels are wrong with addresses."""
    return False


if __name__ == "__main__":  # in the child only
    fault = os.environ["PLANTED_FAULT"]
    if fault.startswith("addresses"):
        Server.addresses = {"addresses wrong": denies, "addresses abort": aborts}[fault]
    elif fault == "wrong":
        programs.text_of = wrong
    else:
        programs.build = {"refuses": refuses, "hangs": hangs, "aborts": aborts}[fault]
    serve(Server(sys.argv[1:]))
