"""The command ``python -m clgemm bench --timeline``: where the time of one product goes."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clgemm.bench.cases import Case, parse_shapes
from clgemm.bench.operands import operands
from clgemm.bench.recording import (
    Recorder,
    RecordingCall,
    RecordingStaging,
    RecordingWorkspace,
    clock_offset_ns,
    profiling_queue,
)
from clgemm.bench.spans import Timeline, contributors, median
from clgemm.bench.transfer_settings import changed, forced, parsed
from clgemm.core.precision import chosen_precision
from clgemm.core.transfer_config import TransferConfig
from clgemm.hardware.device import Device
from clgemm.output import written
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.operands import HostArray
from clgemm.runtime.transfer.pipeline import TiledProduct, multiply_through
from clgemm.runtime.transfer.staging import Staging
from clgemm.terminal import print_table

__all__ = ["Recording", "config_of", "main", "record"]

ROUNDS = 5
SAMPLE_ROWS = 4
SAMPLE_COLUMNS = 512  # of B at a time, so that its float64 copy stays small
ROUNDOFF = 2.0**-24
SHOWN = 6  # contributors to the critical path


class Recording(NamedTuple):
    """What was recorded of a product.

    Attributes
    ----------
    timeline : Timeline
        Of the median round.
    plain_s : float
        Seconds of the same product without a recorder, the median of as many rounds.
    error : float
        The worst error of some elements over the bound of rounding errors.
    """

    case: Case
    config: TransferConfig
    out_new: bool
    timeline: Timeline
    plain_s: float
    error: float


def config_of(device: Device, through: str | None) -> TransferConfig:
    """Return how host arrays reach a device.

    Parameters
    ----------
    through : str or None
        Settings as text; with any, also empty, devices that share the host's memory take copies.

    Raises
    ------
    ValueError
        If the device needs no transfers and `through` is None, or a setting is wrong.
    """
    config = transfer_config(device)
    if config is None:
        if through is None:
            raise ValueError(
                f"{device.name} uses host arrays where they lie: --through makes it take copies"
            )
        threads = min(os.cpu_count() or 1, 8)
        config = forced(threads, device.cl_device.global_mem_size // 2)
    return changed(config, parsed(through or ""))


def record(
    device: Device, config: TransferConfig, case: Case, out_new: bool, rounds: int = ROUNDS
) -> Recording:
    """Multiply host arrays through transfers, without and with a recorder.

    Parameters
    ----------
    out_new : bool
        Whether each product makes an array for its result; otherwise all write to one.
    """
    config = replace(config, at_once_bytes=0)  # there is nothing to see in such a call
    a, b = operands(case)
    shape = (case.batch, case.m, case.n)[case.batch == 1 :]
    kept = np.zeros(shape, np.float32)
    precision = chosen_precision()
    staging = Staging(device, config)
    product = TiledProduct(1.0, 0.0, precision, device, staging.space)
    multiply_through(staging, product, a, b, kept)  # builds, pins, proves
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        multiply_through(staging, product, a, b, np.empty_like(kept) if out_new else kept)
        times.append(time.perf_counter() - begin)
    del staging

    recorder = Recorder()
    recording = RecordingStaging(device, config, recorder)
    recorded = RecordingWorkspace(profiling_queue(device), recorder)
    product = TiledProduct(1.0, 0.0, precision, device, recorded)
    result = kept
    timelines = []
    for number in range(rounds + 1):
        recorder.begin()
        if out_new:
            del result
            with recorder.span("allocate the result"):
                result = np.empty(shape, np.float32)
        recorder.writes(result)
        with recorder.span("other"):
            multiply_through(recording, product, a, b, result, RecordingCall)
        timeline = recorder.end(case.flops, functools.partial(clock_offset_ns, recording.up))
        if number:  # the first one builds
            timelines.append(timeline)
    return Recording(
        case, config, out_new, median(timelines), sorted(times)[rounds // 2], _error(a, b, result)
    )


def _error(a: HostArray, b: HostArray, c: HostArray) -> float:
    """Return the worst error of some rows over the bound of rounding errors, as `judge` does."""
    if c.ndim > 2:
        a, c = a[-1], c[-1]
        b = b[-1] if b.ndim > 2 else b
    chosen = np.unique(np.linspace(0, len(a) - 1, SAMPLE_ROWS).astype(int))
    rows = a[chosen].astype(np.float64)
    gamma = a.shape[1] * ROUNDOFF / (1 - a.shape[1] * ROUNDOFF)
    worst = 0.0
    for start in range(0, b.shape[1], SAMPLE_COLUMNS):
        part = b[:, start : start + SAMPLE_COLUMNS].astype(np.float64)
        expected = np.einsum("ik,kj->ij", rows, part)
        norms = np.linalg.norm(rows, axis=1)[:, None] * np.linalg.norm(part, axis=0)
        difference = np.abs(c[chosen, start : start + SAMPLE_COLUMNS] - expected)
        worst = float(np.maximum(worst, (difference / (gamma * norms)).max()))
    return worst


def print_recording(found: Recording, device: Device) -> None:
    """Print the table of lanes, the critical path and the limit."""
    line = found.timeline

    def ms(time_ns: int) -> str:
        return f"{time_ns / 1e6:.3f}"

    rows = [
        [
            row.lane,
            row.what,
            str(row.number),
            ms(row.busy_ns),
            f"{row.busy_ns / line.time_ns:.0%}",
            f"{row.size_bytes / 1e6:,.1f}" if row.size_bytes else "",
            f"{row.gbps:.1f}" if row.size_bytes else "",
            str(row.faults or ""),
        ]
        for row in line.rows()
    ]
    target = "a new array" if found.out_new else "an array that is there"
    print_table(
        f"{found.case.label} into {target}, {device.label}",
        ["lane", "what", "number", "busy ms", "of call", "MB", "GB/s", "page faults"],
        ["left", "left", "right", "right", "right", "right", "right", "right"],
        rows,
    )
    path = contributors(line)
    print_table(
        "Critical path: what the end of the call waited for",
        ["lane", "what", "ms", "of call"],
        ["left", "left", "right", "right"],
        [[p.lane, p.what, ms(p.time_ns), f"{p.time_ns / line.time_ns:.0%}"] for p in path[:SHOWN]],
    )
    limits = ", ".join(f"{name} {ms(time_ns)} ms" for name, time_ns in line.limits().items())
    print(f"limit: the longest of {limits}")
    print(
        f"call: {ms(line.time_ns)} ms recorded, {1e3 * found.plain_s:.3f} ms without; "
        f"{found.plain_s * 1e9 / max(line.limit_ns, 1):.2f} times the limit"
    )


def as_json(found: Recording, device: Device) -> str:
    """Return everything that was recorded as JSON."""
    return json.dumps(
        {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "device": device.name,
            "platform": device.platform,
            "driver": str(device.cl_device.driver_version),
            "processors": os.cpu_count(),
            "case": found.case.as_dict(),
            "out_new": found.out_new,
            "config": asdict(found.config),
            "plain_s": found.plain_s,
            "error": found.error,
            **found.timeline.as_dict(),
        },
        indent=1,
    )


def main(args: argparse.Namespace, device: Device) -> int:
    """Record a product and show its timeline.

    Returns
    -------
    int
        0 if the product is right and the files are written, 1 if not, 2 if the arguments are wrong.
    """
    try:
        case, *others = parse_shapes(args.timeline)
        if others:
            raise ValueError(f"--timeline takes one shape, not {1 + len(others)}")
        config = config_of(device, args.through)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    found = record(device, config, case, args.out_new, args.rounds or ROUNDS)
    print_recording(found, device)
    if not found.error <= 1:
        print(f"WRONG: an error is {found.error:.3g} times the bound of rounding errors")
    saved = written(args.json, lambda file: file.write_text(as_json(found, device) + "\n", "utf-8"))
    saved &= written(args.plot, _drawer(found, device))
    return 0 if found.error <= 1 and saved else 1


def _drawer(found: Recording, device: Device) -> Callable[[Path], Any]:
    def draw_to(file: Path) -> None:
        from clgemm.bench.timeline_plot import draw  # needs matplotlib

        target = "a new array" if found.out_new else "an array that is there"
        title = f"{found.case.label} into {target}, {device.name}"
        draw(found.timeline, title, str(file))

    return draw_to
