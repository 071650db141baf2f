"""A worker of trials, with the fault that PLANTED_FAULT names.

The records of the file that PLANTED_RECORDS names take the place of those that are shipped. Its
devices are what PLANTED_REPORTS says, if it is set: what a simulated device reports, as JSON.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import planted_trial
import pyopencl as cl
from simulated import replacements

from clgemm.records import tuned
from clgemm.records.tuned import findings_from
from clgemm.runtime import programs
from clgemm.trials import worker

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


def once(*arguments, **keywords):
    """Abort the process the first time only."""
    mark = os.environ["PLANTED_MARK"]
    if not os.path.exists(mark):  # noqa: PTH110
        with open(mark, "w"):  # noqa: PTH123
            pass
        aborts()
    return build(*arguments, **keywords)


def is_terminated(*_arguments, **_keywords):
    """End as if somebody else had ended the process."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def has_no_memory(*_arguments, **_keywords):
    """Fail for want of memory."""
    raise MemoryError("none left")


def aborts_without_memory(*_arguments, **_keywords):
    """Abort the process, as C++ does where no memory is left."""
    print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr)
    print("  what():  std::bad_alloc", file=sys.stderr)
    os.abort()


def fails(text):
    """Return a function that fails with an error of the driver."""

    def failing(*_arguments, **_keywords):
        raise cl.RuntimeError(text)

    return failing


# What drivers say where other processes hold all memory, at a context, a queue, or later.
WANTS = {
    "context": "Context failed: OUT_OF_HOST_MEMORY",
    "queue": "CommandQueue failed: OUT_OF_RESOURCES",
    "buffer": "create_buffer failed: MEM_OBJECT_ALLOCATION_FAILURE",
    "launch": "clEnqueueNDRangeKernel failed: MEM_OBJECT_ALLOCATION_FAILURE",
    "thread": "can't start new thread",
}


def is_slow(*arguments, **keywords):
    """Build like a compiler that takes long."""
    time.sleep(float(os.environ.get("PLANTED_SECONDS", "3")))
    return build(*arguments, **keywords)


# Loops over k, and the same without their last step.
LOOPS = {
    "p < k; p++": "p + 1 < k; p++",
    "p < depth; p++": "p + 1 < depth; p++",
    "depth < stop; depth += TILE_K": "depth + TILE_K < stop; depth += TILE_K",
}


def wrong(kind):
    """Build kernels that leave out the last step of k."""
    source = text_of(kind)
    for loop, shorter in LOOPS.items():
        source = source.replace(loop, shorter)
    return source


def denies(*_arguments):
    """Find that kernels are wrong in host memory."""
    return False


def refuses_to_launch(device, source, *others, **keywords):
    """Build kernels that no launch fits: their work-groups have other sizes."""
    group = "reqd_work_group_size(3, 1, 1)"
    source = re.sub(r"__attribute__\(\(reqd_work_group_size\(.*?, 1\)\)\)", "", source)
    source = source.replace("__kernel ", f"__kernel __attribute__(({group})) ")
    return build(device, source, *others, **keywords)


def leaves_out(device, source, *others, **keywords):
    """Build kernels that leave out the last step of k."""
    for loop, shorter in LOOPS.items():
        source = source.replace(loop, shorter)
    return build(device, source, *others, **keywords)


def in_one_config(fault, text):
    """Return a function that builds with a fault in one config of a kernel, or in all others.

    Parameters
    ----------
    text : str
        The name of the kernel, the macros of a config, and whether that one alone is right, as
        JSON.
    """
    entry, macros, is_spared = json.loads(text)
    macros = [tuple(each) for each in macros]

    def building(device, source, given, *others, **keywords):
        is_it = [each for each in given if each in macros] == macros
        if entry in source and is_it != is_spared:
            return BUILDS[fault](device, source, given, *others, **keywords)
        return build(device, source, given, *others, **keywords)

    return building


build = programs.build
BUILDS = {
    "refuses": refuses,
    "hangs": hangs,
    "aborts": aborts,
    "once": once,
    "terminated": is_terminated,
    "memory": has_no_memory,
    "bad_alloc": aborts_without_memory,
    "registers": fails("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES"),
    "slow": is_slow,
    "launch fails": refuses_to_launch,
    "wrong": leaves_out,
    "host memory": fails(WANTS["context"]),
}


def main(requests, answers, settings):
    """Plant the fault, and serve."""
    fault = os.environ["PLANTED_FAULT"]
    if file := os.environ.get("PLANTED_RECORDS"):
        found = findings_from(Path(file).read_text())
        tuned.shipped = lambda: found
    if text := os.environ.get("PLANTED_REPORTS"):
        for kind, attribute, value in replacements(json.loads(text)):
            setattr(kind, attribute, value)
    if fault == "import":
        raise ImportError("No module named 'planted'")
    if fault == "addresses":
        worker.Server._is_right_in_place = denies
    elif fault == "host memory":
        worker.uses_host_memory = aborts
    elif fault == "result":
        programs.text_of = wrong
    elif fault == "three rows":
        programs.text_of = planted_trial.planted
    elif text := os.environ.get("PLANTED_CONFIG"):
        programs.build = in_one_config(fault, text)
    elif fault == "context":
        cl.Context = fails(WANTS[fault])
    elif fault == "queue":
        cl.CommandQueue = fails(WANTS[fault])
    elif fault in WANTS:
        programs.build = fails(WANTS[fault])
    elif fault == "no device":
        worker.find = fails("this process has no device")
    elif fault != "none":
        programs.build = BUILDS[fault]
    worker.main(requests, answers, settings)
