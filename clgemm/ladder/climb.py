"""One climb of the ladder: all rungs, the libraries beside them, its table and its JSON."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from clgemm.hardware.device import Device
from clgemm.ladder import cuda
from clgemm.ladder.measure import Problem, Result, median_ns
from clgemm.ladder.rung import Rung, Shape
from clgemm.ladder.rungs import RUNGS
from clgemm.terminal import Side, figure, json_number, print_table


@dataclass(frozen=True)
class Peer:
    """The figures of a library's product of float32.

    Attributes
    ----------
    time_ns : int
        The time of a call by the host's clock, as the median of all calls but the first.
    relative_error : float
        As in `clgemm.ladder.Result`.
    """

    name: str
    shape: Shape
    time_ns: int
    relative_error: float

    @property
    def gflops(self) -> float:
        """Billions of operations per second."""
        return self.shape.flops / self.time_ns


def peers(device: Device, problem: Problem, repeat: int | None = None) -> Iterator[Peer]:
    """Yield the figures of `clgemm.sgemm`, cuBLAS if CuPy is installed, and NumPy, for float32."""

    def timed(name: str, product: Callable[[], Any], fetch: Callable[[Any], Any]) -> Peer:
        def once() -> int:
            begin = time.perf_counter_ns()
            product()
            return time.perf_counter_ns() - begin

        time_ns = median_ns(once, repeat)
        return Peer(name, problem.shape, time_ns, problem.relative_error(fetch(product())))

    from clgemm import sgemm

    a, b = (cl_array.to_device(device.queue, matrix) for matrix in (problem.a, problem.b))

    def ours() -> Any:
        c = sgemm(1.0, a, b, queue=device.queue)
        device.queue.finish()
        return c

    yield timed("clgemm.sgemm", ours, lambda c: c.get())
    if not cuda.why_not():
        cupy = importlib.import_module("cupy")
        x, y = cupy.asarray(problem.a), cupy.asarray(problem.b)

        def cublas() -> Any:
            c = x @ y
            cupy.cuda.Device().synchronize()
            return c

        yield timed("cuBLAS", cublas, cupy.asnumpy)
    yield timed("NumPy on the host", lambda: problem.a @ problem.b, np.asarray)


HEADINGS = ("#", "rung", "GFLOP/s", "step", "of cuBLAS", "Kepler", "support", "error")
JUSTIFY: list[Side] = ["right", "left", "right", "right", "right", "right", "right", "right"]


@dataclass(frozen=True)
class Climb:
    """The figures of the rungs, for one size on one device.

    Attributes
    ----------
    results : list of Result
        OpenCL's in the order of the rungs, then CUDA's.
    refusals : dict of (int, str) to str
        The reason why a rung did not run, by its number and toolchain.
    absent : dict of (int, str) to str
        What the device lacks for a rung that no parameters let run there, likewise.
    driver, date : str
        The version of the device's driver, and the day of the run as YYYY-MM-DD.
    """

    device: str
    n: int
    results: list[Result]
    refusals: dict[tuple[int, str], str]
    peers: list[Peer]
    driver: str = ""
    date: str = ""
    absent: dict[tuple[int, str], str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all rungs that can run on the device ran and are right, and there are any."""
        right = all(result.correct for result in self.results)
        return bool(self.results) and right and not self.refusals

    def find(self, number: int, toolchain: str) -> Result | None:
        """Return a rung's result, or None if it did not run."""
        found = (x for x in self.results if (x.rung.number, x.toolchain) == (number, toolchain))
        return next(found, None)


def _rows(climb: Climb, toolchain: str) -> Iterator[tuple[str, ...]]:
    cublas = next((peer.gflops for peer in climb.peers if peer.name == "cuBLAS"), 0.0)
    for rung in RUNGS:
        result = climb.find(rung.number, toolchain)
        head = str(rung.number), rung.label()
        kepler = f"{rung.kepler_gflops:,}" if rung.kepler_gflops else ""
        if result is None:
            if (rung.number, toolchain) in climb.refusals:
                yield *head, "refused", "", "", kepler, "", ""
            elif (rung.number, toolchain) in climb.absent:
                yield *head, "cannot run", "", "", kepler, "", ""
            continue
        before = climb.find(rung.before(), toolchain)
        if before and before.rung.dtype != rung.dtype:
            before = None
        yield (
            *head,
            figure(result.gflops) if result.correct else "WRONG",
            f"x{result.gflops / before.gflops:.2f}" if before else "",
            f"{result.gflops / cublas:.2f}" if cublas and rung.dtype == Rung.dtype else "",
            kepler,
            f"{result.support_share:.1%}" if result.support_share else "",
            f"{result.relative_error:.1e}",
        )


def _notes(climb: Climb, toolchain: str) -> Iterator[str]:
    for result in climb.results:
        if result.toolchain == toolchain and result.note:
            yield f"rung {result.rung.number}: {result.note}"
    for (_, refused), reason in climb.refusals.items():
        if refused == toolchain:
            yield f"refused: {reason}"
    for (number, where), reason in climb.absent.items():
        if where == toolchain:
            yield f"rung {number}: cannot run here: {reason}"


def print_climb(climb: Climb) -> None:
    """Print a table of the rungs for each toolchain, and a table of the peers."""
    for toolchain in ("OpenCL", "CUDA"):
        if rows := list(_rows(climb, toolchain)):
            title = f"{toolchain} on {climb.device}, n = {climb.n}, by the device's clock"
            print_table(title, HEADINGS, JUSTIFY, rows)
            print(*(f"  {note}" for note in _notes(climb, toolchain)), sep="\n", end="\n\n")
    if climb.peers:
        print_table(
            "Other libraries, float32, time of a call by the host's clock",
            ("", "GFLOP/s", "error"),
            ("left", "right", "right"),
            [(p.name, figure(p.gflops), f"{p.relative_error:.1e}") for p in climb.peers],
        )


def as_dict(climb: Climb) -> dict[str, Any]:
    """Return a climb as JSON has it."""
    return {
        "device": climb.device,
        "driver": climb.driver,
        "date": climb.date,
        "n": climb.n,
        "rungs": [_result_as_dict(result) for result in climb.results],
        **{
            key: [
                {"rung": rung, "toolchain": toolchain, "reason": reason}
                for (rung, toolchain), reason in reasons.items()
            ]
            for key, reasons in (("refused", climb.refusals), ("absent", climb.absent))
        },
        "peers": [
            {
                "name": p.name,
                "gflops": p.gflops,
                "time_ns": p.time_ns,
                "error": json_number(p.relative_error),
            }
            for p in climb.peers
        ],
    }


def _result_as_dict(result: Result) -> dict[str, Any]:
    rung: Rung = result.rung
    return {
        "rung": rung.number,
        "title": rung.title,
        "dtype": rung.dtype.name,
        "toolchain": result.toolchain,
        "parameters": asdict(rung),
        "gflops": result.gflops,
        "time_ns": result.time_ns,
        "error": json_number(result.relative_error),
        "error_bound": result.error_bound,
        "correct": result.correct,
        "support_share": result.support_share,
        "kepler_gflops": rung.kepler_gflops or None,
        "note": result.note,
    }
