"""`clgemm.tune` and the command ``python -m clgemm tune``."""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyopencl as cl

from clgemm.core.cache import folder_problem, forget_plans
from clgemm.core.child import trial_child
from clgemm.core.problem import Shape
from clgemm.hardware.choice import find_devices, get_devices
from clgemm.hardware.device import Device, identify, identity
from clgemm.kernels import OTHER_DTYPES
from clgemm.records import tuned, verdicts
from clgemm.records.tuned import Record, as_json
from clgemm.runtime import exact
from clgemm.terminal import duration, figure, meter, print_table, require_picture, written
from clgemm.trials.calibration import fitted, timed_plans
from clgemm.tuning.session import Session, tasks_for
from clgemm.tuning.trials import Trials, draw

INTERRUPTED = 130  # the shell's exit code for a press of Ctrl-C
MINUTES, FLOAT32 = 10.0, "float32"
# The time for measuring what launches cost: at most so many seconds, and this share of the total.
COSTS_SECONDS, COSTS_SHARE = 60.0, 0.15

log = logging.getLogger(__name__)


def tune(
    device: str | int | Device | cl.Device | cl.Context | cl.CommandQueue | None = None,
    *,
    shapes: Iterable[Sequence[int]] | None = None,
    minutes: float = MINUTES,
    dtypes: Sequence[Any] = (FLOAT32,),
) -> list[Record]:
    """Find the fastest configs for a device, validate them, and store them for this user.

    A child process builds, checks and times candidates. Those that crash, hang or give wrong
    results are rejected. Each record is stored as soon as it is found, and used from then on. If
    all classes are tuned, the constants of the expected times are measured at the end, by which the
    planner chooses between kernels.

    Parameters
    ----------
    device : optional
        As for `clgemm.set_device`; the chosen device, or devices, if left out. Several share the
        time; of equal ones, one is tuned.
    shapes : iterable of (m, n, k) or (matrices, m, n, k), optional
        The products that matter. Each tunes the shape class that it belongs to. If left out, all
        classes are tuned, on typical shapes.
    minutes : float, optional
        The time limit. A trial that runs at the end may exceed it. Classes for which there was no
        time keep their records; a warning in the log names them.
    dtypes : sequence of str or dtype, optional
        The dtypes of the products' results, by NumPy's names, which share the time. The kernels for
        unsigned integers are those for signed ones. If left out, float32.

    Returns
    -------
    list of Record

    Raises
    ------
    ValueError, RuntimeError, TypeError
        If `device` names no device, an item of `shapes` is not a shape, one of `dtypes` is unknown
        or not for the device, or `minutes` is not above 0.
    KeyboardInterrupt
        On Ctrl-C, after the records found so far have been stored.
    """
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes={minutes!r} is not a number above 0")
    distinct = _distinct(get_devices() if device is None else find_devices(device))
    if len(distinct) > 1:
        share = minutes / len(distinct)
        each = [tune(d, shapes=shapes, minutes=share, dtypes=dtypes) for d in distinct]
        return [record for found in each for record in found]
    (chosen,) = distinct
    wanted = None if shapes is None else [_shape(sizes) for sizes in shapes]
    named = _dtypes(dtypes, chosen)
    with trial_child(identity(chosen)) as child:
        session = Session(chosen, child, 60 * minutes)
        if note := _run(session, wanted, named):
            log.warning("%s", note)
    return session.found


def _distinct(devices: Sequence[Device]) -> list[Device]:
    """Return one device of each kind: records of one serve all that are equal."""
    return list({identify(device): device for device in reversed(devices)}.values())[::-1]


def _dtypes(wanted: Sequence[Any], device: Device) -> list[str]:
    """Return dtypes by the names of those that they share kernels with."""
    found = [str(each if isinstance(each, str) else np.dtype(each)) for each in wanted]
    names = [name[name.startswith("uint") :] for name in found]
    for name in names:
        if name != FLOAT32 and name not in OTHER_DTYPES:
            known = ", ".join((FLOAT32, *OTHER_DTYPES))
            raise ValueError(f"{name!r} is not one of the dtypes {known}")
        if name != FLOAT32 and not exact.computes(device, OTHER_DTYPES[name].types):
            raise ValueError(f"{device.label} does not multiply {name}")
    return list(dict.fromkeys(names))


def _run(session: Session, shapes: Sequence[Shape] | None, dtypes: Sequence[str]) -> str:
    """Search, and measure what launches cost; return a note on what there was no time for.

    What launches cost is measured if all of float32 is tuned, in a part of the session's time.
    """
    device, minutes, seconds = session.device, session.seconds / 60, 0.0
    if shapes is None and FLOAT32 in dtypes and device.traits.has_cost_model:
        seconds = min(COSTS_SECONDS, COSTS_SHARE * session.seconds)
        session.seconds -= seconds
    tasks = tasks_for(device, shapes, dtypes)
    try:
        session.run(tasks)
        if seconds:
            session.say("measuring what launches cost")
            timed = timed_plans(device, seconds)
            if (found := fitted(timed, device.limits)) is not None:
                verdicts.keep_costs(device.name, device.runtime, found, len(timed))
    finally:
        forget_plans()  # products of this process use the new records
    names = [f"{task.family} {task.shape_class}" for task in session.left_out]
    if not names:
        return ""
    enough = math.ceil(minutes * len(tasks) / max(1, len(tasks) - len(names)))
    return (
        f"{minutes:g} minutes were too short for {len(names)} of {len(tasks)} classes, which keep "
        f"their records: {', '.join(names)}; about {enough} minutes are enough for all"
    )


def _shape(sizes: Sequence[int]) -> Shape:
    sizes = [int(size) for size in sizes]
    if len(sizes) not in (3, 4) or min(sizes) < 1:
        raise ValueError(f"{sizes} is not a shape: m, n, k, or matrices, m, n, k, each at least 1")
    return Shape(*sizes[-3:], *(sizes[:-3]))


def _shapes(text: str) -> list[Shape]:
    """Return the shapes of an argument like ``1024,1000x777x3000,100x64x64x64``."""
    try:
        every = [[int(size) for size in item.split("x")] for item in text.split(",")]
        return [_shape(sizes * 3 if len(sizes) == 1 else sizes) for sizes in every]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of shapes: N, MxNxK or BxMxNxK, such as 1024,1000x777x3000"
        ) from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--device", metavar="D", help='number, kind or part of a name; "all", or several by commas'
    )
    parser.add_argument(
        "--shapes",
        type=_shapes,
        metavar="LIST",
        help="the products that matter: N for squares, MxNxK, or BxMxNxK for batches (default: "
        "some of every class)",
    )
    parser.add_argument(
        "--dtypes",
        type=lambda text: text.split(","),
        default=[FLOAT32],
        metavar="LIST",
        help=f"of the results, such as int32,float16: {', '.join(OTHER_DTYPES)} (default: float32)",
    )
    parser.add_argument(
        "--budget",
        type=duration("minutes"),
        default=MINUTES,
        metavar="MINUTES",
        help="default: %(default)g",
    )
    parser.add_argument(
        "--afresh",
        action="store_true",
        help="start from the plainest config, without earlier trials, records and defaults",
    )
    parser.add_argument(
        "--show",
        nargs="?",
        type=Path,
        const=False,
        metavar="FILE",
        help="draw the search so far, in the cache folder if no file is named, instead of tuning",
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="FILE",
        help="write this device's records to a file for others, instead of tuning",
    )
    parser.add_argument(
        "--import",
        type=Path,
        metavar="FILE",
        dest="records",
        help="use such a file: of this device or a similar one; what was found here stays",
    )


def main(args: argparse.Namespace) -> int:
    """Tune, draw what tuning did, or exchange records with others.

    Returns
    -------
    int
        0; 1 if records could not be stored, which are then printed; 2 if the arguments are wrong;
        130 if interrupted.
    """
    try:
        devices = _distinct(find_devices(args.device) if args.device else get_devices())
        if args.show is not None:
            return _show(devices[0], args.show)
        if args.export:
            return _export(devices[0], args.export)
        if problem := folder_problem():
            raise ValueError(f"{problem}: no records could be kept")
        if args.records:
            return _import(devices[0], args.records)
        wanted = [_dtypes(args.dtypes, device) for device in devices]
    except (ValueError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    args.budget /= len(devices)
    return max(_tune(*each, args) for each in zip(devices, wanted, strict=True))


def _show(device: Device, wanted: Path | Literal[False]) -> int:
    trials = Trials(identify(device))
    path = Path(wanted or trials.path.with_suffix(".png"))
    if wanted or trials.all:
        require_picture("--show", path, extra="tune")
    if not trials.all:
        raise ValueError(f"nothing has been tried on {device!r}: {trials.path} does not exist")
    if not written(path, lambda file: draw(trials, device.name, file)):
        return 1
    print(path)
    return 0


def _export(device: Device, path: Path) -> int:
    records = tuned.own_records(identify(device))
    if not records:
        raise ValueError(f"there are no records for {device!r}: 'python -m clgemm tune' finds some")
    if not written(path, as_json(records)):
        return 1
    print(f"{len(records)} records of {device.label} are in {path}")
    return 0


def _import(device: Device, path: Path) -> int:
    found = tuned.findings_from(path.read_text(encoding="utf-8"))
    for problem in found.problems:
        print(f"{path}: {problem}", file=sys.stderr)
    taken = tuned.take_over(identify(device), found.records)
    forget_plans()
    print(f"{len(taken)} of {len(found.records)} records serve {device.label} once they are tried")
    for record in taken:
        print(f"  {record.family} {record.shape_class}: {record.device.name}, {record.date}")
    return int(bool(found.problems) or not taken)


def _tune(device: Device, dtypes: Sequence[str], args: argparse.Namespace) -> int:
    told = f"at most {args.budget:g} minutes; Ctrl-C keeps what has been found"
    print(f"{device!r}: {told}", flush=True)
    code, note = 0, ""
    with trial_child(identity(device)) as child:
        session = Session(device, child, 60 * args.budget, args.afresh, meter())
        try:
            note = _run(session, args.shapes, dtypes)
        except KeyboardInterrupt:
            code = INTERRUPTED
    print_table(
        f"{len(session.trials.all)} candidates are known, records are in "
        f"{tuned.user_file(session.identity)}:",
        ("family", "class", "shapes", "GFLOP/s"),
        ("left", "left", "left", "right"),
        [
            (
                *(record.family, record.shape_class),
                ", ".join(shape.label for shape in record.shapes),
                ", ".join(figure(gflops) for gflops in record.gflops),
            )
            for record in session.found
        ],
    )
    if note:
        print(note)
    if session.unstored:
        print("These could not be stored:", file=sys.stderr)
        print(as_json(session.unstored))
        return code or 1
    return code
