"""Recording of one product of host arrays: classes that note what those of the runtime do.

The runtime itself records nothing, so that products that nobody watches take no longer for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import pyopencl as cl

from clgemm.bench.spans import CALLER, COMPUTE, DOWN, UP, WAIT, Span, Timeline
from clgemm.core.transfer import FLOAT_BYTES, Tile
from clgemm.core.transfer_config import TransferConfig
from clgemm.hardware.device import Device
from clgemm.runtime.bound_plan import Launch
from clgemm.runtime.operands import HostArray
from clgemm.runtime.transfer.call import Call
from clgemm.runtime.transfer.crew import Copy, Crew
from clgemm.runtime.transfer.link import Link
from clgemm.runtime.transfer.share import Share
from clgemm.runtime.transfer.staging import Chunk, Staging
from clgemm.runtime.workspace import Workspace

__all__ = [
    "Recorder",
    "RecordingCall",
    "RecordingStaging",
    "RecordingWorkspace",
    "clock_offset_ns",
    "profiling_queue",
]

CALIBRATIONS = 20

now_ns = time.perf_counter_ns


def page_faults() -> int:
    """Return the page faults of this thread so far; 0 where the system does not tell."""
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    except (ImportError, AttributeError):
        return 0


class _Command(NamedTuple):
    """A command on the device, to be asked for its times when it is over."""

    event: cl.Event
    lane: str
    what: str
    size_bytes: int
    part: int
    enqueued_ns: int


class Recorder:
    """What happens during one product.

    The caller's spans do not overlap: one that begins inside another interrupts it.
    """

    def __init__(self) -> None:
        self._caller = threading.get_ident()
        self._spans: list[Span] = []  # threads append, which is atomic
        self._commands: list[_Command] = []
        self._open: list[str] = []  # the caller's activities, the innermost last
        self._since_ns = 0
        self._faults = 0
        self._result = (0, 0)  # first address of the result, and the one after its last
        self._start_ns = 0

    def begin(self) -> None:
        """Forget everything; the product begins."""
        self._caller = threading.get_ident()
        self._spans, self._commands, self._open = [], [], []
        self._start_ns = now_ns()

    def writes(self, result: HostArray) -> None:
        """Note where the result lies: copies to it go out, others come in."""
        start = result.ctypes.data
        self._result = start, start + result.nbytes

    def into_result(self, array: HostArray) -> bool:
        """Tell whether an array is a part of the result."""
        return self._result[0] <= array.ctypes.data < self._result[1]

    @contextlib.contextmanager
    def span(self, what: str, size_bytes: int = 0, part: int = 0) -> Iterator[None]:
        """Record an activity of this thread."""
        if threading.get_ident() == self._caller:
            self._pause()
            self._open.append(what)
            try:
                yield
            finally:
                self._pause(size_bytes, part)
                self._open.pop()
            return
        start_ns, faults = now_ns(), page_faults()
        try:
            yield
        finally:
            lane, faults = threading.current_thread().name, page_faults() - faults
            self._spans.append(
                Span(lane, what, start_ns, now_ns(), size_bytes, part, faults=faults)
            )

    def _pause(self, size_bytes: int = 0, part: int = 0) -> None:
        """End the part of the caller's innermost activity that runs, and begin another."""
        at_ns, faults = now_ns(), page_faults()
        if self._open and (at_ns > self._since_ns or size_bytes):
            own = faults - self._faults
            what, since_ns = self._open[-1], self._since_ns
            self._spans.append(Span(CALLER, what, since_ns, at_ns, size_bytes, part, faults=own))
        self._since_ns, self._faults = at_ns, faults

    def command(
        self, event: cl.Event, lane: str, what: str, size_bytes: int = 0, part: int = 0
    ) -> None:
        """Record a command that has just been enqueued."""
        self._commands.append(_Command(event, lane, what, size_bytes, part, now_ns()))

    def end(self, flops: int, offset_ns: Callable[[], int]) -> Timeline:
        """Return all of the product, whose commands are over.

        Parameters
        ----------
        offset_ns : callable
            Returns what is added to the device's clock to get the host's.
        """
        end_ns = now_ns()
        spans, shift_ns = list(self._spans), offset_ns()
        for event, lane, what, size_bytes, part, enqueued_ns in self._commands:
            event.wait()
            times = event.profile
            start_ns, stop_ns = times.start + shift_ns, times.end + shift_ns
            spans.append(Span(lane, what, start_ns, stop_ns, size_bytes, part, enqueued_ns))
        return Timeline(tuple(spans), self._start_ns, end_ns, flops)


def profiling_queue(device: Device) -> cl.CommandQueue:
    """Return a queue whose events tell when their commands ran."""
    properties = cl.command_queue_properties.PROFILING_ENABLE
    return cl.CommandQueue(device.context, device.cl_device, properties)


def clock_offset_ns(queue: cl.CommandQueue) -> int:
    """Return what is added to a device's clock to get the host's, from small transfers.

    A command's times lie between the host's time before it is enqueued and that after its end. The
    offset is the middle of what all transfers allow; if they contradict one another by the clocks'
    resolution, likewise.
    """
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 64)
    source = np.zeros(16, np.float32)
    least, most = [], []
    for _ in range(CALIBRATIONS):
        before_ns = now_ns()
        event = cl.enqueue_copy(queue, buffer, source, is_blocking=False)
        queue.flush()
        event.wait()
        after_ns = now_ns()
        least.append(before_ns - event.profile.start)  # started after the call began
        most.append(after_ns - event.profile.end)
    return (max(least) + min(most)) // 2


class RecordingWorkspace(Workspace):
    """A workspace that notes each launch."""

    def __init__(self, queue: cl.CommandQueue, recorder: Recorder) -> None:
        super().__init__(queue)
        self._recorder = recorder

    def _launch(
        self,
        launches: Sequence[Launch],
        buffers: dict[str, cl.Buffer] | None,
        counters: Sequence[cl.Buffer],
        ahead: list[cl.Event] | None,
        last: Launch | None,
    ) -> cl.Event | None:
        del last  # each launch has an event
        event = None
        for launch in launches:
            event = super()._launch((launch,), buffers, counters, ahead, launch)
            assert event is not None
            ahead = [event]
            self._recorder.command(event, COMPUTE, launch.kernel.function_name)
        return event


class RecordingCrew(Crew[Copy]):
    """A crew that notes when the caller waits for copies."""

    recorder: Recorder

    def done(self, timeout_seconds: float) -> list[Copy]:
        with self.recorder.span(WAIT):
            return super().done(timeout_seconds)


class RecordingLink(Link):
    """A link that notes its transfers."""

    recorder: Recorder
    lane: str

    def enqueue(self, copy: Copy, before: Sequence[Sequence[cl.Event]]) -> list[cl.Event]:
        with self.recorder.span("enqueue a transfer"):
            events = super().enqueue(copy, before)
        piece = copy.piece
        size_bytes = FLOAT_BYTES * piece.size
        for event in events:
            self.recorder.command(event, self.lane, "", size_bytes, piece.host.ctypes.data)
        return events

    def flush(self) -> None:
        with self.recorder.span("enqueue a transfer"):
            super().flush()

    def wait(self) -> None:
        with self.recorder.span(WAIT):
            super().wait()


class RecordingStaging(Staging):
    """Staging that notes copies and what the caller waits for."""

    def __init__(self, device: Device, config: TransferConfig, recorder: Recorder) -> None:
        super().__init__(device, config, profiles=True)
        self.recorder = recorder

    def copy(self, target: Chunk, source: Chunk) -> None:
        out = self.recorder.into_result(target)
        what, own = ("copy out", target) if out else ("copy in", source)
        with self.recorder.span(what, target.nbytes, own.ctypes.data):
            super().copy(target, source)

    @contextlib.contextmanager
    def lent(
        self, count: int, lock: threading.RLock, is_nested: bool = False
    ) -> Iterator[list[Chunk]]:
        with contextlib.ExitStack() as stack:
            with self.recorder.span("get chunks"):
                chunks = stack.enter_context(super().lent(count, lock, is_nested))
            yield chunks


class RecordingCall(Call):
    """A call that notes what the caller is doing."""

    @property
    def _recorder(self) -> Recorder:
        return cast("RecordingStaging", self._staging).recorder

    def _new_crew(self, is_threaded: bool) -> Crew[Copy]:
        crew = RecordingCrew(self._staging, is_threaded)
        crew.recorder = self._recorder
        return crew

    def _new_link(self, is_up: bool) -> Link:
        (share,) = self._shares
        queue = share.staging.up if is_up else share.staging.down
        link = RecordingLink([queue], [share.space.lock], is_up, self._product.is_slow)
        link.recorder, link.lane = self._recorder, UP if is_up else DOWN
        return link

    def _plan_pieces(self) -> None:
        with self._recorder.span("cut into pieces"):
            super()._plan_pieces()

    def _bind(self) -> None:
        with self._recorder.span("plan and allocate"):
            super()._bind()

    def _allocate(self) -> None:
        with self._recorder.span("plan and allocate"):
            super()._allocate()

    def _multiply(self, share: Share, tile: Tile) -> cl.Event:
        with self._recorder.span("enqueue kernels"):
            return super()._multiply(share, tile)
