"""Which results are known to be finite: the device that makes them sees it sooner than the host.

On the host, this takes a pass over the result. If NumPy's BLAS makes it, its threads spin for some
30 ms after that, and take the processors from the threads that copy for the next product.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["Watch", "watch", "watched"]

_mine = threading.local()


class Watch:
    """What has become known of results.

    Attributes
    ----------
    elements : int
        The elements of results that are known to be finite.
    """

    def __init__(self) -> None:
        self.elements = 0


@contextlib.contextmanager
def watched(is_wanted: bool = True) -> Iterator[Watch]:
    """Ask the products of this thread to tell whether their results are finite, if they can."""
    before, new = watch(), Watch()
    _mine.watch = new if is_wanted else None
    try:
        yield new
    finally:
        _mine.watch = before


def watch() -> Watch | None:
    """Return what this thread's products are to tell; None if nobody asks."""
    return getattr(_mine, "watch", None)
