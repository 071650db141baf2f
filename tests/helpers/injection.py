"""Injection of failures and nested products at every place of a call, with the outcomes.

``python tests/helpers/injection.py [--kinds K ...] [--injections I ...] [--places N] [--opcodes]``
prints a table of the outcomes. `test_interrupts.py` tries some of the places.

A place is an event that `sys.settrace` reports while a call runs Python code of clgemm or of a
package that it calls: a call, a line, a return, or with ``--opcodes`` every instruction. For each
place, a new call raises an exception there or makes another product there. Child processes try the
places, so that a hang or a crash is an outcome too. The outcome includes the next call.
"""

from __future__ import annotations

import argparse
import collections
import dis
import faulthandler
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import clgemm
from clgemm.core import cache
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.choice import devices
from clgemm.runtime import programs, workspace
from clgemm.transfer import staging

SCOPES = tuple(
    os.sep + name + os.sep for name in ("clgemm", "pyopencl", "pytools", "filelock", "concurrent")
)
FAILURES = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "UserWarning": UserWarning,
}
HANG_SECONDS = 30
MOST_BAD = 12  # bad outcomes after which a row of the table ends
REFUSAL = "NestedCallError"
RNG = np.random.default_rng(21)
# Small limits, so that a call has several tiles and a tile several pieces.
TRANSFER = TransferConfig(
    memory_bytes=2**21, threads=2, threaded_bytes=2**16, chunk_bytes=2**16, chunks=4,
    pool_chunks=16, tile_bytes=2**17, rows=128, at_once_bytes=0,
)  # fmt: skip
AT_ONCE = replace(TRANSFER, at_once_bytes=2**18, threaded_bytes=2**30)
IN_PIECES = replace(TRANSFER, at_once_bytes=2**21, at_once_us=10**9, chunks=16, pool_chunks=32)


_made = {}


def whole(*shape):
    """Return one of four arrays of a shape, in turns, of integers whose products are exact."""
    if shape not in _made:
        own = [RNG.integers(-8, 9, shape).astype(np.float32) for _ in range(4)]
        _made[shape] = itertools.cycle(own)
    return next(_made[shape])


class Problem:
    """One call with its operands and its expected result.

    Parameters
    ----------
    call : callable
        Takes the operands and returns the result.
    expected : array
        The right result.
    """

    def __init__(self, call, operands, expected):
        self.call, self.operands, self.expected = call, operands, expected
        self.before = [got(x).copy() for x in operands]

    def run(self):
        """Make the call and return its result."""
        return self.call(*self.operands)

    def wrong(self, result):
        """Return what is wrong with a result or the operands, or ""."""
        if not np.array_equal(got(result), self.expected):
            return "wrong result"
        return self.modified()

    def modified(self):
        """Return what is wrong with the operands after a call, or ""."""
        same = all(
            np.array_equal(got(x), y) for x, y in zip(self.operands, self.before, strict=True)
        )
        return "" if same else "operands modified"


_products = {}


def got(x):
    return x.get() if isinstance(x, cl_array.Array) else x


def host(m, k, n, call=None):
    a, b = whole(m, k), whole(k, n)
    key = id(a), id(b)
    if key not in _products:
        _products[key] = a @ b
    return Problem(call or (lambda a, b: clgemm.sgemm(1.0, a, b)), (a, b), _products[key])


def updated():
    a, b, c = whole(200, 90), whole(90, 170), whole(200, 170)
    given = c.copy()

    def call(a, b):
        return clgemm.sgemm(2.0, a, b, -1.0, given, overwrite_c=1)

    return Problem(call, (a, b), 2 * (a @ b) - c)


def flat():
    a, b = whole(60 * 50), whole(50 * 40)

    def call(a, b):
        return clgemm.sgemm(1.0, a, b, m=60, n=40, k=50, lda=50, ldb=40, ldc=40, order="C")

    return Problem(call, (a, b), (a.reshape(60, 50) @ b.reshape(50, 40)).ravel())


def overlapping():
    a, b = whole(120, 120), whole(120, 120)
    given = a.copy()
    return Problem(lambda b: clgemm.matmul(given, b, out=given), (b,), a @ b)


def strided():
    a, b = whole(180, 320)[:, ::2], whole(160, 140)[::-1]
    out = np.full((180, 280), np.nan, np.float32)[:, ::2]
    return Problem(lambda a, b: clgemm.matmul(a, b, out=out), (a, b), a @ b)


def stacked():
    a, b = whole(5, 60, 70), whole(70, 50)
    return Problem(clgemm.matmul, (a, b), a @ b)


def on_device(m=150, k=160, n=140, call=clgemm.matmul):
    queue = clgemm.get_device().queue
    a, b = whole(m, k), whole(k, n)
    placed = tuple(cl_array.to_device(queue, x) for x in (a, b))
    return Problem(call, placed, a @ b)


def duplicated():
    queue = clgemm.get_device().queue
    a, b = whole(90, 90), whole(90, 90)
    given = cl_array.to_device(queue, a)
    return Problem(
        lambda b: clgemm.matmul(given, b, out=given), (cl_array.to_device(queue, b),), a @ b
    )


def unordered():
    flags = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    device = clgemm.get_device()
    if device not in _unordered:
        _unordered[device] = cl.CommandQueue(device.context, properties=flags)
    queue = _unordered[device]
    a, b = whole(230, 240), whole(240, 250)
    return Problem(clgemm.matmul, tuple(cl_array.to_device(queue, x) for x in (a, b)), a @ b)


_unordered = {}
_through = {}


def through(m=300, k=150, n=200, call=None, config=TRANSFER):
    """Return a product of host arrays that are copied to the device."""
    device = clgemm.get_device()
    if (device, config) not in _through:
        _through[device, config] = clgemm.Device(device.cl_device, transfer=config)
    own = _through[device, config]
    problem = host(m, k, n, call or clgemm.matmul)
    inner = problem.call

    def outer(a, b):
        with clgemm.device(own):
            return inner(a, b)

    problem.call = outer
    return problem


KINDS = {
    "large": lambda: host(300, 310, 320),
    "small": lambda: host(20, 30, 10, clgemm.matmul),
    "by a vector": lambda: host(400, 300, 1, clgemm.dot),
    "few columns": lambda: host(700, 800, 3, clgemm.dot),
    "deep": lambda: host(40, 5000, 48),
    "stack": stacked,
    "strided": strided,
    "updated": updated,
    "flat": flat,
    "overlapping": overlapping,
    "tensordot": lambda: host(100, 120, 110, lambda a, b: clgemm.tensordot(a, b, 1)),
    "device": on_device,
    "device, overlapping": duplicated,
    "device, out of order": unordered,
    "through": through,
    "at once": lambda: through(120, 100, 130, config=AT_ONCE),
    "in pieces": lambda: through(config=IN_PIECES),
}
INNER = {
    "same": None,  # the kind of the outer call
    "sgemm": lambda: host(330, 210, 190),
    "matmul": lambda: host(250, 260, 270, clgemm.matmul),
    "device arrays": lambda: on_device(310, 120, 130),
    "transfers": lambda: through(200, 190, 210),
}
MAY_REFUSE = ("sgemm", "device arrays", "same")


def forget():
    """Clear all caches, so that the next call plans, builds and allocates again."""
    cache.forget_plans()
    workspace.workspace.cache_clear()
    programs._programs.clear()
    staging._all.clear()


_leaving = {}


def _are_none(*instructions):
    return all((i.opname, i.argval) == ("LOAD_CONST", None) for i in instructions)


def leaves_block(frame):
    """Tell whether the end of a with block is next, where no signal's handler runs.

    CPython runs handlers only after calls and backward jumps, so that ``with lock`` is safe.
    """
    code = frame.f_code
    if code not in _leaving:
        every = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "NOP")]
        after = zip(every, every[1:], every[2:], strict=False)
        _leaving[code] = {
            first.offset
            for first, second, third in after
            if first.opname == "POP_BLOCK"
            or (first.opname == "SWAP" and _are_none(second, third))
            or _are_none(first, second, third)
        }
    return frame.f_lasti in _leaving[code]


class Tracer:
    """A trace function that counts the places of a call and acts at one of them."""

    def __init__(self, opcodes, at=-1, act=None):
        self.count, self.place = 0, ""
        self._opcodes, self._at, self._act = opcodes, at, act

    def _local(self, frame, event, _):
        if event != "exception" and not leaves_block(frame):
            if self.count == self._at:
                self.count += 1
                name = Path(frame.f_code.co_filename).name
                self.place = f"{name}:{frame.f_lineno} {frame.f_code.co_name} ({event})"
                self._act()
            else:
                self.count += 1
        return self._local

    def _global(self, frame, event, argument):
        if not any(scope in frame.f_code.co_filename for scope in SCOPES):
            return None
        if self._opcodes:
            frame.f_trace_opcodes = True
        return self._local(frame, event, argument)

    def run(self, call):
        sys.settrace(self._global)
        try:
            return call()
        finally:
            sys.settrace(None)


def in_another_thread(call):
    """Make a call in another thread, to find locks that this thread has left locked."""
    found = []

    def run():
        try:
            found.append(call())
        except BaseException as error:
            found.append(f"the next call raised {error!r}"[:300])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG_SECONDS / 3)
    return found[0] if found else "the next call hangs in another thread"


def after(make):
    """Return what is wrong with later calls of the same and of another kind, or ""."""

    def again():
        for problem in (make(), host(210, 220, 230)):
            try:
                wrong = problem.wrong(problem.run())
            except BaseException as error:
                return f"the next call raised {error!r}"[:300]
            if wrong:
                return f"next call: {wrong}"
        return ""

    return again() or in_another_thread(again)


def try_place(make, injection, number, opcodes, cold):
    """Try one place, and return its outcome and its name; a bad outcome begins with "!"."""
    problem = make()
    refused, bad = [], []

    def fail():
        raise FAILURES[injection]("injected")

    def nest():
        sys.settrace(None)  # for the inner product only; the outer call's frames stay traced
        inner = (INNER[injection] or make)()
        try:
            wrong = inner.wrong(inner.run())
            if wrong:
                bad.append(f"inner: {wrong}")
        except BaseException as error:
            if type(error).__name__ == REFUSAL and injection in MAY_REFUSE:
                refused.append(error)
            else:
                bad.append(f"inner raised {error!r}"[:300])

    if cold:
        forget()
    tracer = Tracer(opcodes, number, fail if injection in FAILURES else nest)
    try:
        result = tracer.run(problem.run)
    except BaseException as error:
        if injection in FAILURES and isinstance(error, FAILURES[injection]):
            outcome = "raised"
        else:
            outcome = f"! raised {error!r}"[:300]
        del error
        if wrong := problem.modified():
            outcome = f"! {wrong}"
    else:
        outcome = "right"
        if wrong := problem.wrong(result):
            outcome = f"! {wrong}"
    if refused:
        outcome += ", inner refused" if not outcome.startswith("!") else ""
    if bad:
        outcome = f"! {bad[0]}"
    if not outcome.startswith("!") and (later := after(make)):
        outcome = f"! {later}"
    return outcome, tracer.place


def warm(make, injection):
    for each in (make, INNER.get(injection) or make, lambda: host(210, 220, 230)):
        for _ in range(2):
            problem = each()
            problem.run()


def child(kind, cold, injection, first, most, opcodes, progress):
    """Try the places from `first` on: about `most` of them at even distances, or all."""
    os.environ["CLGEMM_THRESHOLD"] = "0"
    faulthandler.enable()
    gc.disable()
    clgemm.set_device(devices()[0])
    make = KINDS[kind]
    warm(make, injection)
    problem = make()
    if cold:
        forget()
    tracer = Tracer(opcodes)
    tracer.run(problem.run)
    count = tracer.count
    step = max(1, -(-count // most)) if most else 1
    print(json.dumps({"count": len(range(0, count, step)), "every": step}), flush=True)
    for number in range(first, count, step):
        Path(progress).write_text(str(number))
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        outcome, place = try_place(make, injection, number, opcodes, cold)
        if not place:
            break  # this call has fewer places
        print(json.dumps({"outcome": outcome, "number": number, "place": place}), flush=True)
        if outcome.startswith("!"):
            os._exit(3)  # a broken state would spoil the next place too
    print(json.dumps({"step": step}), flush=True)
    faulthandler.cancel_dump_traceback_later()


def outcomes(kind, cold, injection, most=0, opcodes=False):
    """Try the places of a kind of call in child processes.

    Returns
    -------
    count : int
        The number of places that are tried.
    found : list of (outcome, number, place)
    """
    first, found, count = 0, [], 0
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "progress"
        while True:
            arguments = [kind, cold, injection, first, most, opcodes, str(progress)]
            done = subprocess.run(
                [sys.executable, __file__, "--child", json.dumps(arguments)],
                capture_output=True, text=True, check=False,
                env=os.environ
                | {"OPENBLAS_NUM_THREADS": "1"}
                | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
            # Runtimes print lines of their own.
            lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith('{"')]
            found += [(x["outcome"], x["number"], x["place"]) for x in lines if "outcome" in x]
            count = next((x["count"] for x in lines if "count" in x), count)
            if (lines and "step" in lines[-1]) or not progress.exists():
                if not lines:
                    raise RuntimeError(done.stderr[-3000:])
                return count, found
            number = int(progress.read_text())
            first = number + next((x["every"] for x in lines if "every" in x), 1)
            if sum(outcome.startswith("!") for outcome, _, _ in found) >= MOST_BAD:
                return count, found
            if done.returncode == 3:
                continue
            how = "hangs" if "Timeout" in done.stderr else f"aborts ({done.returncode})"
            found.append((f"! {how}: {done.stderr.strip()[-1500:]}", number, "?"))
            progress.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--injections", nargs="*", default=[*FAILURES, *INNER])
    parser.add_argument("--cold", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--places", type=int, default=0)
    parser.add_argument("--opcodes", action="store_true")
    parser.add_argument("--show", help="print every place with this outcome")
    options = parser.parse_args()
    if options.child:
        child(*json.loads(options.child))
        return
    total, wrong = 0, 0
    print(f"{clgemm.get_device()}")
    for kind in options.kinds:
        for cold in options.cold:
            for injection in options.injections:
                count, found = outcomes(kind, cold, injection, options.places, options.opcodes)
                tally = collections.Counter(
                    "BAD" if outcome.startswith("!") else outcome for outcome, _, _ in found
                )
                total += len(found)
                wrong += tally["BAD"]
                words = ", ".join(f"{n} {outcome}" for outcome, n in sorted(tally.items()))
                when = "first" if cold else "repeated"
                print(f"{kind} | {when} | {injection} | {count} places | {words}", flush=True)
                shown = collections.Counter()
                for outcome, number, place in found:
                    if outcome == options.show:
                        print(f"    {number} {place}: {outcome}", flush=True)
                    if outcome.startswith("!"):
                        shown[outcome[:60]] += 1
                        if shown[outcome[:60]] <= 3:
                            print(f"    {number} {place}: {outcome}", flush=True)
    print(f"{total} places, {wrong} bad", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
