"""Whether a device is ready for a plan: its kernels are right there, and built if nobody may wait.

A child process has tried the kernels, or tries them now (`clgemm.hardware.trial`). What it rejects
is not used: the planner then makes another plan.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

from clgemm.core.cache import forget_plans, warn_once
from clgemm.core.plan import Plan
from clgemm.core.problem import Problem
from clgemm.core.threads import non_reentrant
from clgemm.hardware import trial
from clgemm.hardware.choice import BrokenDeviceError, broken
from clgemm.hardware.device import Device, identity, where
from clgemm.planning import planner
from clgemm.planning.planner import Planned
from clgemm.records import verdicts
from clgemm.records.verdicts import Verdict

log = logging.getLogger(__name__)

_accepted: WeakSet[Plan] = WeakSet()
_mine = threading.local()


class NotReadyError(RuntimeError):
    """The device is not ready for a product that need not wait for it."""


@contextlib.contextmanager
def optional() -> Iterator[None]:
    """Raise NotReadyError in place of waiting, in products of this thread in a ``with`` block."""
    before = is_optional()
    _mine.is_optional = True
    try:
        yield
    finally:
        _mine.is_optional = before


def is_optional() -> bool:
    """Return whether products of this thread do not wait."""
    return getattr(_mine, "is_optional", False)


def planned(device: Device, problem: Problem) -> Planned:
    """Return the plan of a product, whose kernels give right results on the device.

    Raises
    ------
    NotReadyError
        If that is not known yet, and the product is optional.
    BrokenDeviceError
        If the device turns out not to work.
    """
    rejected: set[str] = set()
    while True:
        found = planner.plan_of(device, problem)
        if found.plan in _accepted:
            return found
        verdict = verdicts.known(found.about(where(device)))
        if verdict is None:
            if is_optional():
                raise NotReadyError(f"{device.label} has not been tried with {found.choice.config}")
            verdict = judge(device, problem, found)
            if verdict.reason:
                _reject(device, found, verdict)
        if not verdict.reason:
            _accepted.add(found.plan)
            return found
        if found.is_last or found.about(where(device)) in rejected:
            raise _given_up(device, found, verdict)
        rejected.add(found.about(where(device)))
        forget_plans()  # the planner makes another one


def require_built(device: Device, plan: Plan) -> None:
    """Raise NotReadyError if a plan would have to be built, and the product is optional."""
    if on_bind is not None:
        on_bind(device, plan)
    if is_optional() and not verdicts.are_built(programs_of(device, plan)):
        raise NotReadyError(f"kernels for {device.label} are not built yet")


def programs_of(device: Device, plan: Plan) -> frozenset[str]:
    """Return the keys of the programs that a plan needs."""
    # Drivers other than PoCL compile a kernel once, whatever its grid is.
    limit = verdicts.LARGE_GRID if device.limits.has_vectors else 2**62
    return verdicts.program_keys(where(device), plan.steps, limit)


@non_reentrant
def ask(device: Device, problem: Problem, found: Planned) -> Verdict:
    """Return the verdict of a child process on a plan; it stores that."""
    log.info("trying %s on %s", found.choice.config, device.label)
    key = found.about(where(device))
    answer = answer_of_child(device, "plan", problem=problem)
    if (verdict := verdicts.known(key)) is not None and verdict.reason:
        return verdict
    if answer is None:
        return Verdict()
    reason = answer.get("reason", "")
    if answer["outcome"] == "failed":
        return Verdict(reason, answer.get("details", ""))
    if reason or answer.get("on", key) != key:  # or it knows other records than this process
        because = f": {reason}" if reason else ""
        warn_once(f"{found.choice.config} is used unchecked on {device.label}{because}")
        return Verdict()
    verdicts.store(key, Verdict(), keep=False)
    return Verdict()


def answer_of_child(device: Device, job: str, **arguments: Any) -> dict[str, Any] | None:
    """Return a child process's answer to a trial on a device; None if there is none."""
    try:
        answer = trial.ask(job, device=identity(device), **arguments)
    except trial.UncheckedError as error:
        warn_once(f"{device.label} is used unchecked: {error}")
        return None
    verdicts.learn_built(answer.get("built", ()), keep=False)
    return answer


# A worker, which is such a child process, tries them itself.
judge: Callable[[Device, Problem, Planned], Verdict] = ask
on_bind: Callable[[Device, Plan], None] | None = None


def _reject(device: Device, found: Planned, verdict: Verdict) -> None:
    """Take over what a trial has rejected."""
    for key in found.doomed(where(device)):
        verdicts.store(key, verdict, keep=False)  # on disk it is already
    log.warning("%s is not used on %s: %s", found.choice.config, device.label, verdict.reason)


def _given_up(device: Device, found: Planned, verdict: Verdict) -> BrokenDeviceError:
    """Give the device up, for all processes if the plainest kernels fail: nothing replaces them."""
    verdict = verdict._replace(reason=f"the kernel family {found.family.name!r}: {verdict.reason}")
    verdicts.store(verdicts.about_device(where(device)), verdict, keep=found.is_last)
    forget_plans()
    return broken(device, verdict)
