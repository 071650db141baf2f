"""What the device computes with each tile of a product."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyopencl as cl

from clgemm.core.problem import FLOAT_BYTES, Layout, Problem
from clgemm.hardware.device import Device
from clgemm.runtime.execute import BoundCall, bind, execute_matrices
from clgemm.runtime.memory import Matrix
from clgemm.runtime.regions import make_room
from clgemm.runtime.workspace import Workspace

__all__ = ["TiledProduct", "run_product"]


class TiledProduct(NamedTuple):
    """What the device computes with each tile: C = alpha A B + beta C.

    Attributes
    ----------
    precision : str or None
        As `Problem.precision`: without, `a` and `b` are not read.
    is_slow : bool
        Whether a tile may take so long that signals should be answered meanwhile.
    is_symmetric : bool
        As `Problem.is_symmetric`, of the product as a whole.
    advance : callable
        Called with the multiply-adds of each part that has arrived; it may raise to end the call.
    """

    alpha: float
    beta: float
    precision: str | None
    device: Device
    space: Workspace
    is_slow: bool = False
    is_symmetric: bool = False
    advance: Callable[[int], object] = int

    def bind(self, a: Layout, b: Layout, c: Layout, is_whole: bool = False) -> BoundCall:
        """Return what computes a tile of these layouts, built and set up; enqueue nothing."""
        problem = Problem(a, b, c, self.precision, self.is_symmetric and is_whole)
        return bind(problem, self.device, self.space)

    def allocate(self, elements: int) -> cl.Buffer:
        """Return memory on the device; resident arrays make room if they have to."""
        size_bytes = FLOAT_BYTES * elements
        try:
            return self.space.allocate(size_bytes)
        except cl.MemoryError:
            if not make_room(self.device):
                raise
            return self.space.allocate(size_bytes)

    def enqueue(
        self, bound: BoundCall, a: Matrix, b: Matrix, c: Matrix, first: bool, before: list[cl.Event]
    ) -> cl.Event:
        """Enqueue a tile: the `first` of its block of C, or one that adds to what is there."""
        beta = self.beta if first else 1.0
        return execute_matrices(bound, self.alpha, a, b, beta, c, before)


def run_product(make: Callable[[], None]) -> None:
    """Make a product. All of them are made here, so that one within another is known."""
    make()
