"""What a worker of `clgemm.hardware.supervisor` does: it tries and builds kernels on a device.

The worker multiplies, compares, and stores verdicts. A kernel that crashes, hangs or is wrong harms
this process alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import math
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from clgemm.core.cache import forget_plans, locked, make_room_for_verdicts, recall, remember
from clgemm.core.child import error_text, telling_line
from clgemm.core.plan import Plan
from clgemm.core.problem import Layout, Problem, Shape
from clgemm.core.settings import Precision
from clgemm.core.settings import precision as in_precision
from clgemm.core.threads import RejectedError
from clgemm.hardware import choice as choices
from clgemm.hardware.device import CONTEXT_BYTES, CONTEXT_SHARE, Device, find, identity, where
from clgemm.hardware.supervisor import is_passing
from clgemm.kernels.common.family import Choice, Family
from clgemm.kernels.exact.types import Types
from clgemm.planning import planner
from clgemm.planning.planner import Planned
from clgemm.records import verdicts
from clgemm.records.tuned import choice_from
from clgemm.records.verdicts import Verdict
from clgemm.runtime import exact, finite, programs, readiness
from clgemm.runtime.execute import BoundCall, bind_in_place, execute, execute_matrices
from clgemm.runtime.host_pages import NotInPlaceError
from clgemm.runtime.operands import Matrix, problem_of
from clgemm.runtime.waiting import finish
from clgemm.runtime.workspace import workspace
from clgemm.transfer.multiply import multiply, multiply_exactly
from clgemm.trials.calibration import calibrate, is_unknown

GUARD = 12345.0  # the value of the elements around C
CHECKED = Shape(140, 141, 37)  # a product that checks a device: few multiply-adds, several tiles
# Sides of the products that try a plan: larger ones are shortened by a multiple of `GRAIN`, which
# leaves the loads of a kernel as they are.
MOST_ROWS, MOST_DEPTH, MOST_BATCH, GRAIN = 700, 1500, 3, 256
MOST_LAUNCHED, MOST_REACH = 2300, 2**28  # rows; elements that an operand spans
PADDING = 128  # elements between the rows of an operand
# Products of more multiply-adds are checked by a random vector instead of element by element.
MOST_CHECKED = 2**26
JOB_LOCK_SECONDS = 60.0  # the longest wait for another process that does the same
MEMORY_SHARE = 8  # operands take at most this part of the memory that is free
MOST_WORK = 2**36  # multiply-adds of a product
MOST_WORK_ON_CPU = 2**34  # the same for the usual products
RUNS = 3  # of which the fastest counts
UNEVEN = 1.25  # how much longer the busiest thread of a CPU device computes than all on average
# Of trials of the host's memory.
SIZES_BYTES = 2**14, 2**23  # drivers may copy small memory alone, or large
EDGE = 5  # elements before and behind what the device writes, in its first and last cache line
ROUNDS = 3
LOOKS = 10_000  # at a command, beside which the host writes

Array = npt.NDArray[Any]
Answer = dict[str, Any]


class WrongError(Exception):
    """A product is wrong; the message says where."""


def _is_passing(error: Exception, text: str) -> bool:
    """Return whether an error says nothing about the device."""
    wants = RejectedError | MemoryError | cl.MemoryError | ImportError
    return isinstance(error, wants) or is_passing(text)


def main(requests: int, answers: int, settings: dict[str, Any]) -> None:
    """Serve a supervisor: a job is a line of JSON, and so is its answer."""
    with os.fdopen(answers, "w", encoding="utf-8") as file:

        def say(message: Answer) -> None:
            print(json.dumps(message), file=file, flush=True)

        server = Server(say, settings)
        say({"ready": server.found()})
        with os.fdopen(requests, encoding="utf-8") as jobs:
            for line in jobs:
                name, arguments = json.loads(line)
                say(server.do(name, arguments))


class Server:
    """The jobs, one for each method whose name the supervisor gives.

    Parameters
    ----------
    say : callable
        Sends a message to the supervisor.
    """

    def __init__(self, say: Any, settings: dict[str, Any]) -> None:
        self._say, self._settings = say, settings
        self._about: tuple[str, ...] = ()
        self._built: set[str] = set()
        readiness.judge = self._judge
        exact.judge = self._judge_exact
        readiness.on_bind = self._note

    def found(self) -> Answer:
        """Return the devices of this machine, and which one is chosen; None if there is none."""
        try:
            devices, problem = choices.chosen(), ""
        except (RuntimeError, ValueError) as error:
            devices, problem = (), str(error)
        return {
            "device": identity(devices[0]) if devices else None,
            "label": devices[0].label if devices else "",
            "problem": problem,
            "most_workers": _most_workers(devices[0]) if devices else 1,
        }

    def do(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Do a job and return its outcome: right, or why not; see `Supervisor`."""
        self._about, self._built = (), set()
        try:
            with self._alone(name, arguments):
                found: Answer = getattr(self, f"do_{name}")(**arguments)
        except WrongError as error:
            return self._failed("wrong", str(error), "")
        except choices.BrokenDeviceError as error:
            return self._failed("failed", str(error).partition("\n")[0], str(error.__cause__))
        except Exception as error:
            text = error_text(error)
            if _is_passing(error, text):
                return self._failed("unchecked", telling_line(text), "")
            return self._failed("refused", telling_line(text), text)
        verdicts.learn_built(self._built)
        return {"outcome": "right", "built": sorted(self._built)} | found

    @contextlib.contextmanager
    def _alone(self, name: str, arguments: dict[str, Any]) -> Iterator[None]:
        """Let one process of this user do a job at a time: another one then finds it done."""
        with contextlib.ExitStack() as stack:
            if (folder := self._settings.get("folder")) is not None:
                text = json.dumps([name, arguments], sort_keys=True)
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                with contextlib.suppress(OSError):
                    stack.enter_context(locked(Path(folder) / f"job-{digest}", JOB_LOCK_SECONDS))
            yield

    def _failed(self, outcome: str, reason: str, details: str) -> Answer:
        about = list(self._about)
        return {"outcome": outcome, "reason": reason, "details": details, "about": about}

    def do_check(self, device: Sequence[str]) -> Answer:
        """Return whether a device works, by a small product, and how it takes host memory."""
        found = find(list(device))
        key = verdicts.about_device(where(found))
        if (verdict := verdicts.known(key)) is not None:
            return self._known(verdict)
        self._announce((key,))
        assert found.shares_host_memory in (True, False)  # asking may crash, too
        readiness.planned(found, Problem.of(CHECKED, "strict"))
        self._announce(())
        in_place = found.is_integrated and self._uses_host_memory(found)
        addresses = found.claims_addresses and self._is_right_in_place(found, True)
        verdicts.store(key, Verdict(addresses=addresses, in_place=in_place))
        return {"addresses": addresses, "in_place": in_place}

    def _uses_host_memory(self, device: Device) -> bool:
        """Return whether an integrated GPU uses the host's memory in place.

        If the driver crashes, that alone is left out: memory is sent then.
        """
        key = verdicts.about_host_memory(where(device))
        if verdicts.is_rejected(key):
            return False
        self._announce((key,))
        found = uses_host_memory(device) and self._is_right_in_place(device, False)
        self._announce(())
        return found

    @staticmethod
    def _known(verdict: Verdict) -> Answer:
        outcome = "failed" if verdict.reason else "right"
        return verdict._asdict() | {"outcome": outcome}

    def do_plan(self, device: Sequence[str], problem: Sequence[Any]) -> Answer:
        """Try the kernels of a product, and build all that it needs."""
        found, wanted = find(list(device)), _problem_from(problem)
        plan = readiness.planned(found, wanted)
        self._announce((plan.about(where(found)),))  # it may fail at this size alone
        if found.limits.has_vectors:  # PoCL compiles at the first launch
            _launch(found, plan, wanted.c)
        else:
            for step in plan.plan.steps:
                programs.kernel(found, step.config, step.conditional)
            self._note(found, plan.plan)
        self._announce(())
        return {"on": plan.about(where(found))}

    def do_product(
        self,
        device: Sequence[str] | None,
        a: Sequence[Any],
        b: Sequence[Any],
        shape: Sequence[int],
        precision: str,
        key: str,
        is_symmetric: bool = False,
        dtypes: Sequence[str] = (),
    ) -> Answer:
        """Make a product of host arrays as the program makes it, and store what it takes.

        Parameters
        ----------
        a, b : tuple
            The shapes and the strides, in elements, of the operands: batches of matrices.
        shape : sequence of int
            The shape of C.
        key : str
            Under which its time is stored.
        is_symmetric : bool, optional
            Whether B is A's transpose in the same memory.
        dtypes : sequence of str, optional
            Those of A, B and C, if they are not float32.
        """
        found = choices.chosen()[0] if device is None else find(list(device))
        if isinstance(seconds := recall(key), float):
            return {"seconds": seconds, "device": identity(found)}
        if found.is_integrated:  # it depends on the check whether its operands are sent
            self.do_check(identity(found))
        (m, n), k = shape[-2:], a[0][-1]
        m, n, k = _affordable(m, n, k)
        rng = np.random.default_rng(0)
        x = _like([*a[0][:-2], m, k], a[1], rng)
        y = x.swapaxes(-1, -2) if is_symmetric else _like([*b[0][:-2], k, n], b[1], rng)
        if dtypes:
            with in_precision(cast("Precision", precision)):
                seconds, c = self._exact_seconds(found, x, y, (*shape[:-2], m, n), dtypes)
        else:
            c = np.full((*shape[:-2], m, n), np.nan, np.float32)
            make = partial(multiply, 1.0, x, y, 0.0, c, queue=found.queue, precision=precision)
            with finite.watched():
                make()
                finite.is_finite(c, found)
                seconds = min(_seconds(make, found) for _ in range(RUNS))
            if wrong := difference(x, y, c, c, 1.0, 0.0):
                raise WrongError(f"wrong result at {m}x{n}x{k}: {wrong}")
        seconds *= math.prod(shape) * a[0][-1] / (c.size * k)
        remember(key, seconds)
        return {"seconds": seconds, "device": identity(found)}

    def _exact_seconds(
        self, device: Device, x: Array, y: Array, shape: Sequence[int], dtypes: Sequence[str]
    ) -> tuple[float, Array]:
        """Make a product of other dtypes than float32; return its seconds and its result."""
        a, b, c = x.astype(dtypes[0]), y.astype(dtypes[1]), np.zeros(shape, dtypes[2])
        make = partial(multiply_exactly, a, b, c, device)
        make()
        seconds = min(_seconds(make, device) for _ in range(RUNS))
        some = slice(0, 2)
        if not np.array_equal(c[..., some, :], exact.expected(a[..., some, :], b, c.dtype)):
            raise WrongError(f"wrong result of {dtypes[0]} and {dtypes[1]}")
        return seconds, c

    def do_exact(
        self,
        device: Sequence[str],
        types: Sequence[str],
        on_tensors: bool = False,
        choice: dict[str, Any] | None = None,
    ) -> Answer:
        """Try the kernels for dtypes other than float32, or the choice of a record."""
        found, wanted = find(list(device)), Types(*types)
        made = choice_from(**choice) if choice else None
        verdict = verdicts.known(exact.about(found, wanted, on_tensors, made))
        if verdict is None:
            verdict = self._judge_exact(found, wanted, on_tensors, made)
        return self._known(verdict)

    def _judge_exact(
        self, device: Device, types: Types, on_tensors: bool, choice: Choice | None
    ) -> Verdict:
        key, before = exact.about(device, types, on_tensors, choice), self._about
        self._announce((key,))
        if reason := exact.wrong(device, types, on_tensors, choice):
            raise WrongError(reason)
        self._announce(before)
        verdict = Verdict()
        verdicts.store(key, verdict)
        return verdict

    def do_family(self, device: Sequence[str], family: str, precision: str) -> Answer:
        """Try the default kernels of a family on sizes around their tiles."""
        found = find(list(device))
        kind = next(each for each in planner.families(found) if each.name == family)
        for plan in _edges(found, kind, precision):
            if verdicts.known(plan.about(where(found))) is None:
                self._judge(found, plan.problem, plan)
        return {}

    def do_calibrate(self, device: Sequence[str]) -> Answer:
        """Measure the constants of expected times, unless another process has."""
        found = find(list(device))
        self._announce((_calibration(found),))  # it may crash or hang
        if is_unknown(found) and not calibrate(found):
            return {"outcome": "unchecked", "reason": "the machine is too busy to measure it"}
        self._announce(())
        return {}

    def do_rest_of(
        self, device: Sequence[str], with_dtypes: bool = False, is_calibrated: bool = False
    ) -> Answer:
        """List all that is worth doing for a device, besides what a program asks for.

        Parameters
        ----------
        with_dtypes : bool, optional
            Whether other dtypes than float32 are part of it.
        is_calibrated : bool, optional
            Whether a calibration was tried just now, whatever came of it.
        """
        make_room_for_verdicts()
        found = find(list(device))
        if is_calibrated:
            forget_plans()
        jobs = missing(found, is_calibrated)
        return {"jobs": jobs + (missing_dtypes(found) if with_dtypes else [])}

    def do_condemn(self, key: Sequence[str], reason: str, details: str) -> Answer:
        """Store that a trial has failed twice."""
        for each in key:
            verdicts.store(each, Verdict(reason, details))
        return {"reason": reason, "details": details}

    def _announce(self, keys: tuple[str, ...]) -> None:
        """Tell the supervisor what fails if this process ends now."""
        self._about = keys
        self._say({"about": keys})

    def _note(self, device: Device, plan: Plan) -> None:
        """Take note of the programs of a plan that this job uses."""
        self._built |= readiness.programs_of(device, plan)

    def _judge(self, device: Device, _problem: Problem, found: Planned) -> Verdict:
        """Try the kernels of a plan here, and store the verdict.

        Raises
        ------
        WrongError
            If a result is wrong.
        """
        about, before = found.about(where(device)), self._about
        plain = planner.plainest_of(device, found)
        if plain is not None and verdicts.known(plain.about(where(device))) is None:
            self._judge(device, plain.problem, plain)
        self._announce(found.doomed(where(device)))
        try_plan(device, found)
        self._announce(before)
        verdict = Verdict()
        verdicts.store(about, verdict)
        return verdict

    @staticmethod
    def _is_right_in_place(device: Device, takes_addresses: bool) -> bool:
        """Return whether a product in host memory is right, by addresses or by buffers."""
        rng = np.random.default_rng(0)
        a, b = (
            rng.integers(-8, 9, size).astype(np.float32)
            for size in ((CHECKED.m, CHECKED.k), (CHECKED.k, CHECKED.n))
        )
        a.flags.writeable = not takes_addresses
        whole = np.full((CHECKED.m + 6, CHECKED.n + 6), GUARD, np.float32)
        c, expected = whole[3:-3, 3:-3], np.full_like(whole, GUARD)
        try:
            problem, _ = problem_of(a, b, c, "strict")
            space = workspace(device.queue)
            bound = bind_in_place(problem, device, space, takes_addresses)
            execute(bound, 1.0, a, b, 0.0, c)
        except (cl.Error, WrongError, NotInPlaceError):
            return False
        expected[3:-3, 3:-3] = a @ b
        return np.array_equal(whole, expected)


def _calibration(device: Device) -> str:
    """Return the key of the verdict on a calibration that crashed or hung."""
    return f"{where(device)}: calibration"


def missing(device: Device, is_calibrated: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """Return the jobs that are worth doing for a device, besides what a program asks for.

    Those after its calibration depend on that.
    """
    jobs: list[tuple[str, dict[str, Any]]] = []
    named = {"device": identity(device)}
    if verdicts.known(verdicts.about_device(where(device))) is None:
        jobs.append(("check", named))
    if not is_calibrated and is_unknown(device) and verdicts.known(_calibration(device)) is None:
        return [*jobs, ("calibrate", named)]
    for family in planner.families(device):
        precision = "float32" if family.instructions else "strict"
        plans = _edges(device, family, precision)
        if any(verdicts.known(plan.about(where(device))) is None for plan in plans):
            jobs.append(("family", named | {"family": family.name, "precision": precision}))
    for shape in USUAL:
        if device.limits.has_vectors and shape.work > MOST_WORK_ON_CPU:
            continue
        problem = Problem.of(shape, "float32")
        plan = planner.plan_of(device, problem)
        is_known = verdicts.known(plan.about(where(device))) is not None
        if not (is_known and verdicts.are_built(readiness.programs_of(device, plan.plan))):
            jobs.append(("plan", named | {"problem": problem}))
    return jobs


def missing_dtypes(device: Device) -> list[tuple[str, dict[str, Any]]]:
    """Return the jobs that try the usual dtypes besides float32, where they have not been tried."""
    kinds = USUAL_TYPES if device.limits.has_vectors else (*USUAL_TYPES, *GPU_TYPES)
    return [
        ("exact", {"device": identity(device), "types": types})
        for types in kinds
        if exact.computes(device, types) and verdicts.known(exact.about(device, types)) is None
    ]


def _edges(device: Device, family: Family[Any, Any], precision: str) -> list[Planned]:
    """Return plans by a family's default kernels, for sizes around their tiles."""
    shape = Shape(*family.samples(device.kind).get("medium", (CHECKED,))[0])
    choice, plans = family.defaults(shape, device.traits)[0], []
    for edge in family.edge_shapes(choice.config)[-2:]:
        problem = Problem.of(edge, precision)
        plan = planner.make_plan(device, problem, family, choice)
        scope = family.scope(problem, choice, device.traits)
        plans.append(Planned(plan, False, problem, family, choice, scope))
    return plans


# Products that programs make, by which a device is prepared for those to come.
USUAL = (
    *(Shape(n, n, n) for n in (64, 300, 1024, 2048, 4096)),
    *(Shape(4096, few, 1024) for few in (1, 16, 64, 512)),
    *(Shape(few, 4096, 1024) for few in (1, 16, 64, 512)),
    *(Shape(64, 64, 50_000), Shape(128, 128, 128, 100)),
)
# Their dtypes: on GPUs also those for which a CPU has a BLAS. Bytes may be added up in 32 bits.
USUAL_TYPES = (
    *(Types(x, x, x) for x in ("i1", "i2", "i4", "i8", "b1", "f2")),
    Types("i1", "i1", "i4"),
)
GPU_TYPES = tuple(Types(x, x, x) for x in ("f8", "c8", "c16"))


def uses_host_memory(device: Device) -> bool:
    """Return whether a GPU works in the host's memory, and harms nothing beside its own part.

    A driver may copy what it is told to use, and then the host sees a result only once it is
    mapped: NVIDIA's does so on a GB10, and Arm's for Mali GPUs. Transfers through pinned memory
    serve there.
    """
    for size_bytes in SIZES_BYTES:
        host = np.frombuffer(mmap.mmap(-1, size_bytes), np.int32)
        try:
            if not _is_shared(device, host):
                return False
        except cl.Error:
            return False
        finally:
            finish(device.queue, workspace(device.queue).lock)  # before the memory goes
    return True


def _is_shared(device: Device, host: npt.NDArray[np.int32]) -> bool:
    """Return whether both sides see at once what the other one writes to a buffer's memory.

    The host writes to the edges while the device writes to what lies between them. Nothing is
    mapped: OpenCL does not promise that this works.
    """
    inside = slice(EDGE, -EDGE)
    flags, queue = cl.mem_flags.READ_WRITE, device.queue
    buffer = cl.Buffer(device.context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=host)
    copy, seen = cl.Buffer(device.context, flags, host.nbytes), np.empty_like(host)
    for number in range(1, ROUNDS + 1):
        host[inside] = -number
        cl.enqueue_copy(queue, copy, buffer)
        written = host[inside].nbytes
        pattern = np.array([number], np.int32)
        event = cl.enqueue_fill_buffer(queue, buffer, pattern, EDGE * host.itemsize, written)
        queue.flush()
        for look in range(LOOKS):
            host[:EDGE] = host[-EDGE:] = look
            if event.command_execution_status <= cl.command_execution_status.COMPLETE:
                break
        event.wait()
        cl.enqueue_copy(queue, seen, copy)
        is_right = (host[inside] == number).all() and (seen[inside] == -number).all()
        if not (is_right and (host[:EDGE] == look).all() and (host[-EDGE:] == look).all()):
            return False
    return True


def try_plan(device: Device, found: Planned) -> None:
    """Multiply by the kernels of a plan, on sizes that are not large.

    Raises
    ------
    WrongError
        If a result is wrong.
    """
    small = shortened(found.problem)
    plan = planner.make_plan(device, small, found.family, found.choice)
    for alpha, beta in ((1.0, 0.0), (2.0, -1.0)):
        if wrong := wrong_result(device, plan, small, alpha, beta):
            raise WrongError(f"wrong result at {small.shape.label}: {wrong}")
    multiply_alone = partial(_product, device, found.family, found.choice, found.problem.precision)
    if wrong := found.family.fault(found.problem, found.choice, multiply_alone):
        raise WrongError(f"wrong result: {wrong}")


def shortened(problem: Problem, most: int = MOST_ROWS) -> Problem:
    """Return a product whose kernels load as those of another one do, and that takes less time."""
    m, n = (_shortened(size, most) for size in (problem.m, problem.n))
    k = _shortened(problem.k, MOST_DEPTH)
    sizes = (m, k), (k, n), (m, n)
    a, b, c = (_resized(x, *each) for x, each in zip(problem.layouts, sizes, strict=True))
    return Problem(a, b, c, problem.precision)


def _shortened(size: int, most: int) -> int:
    return size if size <= most else most - GRAIN + (size - most) % GRAIN


def _resized(x: Layout, rows: int, columns: int) -> Layout:
    """Return a layout of other sizes, in the order of the first and with padding between rows."""
    sizes = [*(min(count, MOST_BATCH) for count in x.batch), rows, columns]
    strides, reach = [0] * len(sizes), 1
    order = sorted(range(len(sizes)), key=lambda axis: (abs(x.strides[axis]), -axis))
    for axis in order:
        stride = x.strides[axis]
        if stride == 0:
            continue
        if abs(stride) <= 4 and reach == 1:
            new = abs(stride)
        else:
            new = reach + PADDING + (abs(stride) - reach) % PADDING
        strides[axis] = new if stride > 0 else -new
        reach = new * sizes[axis]
    return x._replace(shape=tuple(sizes), strides=tuple(strides))


def wrong_result(device: Device, plan: Plan, problem: Problem, alpha: float, beta: float) -> str:
    """Multiply whole numbers, whose sums are exact in any order; return what is wrong.

    NaN surrounds A and B, and fills C if beta is 0. Guard values surround C.
    """
    space, rng = workspace(device.queue), np.random.default_rng(0)
    a, b = (_embedded(x, np.nan, rng) for x in problem.layouts[:2])
    c = _embedded(problem.c, GUARD, rng)
    before = c[1].copy()
    if not beta:
        c[1][...] = np.nan
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(device.context, flags, hostbuf=whole) for whole, _, _ in (a, b, c)]
    bound = space.bind(plan, device)
    # A kernel that reads scratch memory before it writes there gives wrong results.
    scratch = space.scratch(bound)
    for slot, size in plan.scratch:
        cl.enqueue_fill_buffer(space.queue, scratch[slot], np.full(1, np.nan, np.float32), 0, size)
    del scratch
    x, y, z = (
        Matrix(buffer, first, layout)
        for buffer, (_, _, first), layout in zip(buffers, (a, b, c), problem.layouts, strict=True)
    )
    execute_matrices(BoundCall(space, bound, False), alpha, x, y, beta, z).wait()
    cl.enqueue_copy(space.queue, c[0], buffers[2])
    found = c[1].copy()
    c[1][...] = GUARD
    if not (c[0] == GUARD).all():
        return "elements beside C were changed"
    if problem.precision is None:
        return "" if np.array_equal(found, beta * before) else "C was not scaled"
    return difference(a[1], b[1], before, found, alpha, beta)


def _launch(device: Device, found: Planned, c: Layout) -> None:
    """Run a plan once, on zeros; one that takes long is run on smaller sizes.

    Parameters
    ----------
    c : Layout
        That of C, where the product itself may go to scratch memory.
    """
    plan, problem = found.plan, found.problem
    layouts = problem.a, problem.b, c
    reach = max(highest - lowest for lowest, highest in (x.extent for x in layouts))
    if problem.shape.work > MOST_WORK_ON_CPU or reach > MOST_REACH:
        problem = shortened(problem, MOST_LAUNCHED)
        plan = planner.make_plan(device, problem, found.family, found.choice)
        layouts = problem.layouts
    space, matrices = workspace(device.queue), []
    for layout in layouts:
        lowest, highest = layout.extent
        buffer = cl.Buffer(
            device.context, cl.mem_flags.READ_WRITE, 4 * max(1, highest - lowest + 1)
        )
        cl.enqueue_fill_buffer(space.queue, buffer, np.zeros(1, np.float32), 0, buffer.size)
        matrices.append(Matrix(buffer, -lowest, layout))
    x, y, z = matrices
    bound = BoundCall(space, space.bind(plan, device), False)
    execute_matrices(bound, 1.0, x, y, 0.0, z).wait()


def _embedded(x: Layout, around: float, rng: np.random.Generator) -> tuple[Array, Array, int]:
    """Return memory, whole numbers in it that lie as a layout says, and the index of the first."""
    lowest, highest = x.extent
    first = PADDING - lowest
    whole = np.full(first + highest + PADDING + 1, around, np.float32)
    strides = [4 * stride for stride in x.strides]
    inside = np.lib.stride_tricks.as_strided(whole[first:], x.shape, strides)
    inside[...] = rng.integers(-8, 9, x.shape)
    return whole, inside, first


def _product(
    device: Device,
    family: Family[Any, Any],
    choice: Choice,
    precision: str | None,
    a: Array,
    b: Array,
) -> Array:
    """Return the product of two matrices by a family's choice."""
    space, c = workspace(device.queue), np.zeros((len(a), b.shape[1]), np.float32)
    of_a, of_b, of_c = (Layout(x.shape, (x.shape[1], 1), 64) for x in (a, b, c))
    problem = Problem(of_a, of_b, of_c, precision).folded()
    plan = planner.make_plan(device, problem, family, choice)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    matrices = {
        slot: Matrix(cl.Buffer(device.context, flags, hostbuf=x), 0, layout)
        for slot, x, layout in zip("abc", (a, b, c), problem.layouts, strict=True)
    }
    space.run(plan, device, matrices).wait()
    cl.enqueue_copy(space.queue, c, matrices["c"].buffer)
    return c


def difference(a: Array, b: Array, c: Array, found: Array, alpha: float, beta: float) -> str:
    """Return how a result differs from the one in float64, "" if it does not."""
    if not np.isfinite(found).all():
        return f"{np.count_nonzero(~np.isfinite(found))} elements were not written"
    x, y, z, w = (each.astype(np.float64) for each in (a, b, c if beta else found, found))
    if found.size * a.shape[-1] <= MOST_CHECKED:
        expected = alpha * (x @ y) + beta * z
    else:
        # Freivalds, "Probabilistic machines can use less running time", 1977: C v = A (B v) for a
        # random v. The arithmetic is exact. A wrong C passes once in a thousand times at most.
        v = np.random.default_rng(1).integers(-500, 501, (b.shape[-1], 2)).astype(np.float64)
        expected, w = alpha * (x @ (y @ v)) + beta * (z @ v), w @ v
    wrong = np.argwhere(expected != w)
    if not len(wrong):
        return ""
    at = tuple(int(i) for i in wrong[0])
    return f"{len(wrong)} elements differ, {at} is {w[at]:g} instead of {expected[at]:g}"


def _problem_from(values: Sequence[Any]) -> Problem:
    a, b, c = (Layout(tuple(shape), tuple(strides), bits) for shape, strides, bits in values[:3])
    return Problem(a, b, c, *values[3:])


def _seconds(call: Callable[[], object], device: Device) -> float:
    """Return the seconds that a call takes.

    A process of low priority hardly gets a processor beside a busy program. There, what counts for
    a CPU device is what its threads computed.
    """
    begun, busy = time.perf_counter(), time.process_time()
    call()
    seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    if device.kind == "CPU" and busy:
        seconds = min(seconds, UNEVEN * busy / device.cl_device.max_compute_units)
    return seconds


def _like(shape: Sequence[int], strides: Sequence[int], rng: np.random.Generator) -> Array:
    """Return a host array of whole numbers, whose axes lie in memory as the strides say."""
    order = sorted(range(len(shape)), key=lambda axis: (-abs(strides[axis]), axis))
    repeated = [axis for axis in order if strides[axis] == 0]
    sizes = [1 if axis in repeated else shape[axis] for axis in order]
    dense = rng.integers(-8, 9, sizes).astype(np.float32)
    places = [order.index(axis) for axis in range(len(shape))]
    return np.broadcast_to(dense.transpose(places), tuple(shape))


def _affordable(m: int, n: int, k: int) -> tuple[int, int, int]:
    """Return the sizes of a product that fits into memory and does not take long."""
    try:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        free = 2**32
    while m * n * k > MOST_WORK or 8 * (m * k + k * n + m * n) > free // MEMORY_SHARE:
        longest = max(m, n, k)
        m, n, k = (
            size - size // 2 // GRAIN * GRAIN if size == longest else size for size in (m, n, k)
        )
        if longest < 2 * GRAIN:
            break
    return m, n, k


def _most_workers(device: Device) -> int:
    """Return how many workers may have a context on a device: all take an eighth of its memory."""
    if device.kind == "CPU" or device.cl_device.host_unified_memory:
        return 2**16
    free = _free_bytes() or device.cl_device.global_mem_size
    return max(1, free // (CONTEXT_SHARE * CONTEXT_BYTES))


def _free_bytes() -> int:
    """Return the free memory of the first of NVIDIA's GPUs; 0 if it is unknown."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)):
            return 0
        if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
            return int(memory[1])
    return 0
