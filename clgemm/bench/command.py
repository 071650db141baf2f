"""The command ``python -m clgemm bench``: its arguments, the run and the output."""

from __future__ import annotations

import argparse
import datetime
import math
import platform
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clgemm.bench import other_products, programs, survey
from clgemm.bench.cases import Case, default_cases, parse_shapes, quick_cases
from clgemm.bench.contenders import PEERS, against, is_ours
from clgemm.bench.report import Report, as_json, draw, print_report
from clgemm.bench.rounds import Settings, Tournament, environment, worker_of
from clgemm.bench.survey import SurveyReport
from clgemm.core.child import Child, ChildDiedError, RequestError
from clgemm.core.host import usable_processors
from clgemm.core.settings import chosen_precision
from clgemm.hardware.choice import find_devices, get_devices
from clgemm.hardware.device import Device, identity
from clgemm.terminal import (
    duration,
    minutes,
    positive,
    progress,
    require_picture,
    require_writable,
    say,
    written,
)

INTERRUPTED = 130  # the shell's exit code after Ctrl-C
QUICK = Settings(rounds=3, turn_s=0.03, budget_s=3.0)
# Options that run something else, of which only `picture` has a picture.
APART = ("startup", "dtypes", "syrk", "whole_programs", "survey", "plot")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--shapes",
        metavar="LIST",
        help="only these shapes: N for squares, MxNxK, or BxMxNxK for batches, as in "
        "1024,1000x777x3000",
    )
    parser.add_argument(
        "--device", metavar="D", help='number, kind or part of a name; "all", or several by commas'
    )
    parser.add_argument(
        "--peers", metavar="LIST", help=f"only these peers, of {', '.join(PEERS)}; or 'none'"
    )
    parser.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="threads of the host's BLAS, and of a CPU device if its runtime allows it (default: "
        "the compute units of a CPU device; with a GPU, the host's processors)",
    )
    parser.add_argument(
        "--rounds", type=positive, metavar="N", help="turns of each contender in each case"
    )
    parser.add_argument(
        "--budget",
        type=duration("seconds"),
        metavar="S",
        help="seconds that each contender may take for a case; a case that needs more is skipped",
    )
    survey.add_arguments(parser)
    programs.add_arguments(parser)
    other_products.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases and rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw roofline and ratios")


def main(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Returns
    -------
    int
        0 if all of clgemm's products are right and the files are written, 1 if not, 2 if the
        arguments are wrong, 130 after Ctrl-C. All child processes have ended.
    """
    given = [option for option in APART if getattr(args, option) not in (None, False)]
    if len(given) > 1:
        one, other = (f"--{option.replace('_', '-')}" for option in given[:2])
        print(f"{one} and {other} exclude each other", file=sys.stderr)
        return 2
    try:
        devices = find_devices(args.device) if args.device else get_devices()
        peers = _peers(args.peers)
        cases = _cases(args, peers)
        chosen_precision(args.precision)  # or an error that names the variable
        require_writable("--json", args.json)
        require_picture("--plot", args.plot, extra="bench")
    except (ValueError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    try:
        if args.startup:
            return programs.startup(args, devices)
        if args.dtypes is not None:
            return other_products.dtypes(args, devices[0])
        if args.syrk is not None:
            return other_products.syrk(args, devices[0])
        if args.whole_programs is not None:
            return programs.whole_programs(args)
        report = _run(devices, cases, peers, args)
        if args.quick and not args.survey:
            report.dtypes.append(other_products.timed(devices[0], np.dtype(np.int32), 500))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (RequestError, ChildDiedError) as error:
        print(error, file=sys.stderr)
        return 1
    if isinstance(report, SurveyReport):
        survey.print_survey(report)
    else:
        print_report(report)
    saved = written(args.json, as_json(report))
    saved &= written(args.plot, lambda file: draw(report, file))
    return 0 if report.ok and saved else 1


def _cases(args: argparse.Namespace, peers: list[str]) -> list[Case]:
    if args.survey:
        return survey.cases(args, peers)
    if args.minutes is not None:
        raise ValueError("--minutes is for a survey: --survey N")
    if args.shapes is not None:
        return parse_shapes(args.shapes)
    return quick_cases() if args.quick else default_cases()


def _peers(text: str | None) -> list[str]:
    """Return the peers that an argument names, in upper or lower case, in the order of PEERS."""
    if text is None:
        return list(PEERS)
    wanted = {name.strip().lower() for name in text.split(",")}
    if wanted == {"none"}:
        return []
    if unknown := wanted - {peer.lower() for peer in PEERS}:
        raise ValueError(f"unknown peers {sorted(unknown)}; the peers are {', '.join(PEERS)}")
    return [peer for peer in PEERS if peer.lower() in wanted]


def _settings(args: argparse.Namespace) -> Settings:
    chosen = survey.SETTINGS if args.survey else QUICK if args.quick else Settings()
    return replace(
        chosen, rounds=args.rounds or chosen.rounds, budget_s=args.budget or chosen.budget_s
    )


def _run(
    devices: tuple[Device, ...], cases: list[Case], peers: list[str], args: argparse.Namespace
) -> Report:
    device = devices[0]
    longest = 60 + len(cases) * (len(peers) + 1) * _settings(args).budget_s
    if args.minutes is not None:
        longest = min(longest, 60 * (1 + args.minutes))
    say(f"{device.label}, {len(cases)} products: at most {minutes(longest)}")
    # Of the host's BLAS, and of a CPU device.
    units = device.limits.compute_units if device.kind == "CPU" else usable_processors()
    threads, identified = args.threads or units, identity(device)
    every = [word for each in devices for word in identity(each)]
    variables = environment(threads)
    if args.precision:
        variables["CLGEMM_PRECISION"] = args.precision
    routed = survey.routed(peers) if args.survey else []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # NumPy's worker computes the references, so it runs even if NumPy is not a peer.
        workers = {
            name: stack.enter_context(
                worker_of(name, every if is_ours(name) else identified, variables)
            )
            for name in dict.fromkeys(["clgemm", "NumPy", *peers, *routed])
        }
        step = stack.enter_context(progress(len(cases) + 2))
        step("versions of the contenders")
        abouts, absent = _abouts({name: workers[name] for name in workers if name not in routed})
        machine = _machine(device, threads, abouts, absent, args)
        report = survey.new_report(machine, args) if args.survey else Report(machine)
        report.notes += [f"{name} is not among the peers: {why}" for name, why in absent.items()]
        if len(devices) > 1:
            names = "; ".join(each.label for each in devices)
            report.notes.append(f"clgemm spreads large products of host arrays over {names}")
        if device.kind == "CPU" and abouts["clgemm"]["compute_units"] != threads:
            report.notes.append(
                f"the device reports {abouts['clgemm']['compute_units']} compute units; the "
                f"host's BLAS has {threads} threads"
            )
        if not isinstance(report, SurveyReport):
            step("the device's peak and memory bandwidth")
            try:
                report.roofs = workers["clgemm"].ask("roofs")
            except (RequestError, ChildDiedError) as error:
                report.roofs = {"failures": [f"the device's peak was not measured: {error}"]}
            report.notes += report.roofs["failures"]
        present = [peer for peer in peers if peer in abouts]
        contenders = survey.contenders(present) if args.survey else against(present)
        tournament = Tournament(workers, contenders, _settings(args), folder)
        end = time.monotonic() + (math.inf if args.minutes is None else 60 * args.minutes)
        for case in cases:
            if report.results and time.monotonic() >= end:
                break
            step(f"{case.group} {case.label}")
            report.results.append((case, tournament.contest(case)))
        if len(report.results) < len(cases):
            report.notes.append(
                f"{len(report.results)} of {len(cases)} products were measured in "
                f"{args.minutes:g} minutes"
            )
        return report


def _abouts(workers: dict[str, Child]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the description of each worker, and for others the reason why they cannot compete.

    Raises
    ------
    RequestError, ChildDiedError
        If clgemm cannot compete or NumPy cannot compute references.
    """
    abouts: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for name, worker in workers.items():
        try:
            abouts[name] = worker.ask("about")
        except (RequestError, ChildDiedError) as error:  # noqa: PERF203 - a request takes longer
            if name in ("clgemm", "NumPy"):
                raise
            worker.close_process()
            absent[name] = str(error)
    return abouts, absent


def _machine(
    device: Device,
    threads: int,
    abouts: dict[str, dict[str, Any]],
    absent: dict[str, str],
    args: argparse.Namespace,
) -> dict[str, Any]:
    numpy = abouts["NumPy"]
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "clgemm": abouts["clgemm"]["version"],
        "device": {
            "name": device.name,
            "kind": device.kind,
            "platform": device.platform,
            "driver": str(device.cl_device.driver_version),
            "compute_units": abouts["clgemm"]["compute_units"],
            "vector_width": device.limits.vector_width,
            "shares_host_memory": device.shares_host_memory,
        },
        "threads": threads,
        "precision": chosen_precision(args.precision),
        "numpy": {"version": numpy["version"], **numpy},
        "peers": {name: _version(about) for name, about in abouts.items() if name != "clgemm"},
        "absent": absent,
        "settings": vars(_settings(args)),
    }


def _version(about: dict[str, Any]) -> str:
    """Return a peer's version, with the name, the version and the kernels of NumPy's BLAS."""
    if "blas" not in about:
        return str(about["version"])
    blas = ", ".join(filter(None, (about["blas"].strip(), about.get("kernels", ""))))
    return f"{about['version']} ({blas})"
