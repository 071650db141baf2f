"""A model of products through transfers: how long a schedule takes at given rates.

Pure: no device. `docs/transfer_model.py` prints what it expects of each way to transfer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from clgemm.core.locking import runs
from clgemm.core.transfer import FLOAT_BYTES, Block, TransferConfig, make_stream, pieces

__all__ = ["Rates", "Task", "product_tasks", "simulate"]

COPY, CALLER, LOCK = "copy", "caller", "lock"
UP, COMPUTE, DOWN = "link up", "compute", "link down"
IN_ORDER = {UP, COMPUTE, DOWN}  # these lanes run their tasks in the order in which they are listed
ADDRESS = 16  # where a large NumPy array begins, after the start of a page
# As in runtime/transfer/pipeline.py.
LEAST_PIECES, SMALLEST_PIECE_BYTES = 16, 2**19


@dataclass(frozen=True)
class Rates:
    """What a machine can do.

    Attributes
    ----------
    link_gbps : float
        Billions of bytes per second from and to pinned memory, in each direction.
    copy_gbps : tuple of (int, float)
        Billions of bytes that so many threads copy together, by the number of threads.
    lock_gbps, unlock_gbps : float
        Billions of bytes that one thread page-locks and releases.
    fault_passes : float
        To copy to a new array takes as long as copying so many more bytes, for each byte.
    gflops : float
        The product on the device.
    transfer_s, launch_s : float
        What a transfer and a tile's kernels take besides.
    caller_s : float
        What the caller takes to enqueue a command or to hand out a copy.
    """

    link_gbps: float
    copy_gbps: tuple[tuple[int, float], ...]
    gflops: float
    lock_gbps: float = 39.0
    unlock_gbps: float = 200.0
    fault_passes: float = 1.0
    transfer_s: float = 10e-6
    launch_s: float = 20e-6
    caller_s: float = 30e-6

    def copies(self, threads: int) -> float:
        """Return bytes per second of so many threads, in between as by a straight line."""
        known = ((0, 0.0), *self.copy_gbps)
        if threads >= known[-1][0]:
            return 1e9 * known[-1][1]
        for (fewer, low), (more, high) in pairwise(known):
            if threads <= more:
                return 1e9 * (low + (high - low) * (threads - fewer) / (more - fewer))
        raise AssertionError


class Task(NamedTuple):
    """One step of a schedule.

    Attributes
    ----------
    lane : str
        Who does it. Copies run side by side and share their rate; other lanes do one at a time.
    amount : float
        Seconds; for a copy, bytes.
    after : tuple of int
        The tasks that must be over before, by their places in the list.
    """

    lane: str
    amount: float
    after: tuple[int, ...] = ()


class Interval(NamedTuple):
    """When a task ran, in seconds."""

    start: float
    end: float


def simulate(
    tasks: Sequence[Task], threads: int, copy_rate: Callable[[int], float]
) -> list[Interval]:
    """Return when each task runs.

    The lanes of the link and of the device run tasks in the order of the list. Others take the one
    that has been ready for longest.

    Parameters
    ----------
    threads : int
        Copies that may run at a time.
    copy_rate : callable
        Bytes per second of so many copies together; they share it evenly.
    """
    followers: list[list[int]] = [[] for _ in tasks]
    missing = [len(set(task.after)) for task in tasks]
    order: dict[str, list[int]] = {lane: [] for lane in IN_ORDER}  # what is left, last first
    for number, task in enumerate(tasks):
        for before in set(task.after):
            followers[before].append(number)
    for number in reversed(range(len(tasks))):
        if tasks[number].lane in IN_ORDER:
            order[tasks[number].lane].append(number)
    ready: dict[str, list[tuple[float, int]]] = {}
    running: dict[str, tuple[float, int]] = {}  # by lane, when the task ends
    copying: dict[int, float] = {}  # bytes left
    starts, ends = [0.0] * len(tasks), [0.0] * len(tasks)
    now, left = 0.0, len(tasks)

    def offer(number: int) -> None:
        heapq.heappush(ready.setdefault(tasks[number].lane, []), (now, number))

    def begin() -> None:
        for lane, waiting in ready.items():
            while waiting:
                number = waiting[0][1]
                if lane == COPY:
                    if len(copying) >= threads:
                        break
                    copying[number] = tasks[number].amount
                elif lane in running:
                    break
                elif lane in IN_ORDER:
                    number = order[lane][-1]
                    if missing[number]:
                        break
                    order[lane].pop()
                    waiting[:] = [each for each in waiting if each[1] != number]
                    heapq.heapify(waiting)
                    running[lane] = now + tasks[number].amount, number
                    starts[number] = now
                    break
                else:
                    running[lane] = now + tasks[number].amount, number
                heapq.heappop(waiting)
                starts[number] = now

    for number in range(len(tasks)):
        if not missing[number]:
            offer(number)
    while left:
        begin()
        each = copy_rate(len(copying)) / len(copying) if copying else 0.0
        until = min((end for end, _ in running.values()), default=float("inf"))
        if copying:
            until = min(until, now + min(copying.values()) / each)
        if until == float("inf"):
            raise ValueError("tasks wait for one another")
        over = [number for end, number in running.values() if end <= until]
        for number in list(copying):
            copying[number] -= each * (until - now)
            if copying[number] <= 1e-3:  # of a byte
                del copying[number]
                over.append(number)
        now = until
        for number in over:
            left -= 1
            ends[number] = now
            if running.get(tasks[number].lane, (0.0, -1))[1] == number:
                del running[tasks[number].lane]
            for follower in followers[number]:
                missing[follower] -= 1
                if not missing[follower]:
                    offer(follower)
    return [Interval(start, end) for start, end in zip(starts, ends, strict=True)]


@dataclass
class _Builder:
    """The tasks of a product as they are listed, and what later ones have to wait for."""

    rates: Rates
    config: TransferConfig
    out_new: bool
    tasks: list[Task] = field(default_factory=list)
    chunks_up: list[int] = field(default_factory=list)  # what frees each chunk
    chunks_down: list[int] = field(default_factory=list)
    locked: list[int] = field(default_factory=list)  # what ends the use of each lock
    enqueued: tuple[int, ...] = ()  # the last transfer to the device, by the caller
    lock_used: tuple[int, ...] = ()  # where the caller locks: it does one region at a time

    def add(self, lane: str, amount: float, *after: int) -> int:
        self.tasks.append(Task(lane, amount, after))
        return len(self.tasks) - 1

    @staticmethod
    def elements(block: Block) -> int:
        rows, columns = (int(s.stop - s.start) for s in block[-2:])
        return rows * columns

    def freed(self, freeing: list[int], most: int) -> tuple[int, ...]:
        """Return what frees the next of `most` things; nothing while there are enough."""
        return (freeing[-most],) if len(freeing) >= most else ()

    def lock(self, size_bytes: int, passes: float = 0.0) -> int:
        """Lock a region; faults of its pages are the locking thread's."""
        locking, rates = self.config.locking, self.rates
        faults_s = passes * size_bytes / rates.copies(1)
        if not locking.in_thread:
            seconds = size_bytes / rates.lock_gbps / 1e9 + faults_s
            return self.add(CALLER, seconds, *self.lock_used)
        free = self.freed(self.locked, max(locking.held_bytes // locking.region_bytes, 1))
        return self.add(LOCK, size_bytes / rates.lock_gbps / 1e9 + faults_s, *free)

    def unlock(self, size_bytes: int, transfer: int) -> None:
        lane = LOCK if self.config.locking.in_thread else CALLER
        self.locked.append(self.add(lane, size_bytes / self.rates.unlock_gbps / 1e9, transfer))

    def transfer_s(self, size_bytes: int) -> float:
        return self.rates.transfer_s + size_bytes / self.rates.link_gbps / 1e9

    def send(self, size_bytes: int, in_place: bool, before: Sequence[int]) -> int:
        """List what brings a piece to the device; return its transfer."""
        if in_place:
            filled = self.lock(size_bytes)
        else:
            filled = self.add(COPY, size_bytes, *self.freed(self.chunks_up, self.config.chunks))
        enqueued = self.add(CALLER, self.rates.caller_s, filled)
        self.enqueued = (enqueued,)
        moved = self.add(UP, self.transfer_s(size_bytes), enqueued, *before)
        if in_place:
            self.lock_used = (enqueued,)
            self.unlock(size_bytes, moved)
        else:
            self.chunks_up.append(moved)
        return moved

    def receive(self, size_bytes: int, in_place: bool, done: int, launched: int) -> int:
        """List what brings a piece of the result to the host; return its transfer."""
        passes = self.rates.fault_passes if self.out_new and not self.config.prefault else 0.0
        if in_place:
            lock = self.lock(size_bytes, passes)
            enqueued = self.add(CALLER, self.rates.caller_s, lock, launched)
            self.lock_used = (lock,)
            moved = self.add(DOWN, self.transfer_s(size_bytes), enqueued, done)
            self.unlock(size_bytes, moved)
            return moved
        free = self.freed(self.chunks_down, self.config.chunks)
        enqueued = self.add(CALLER, self.rates.caller_s, launched, *free)
        moved = self.add(DOWN, self.transfer_s(size_bytes), enqueued, done)
        handed = self.add(CALLER, self.rates.caller_s, moved)
        self.chunks_down.append(self.add(COPY, size_bytes * (1 + passes), handed))
        return moved


def product_tasks(
    sizes: tuple[int, int, int], config: TransferConfig, rates: Rates, out_new: bool
) -> list[Task]:
    """Return the tasks of a product of host arrays in rows, C = A B, as the pipeline makes them.

    Parameters
    ----------
    sizes : tuple of int
        m, n and k.
    out_new : bool
        Whether the result's pages are new.
    """
    m, n, k = sizes
    stream = make_stream((), sizes, ((), ()), False, config, 2**62)
    build = _Builder(rates, config, out_new)
    longest = max((m * k + k * n + m * n) // LEAST_PIECES, SMALLEST_PIECE_BYTES // FLOAT_BYTES)
    longest = min(longest, config.chunk_bytes // FLOAT_BYTES)
    edge = min(longest, config.edge_bytes // FLOAT_BYTES or longest)
    widths = k, n, n
    users: dict[tuple[int, int], list[int]] = {}  # of a slot, by operand and number
    prefault_bytes = FLOAT_BYTES * m * n * rates.fault_passes if out_new and config.prefault else 0
    loads = sum(len(tile.loads) for tile in stream.tiles)
    for tile in stream.tiles:
        arrived: list[int] = []
        for operand in tile.loads:
            key = operand, tile.slots[operand]
            is_edge = tile is stream.tiles[0] and operand == tile.loads[0]
            count = build.elements(tile.blocks[operand])
            most = min(longest, max(edge, count // LEAST_PIECES)) if is_edge else longest
            share = config.locking.loads
            for size, in_place in _parts(
                tile.blocks[operand], widths[operand], most, share, config
            ):
                arrived.append(build.send(size, in_place, users.get(key, ())))
            if prefault_bytes:
                build.add(COPY, prefault_bytes / loads)
        launched = build.add(CALLER, rates.caller_s, *build.enqueued)
        rows, columns = tile.blocks[2][-2:]
        flops = 2 * k * (rows.stop - rows.start) * (columns.stop - columns.start)
        used = users.get((2, tile.slots[2]), ())
        seconds = rates.launch_s + flops / rates.gflops / 1e9
        done = build.add(COMPUTE, seconds, launched, *arrived, *used)
        for operand in range(2):
            users[operand, tile.slots[operand]] = [done]
        most = longest
        if tile is stream.tiles[-1]:
            most = min(longest, max(edge, build.elements(tile.blocks[2]) // LEAST_PIECES))
        share = config.locking.results
        parts = _parts(tile.blocks[2], n, most, share, config)
        users[2, tile.slots[2]] = [build.receive(*part, done, launched) for part in parts]
    return build.tasks


def _parts(
    block: Block, width: int, most: int, share: float, config: TransferConfig
) -> list[tuple[int, bool]]:
    """Return bytes of a block's pieces, and whether each is transferred where it lies."""
    rows, columns = block[-2:]
    shape = rows.stop - rows.start, columns.stop - columns.start
    if share and shape[1] == width:
        address = ADDRESS + FLOAT_BYTES * width * rows.start
        region_bytes = min(config.locking.region_bytes, config.chunk_bytes)
        cuts = runs(address, shape[0] * shape[1], FLOAT_BYTES, most, region_bytes, share)
        return [(FLOAT_BYTES * size, locked) for _, size, locked in cuts]
    return [(FLOAT_BYTES * size, False) for _, _, size in pieces(shape, most)]
