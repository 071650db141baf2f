"""Digests of host memory, by which to tell whether it still holds what it held before.

A digest is a sum of the memory's words, each multiplied by a random number of this process. A
change leaves it as it was with a probability of 2**-32 at most, whatever the change is.

After: Lemire and Kaser, "Strongly universal string hashing is fast", The Computer Journal 57(11),
2014.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from clgemm.core.threads import ForkableLock

Digests: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
T = TypeVar("T")

WORDS = 2**13
ROW = 8 * WORDS  # bytes that share a digest
STEP = 16  # rows for one call of NumPy: a mebibyte, which stays in the cache
TASK = 4 * STEP  # rows for one thread
LEAST_THREADED = 4 * TASK  # rows from which on threads compare
MOST_THREADS = 8
# In a product modulo 2**64, the high bits of a word count little: they are summed once more.
KEYS = np.frombuffer(os.urandom(2 * 8 * WORDS), np.uint64).reshape(2, WORDS)
HALF = np.uint64(32)


def digests(memory: Bytes) -> Digests:
    """Return the digests of all rows of `ROW` bytes; threads compute those of large memory."""
    rows = -(-memory.size // ROW)
    tasks = [(i, min(i + TASK, rows)) for i in range(0, rows, TASK)]
    is_large = rows >= LEAST_THREADED
    begun = [
        (task, _submitted(functools.partial(_digests, memory, *task)) if is_large else None)
        for task in tasks
    ]
    return np.concatenate(
        [_digests(memory, *task) if f is None else f.result() for task, f in begun], axis=1
    )


def _digests(memory: Bytes, first: int, last: int) -> Digests:
    """Return the digests of some rows of `ROW` bytes.

    Parameters
    ----------
    memory : uint8 array, shape (bytes,)
        Its last row may be shorter.
    first, last : int
        The first row, and the row behind the last.

    Returns
    -------
    uint64 array, shape (2, last - first)
    """
    part = memory[first * ROW : last * ROW]
    whole = part.size // ROW
    result = np.empty((2, last - first), np.uint64)
    _add(part[: whole * ROW].view(np.uint64).reshape(whole, WORDS), result[:, :whole])
    if whole < last - first:
        padded = np.zeros(ROW, np.uint8)
        padded[: part.size - whole * ROW] = part[whole * ROW :]
        _add(padded.view(np.uint64).reshape(1, WORDS), result[:, whole:])
    return result


def _add(rows: Digests, result: Digests) -> None:
    high = np.empty((min(STEP, len(rows)), WORDS), np.uint64)
    for i in range(0, len(rows), STEP):
        step = rows[i : i + STEP]
        result[0, i : i + STEP] = np.dot(step, KEYS[0])
        np.right_shift(step, HALF, out=high[: len(step)])
        result[1, i : i + STEP] = np.dot(high[: len(step)], KEYS[1])


class Part(NamedTuple):
    """Rows of memory, and what all rows of that memory were.

    Attributes
    ----------
    expected : uint64 array, shape (2, rows of the memory)
    """

    memory: Bytes
    expected: Digests
    first: int
    last: int

    def of_bytes(self, ranges: Iterable[tuple[int, int]]) -> list[Part]:
        """Return those of these rows that some of the memory's bytes lie in.

        Parameters
        ----------
        ranges : iterable of (int, int)
            The first byte, and the one behind the last, in ascending order.
        """
        parts: list[Part] = []
        at = self.first
        for start, stop in ranges:
            first = max(start // ROW, at)
            at = max(min(-(-stop // ROW), self.last), at)
            if first < at:
                parts.append(self._replace(first=first, last=at))
        return parts

    def is_same(self) -> bool:
        """Return whether the rows are what they were."""
        found = _digests(self.memory, self.first, self.last)
        return bool((found == self.expected[:, self.first : self.last]).all())


class Comparison:
    """Compares memory with its digests: by threads, and by the caller who waits."""

    def __init__(self, parts: Sequence[Part]) -> None:
        tasks = [
            part._replace(first=i, last=min(i + TASK, part.last))
            for part in parts
            for i in range(part.first, part.last, TASK)
        ]
        is_large = sum(task.last - task.first for task in tasks) >= LEAST_THREADED
        self._tasks = [(task, _submitted(task.is_same) if is_large else None) for task in tasks]

    def is_over(self) -> bool:
        """Return whether `is_same` would not wait."""
        return all(future is not None and future.done() for _, future in self._tasks)

    def is_same(self) -> bool:
        """Return whether all the memory is what it was, once that is known."""
        is_same = True
        for task, future in reversed(self._tasks):  # the threads begin with the first
            is_mine = future is None or future.cancel()
            is_same &= task.is_same() if is_mine or future is None else future.result()
        return is_same


_pool: ThreadPoolExecutor | None = None
_process = 0
_lock = ForkableLock()


def _threads() -> ThreadPoolExecutor:
    """Return the threads that compare, made when first needed."""
    global _pool, _process
    with _lock:
        if _pool is None or _process != os.getpid():  # threads do not fork
            count = max(1, min((os.cpu_count() or 1) // 2, MOST_THREADS))
            _pool, _process = ThreadPoolExecutor(count, "clgemm-compare"), os.getpid()
        return _pool


def _submitted(task: Callable[[], T]) -> Future[T] | None:
    """Have a thread do a task; None where there are no threads: the process exits, or has most."""
    try:
        return _threads().submit(task)
    except RuntimeError:
        return None
