"""`warmup`: everything that a device needs is checked, built and measured now."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

NAMES = {
    "check": "check of the device",
    "family": "kernel families",
    "calibrate": "what launches cost",
    "plan": "products of device arrays",
    "product": "products of NumPy arrays",
    "exact": "integers and other dtypes",
    "condemn": "what was rejected",
}


def warmup(
    device: Any = None, *, progress: Callable[[int, int, str], object] | None = None
) -> dict[str, Any]:
    """Check, build and measure now what else happens beside the first products.

    Afterwards every new process finds it on disk: in containers and images, and for benchmarks. A
    second call finds that all is there.

    Parameters
    ----------
    device : str, int, Device or pyopencl object, optional
        As for `clgemm.set_device`. The default is the device of `clgemm.get_device`.
    progress : callable, optional
        Called with the parts that are done, all parts and a description.

    Returns
    -------
    dict
        ``device``: its name. ``seconds``: how long it took, in all and by part. ``parts``: how many
        were done. ``problems``: what failed.

    Raises
    ------
    RuntimeError
        If no device works, or no child process can be started.
    ValueError
        If `device` names none.
    """
    from clgemm.core.cache import folder_problem, forget_plans
    from clgemm.hardware import trial
    from clgemm.hardware.choice import checked, find_device, get_device
    from clgemm.hardware.device import identity

    begun = time.perf_counter()
    chosen = get_device() if device is None else find_device(device)
    (verdict,) = checked([chosen])
    if verdict.reason:
        raise RuntimeError(f"{chosen.label} cannot be used: {verdict.reason}")
    seconds = {"check": time.perf_counter() - begun}
    problem = folder_problem()
    problems = [f"nothing is kept for later processes: {problem}"] if problem else []
    total = 0
    for is_calibrated in (False, True):
        try:
            wanted = {"with_dtypes": True, "is_calibrated": is_calibrated}
            jobs = trial.ask("rest_of", device=identity(chosen), **wanted)["jobs"]
        except trial.UncheckedError as error:
            raise RuntimeError(f"{chosen.label} cannot be prepared: {error}") from None
        total += len(jobs)
        problems += _done(jobs, total, seconds, progress)
        if "calibrate" not in dict(jobs):
            break
        forget_plans()  # now that this is known, other plans may be the fastest
    if progress is not None:
        progress(total, total, "")
    return {
        "device": chosen.label,
        "parts": total,
        "seconds": {"all": time.perf_counter() - begun} | seconds,
        "problems": problems,
    }


def _done(
    jobs: Sequence[tuple[str, dict[str, Any]]],
    total: int,
    seconds: dict[str, float],
    progress: Callable[[int, int, str], object] | None,
) -> list[str]:
    """Have jobs done, the last of `total`; add their time to `seconds`, and return what failed."""
    from clgemm.hardware import trial

    waiting = {trial.request(name, is_urgent=True, **keywords): name for name, keywords in jobs}
    problems, last = [], time.perf_counter()
    while waiting:
        if progress is not None:
            progress(total - len(waiting), total, NAMES[next(iter(waiting.values()))])
        number = next(iter(waiting))
        assert number is not None
        answer = trial.wait(number)
        name = waiting.pop(number)
        now = time.perf_counter()
        seconds[name] = seconds.get(name, 0.0) + now - last
        last = now
        if answer["outcome"] != "right":
            problems.append(f"{NAMES[name]}: {answer['reason']}")
    return problems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--device", metavar="D", help="as for clgemm.set_device; else the default")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Run the command; return 1 if something failed and 2 if no device works."""
    from clgemm.terminal import say, show_done

    say("Checks, builds and measures what is missing: up to a minute or two, later seconds.")
    try:
        found = warmup(arguments.device, progress=show_done)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 1 if found["problems"] else 0


def _print(found: dict[str, Any]) -> None:
    seconds = found["seconds"]
    if not found["parts"]:
        print(f"{found['device']}: all is there ({seconds['all']:.1f} s).")
        return
    print(f"{found['device']} is prepared: {found['parts']} parts, {seconds['all']:.1f} s.")
    for name, taken in seconds.items():
        if name != "all":
            print(f"  {NAMES[name]}: {taken:.1f} s")
    for problem in found["problems"]:
        print(f"  failed: {problem}")
