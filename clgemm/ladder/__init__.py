"""The tutorial's ladder: ten kernels from naive to tuned, each runnable, checked and timed.

``python -m clgemm ladder`` climbs it; `run` takes one rung. The kernels are in ``kernels/ladder``,
whose README walks the staircase.

    rung             what a rung is: pure, as are the next three
    squares, blocks  rungs 1 to 4, and 5 to 10
    rungs            the ten together, and one with parameters that suit a device
    measure          operands, judgement, medians: pure NumPy
    kernels          the rungs' files
    opencl, cuda     running them, through either toolchain
    peers            what they are compared with
    report, plot     table, JSON and picture
    command          the command line
"""

from __future__ import annotations

import operator

from clgemm.hardware.choice import find_device, get_device
from clgemm.ladder import opencl
from clgemm.ladder.measure import Problem, Result
from clgemm.ladder.rung import Rung, Shape
from clgemm.ladder.rungs import RUNGS, configure

__all__ = ["RUNGS", "Result", "Rung", "Shape", "run"]


def run(
    rung: int,
    n: int | tuple[int, int, int],
    *,
    device: str | int | None = None,
    repeat: int | None = None,
    **params: int,
) -> Result:
    """Check and time one rung of the ladder on an OpenCL device.

    Parameters
    ----------
    rung : int
        1 to 10.
    n : int or tuple of int
        Size of the square matrices, or (m, n, k). Multiples of the tile, but for rung 10.
    device : str or int, optional
        As for `clgemm.set_device`; the default device if not given.
    repeat : int, optional
        How often it is timed, after a first run that is not.
    **params : int
        The rung's parameters (``tile_m=64`` or, in the tutorial's words, ``TSM=64``). The others
        are chosen to suit the device and the size.

    Returns
    -------
    Result
        With GFLOP/s, the median time in nanoseconds, and the error against float64.

    Raises
    ------
    ValueError
        If the parameters break a constraint of the rung or a limit of the device, `n` has other
        than one or three sizes, or `repeat` is less than 1.

    Examples
    --------
    >>> clgemm.ladder.run(6, 1024, tile_m=64, tile_n=64).gflops  # doctest: +SKIP
    """
    sizes = n if isinstance(n, tuple) else (n, n, n)
    if len(sizes) != 3:
        raise ValueError(f"n={n} is neither one size nor m, n and k")
    if repeat is not None and repeat < 1:
        raise ValueError(f"repeat={repeat} is less than 1")
    shape = Shape(*map(operator.index, sizes))
    chosen = get_device() if device is None else find_device(device)
    configured = configure(rung, shape, opencl.target(chosen), **params)
    return opencl.run(chosen, configured, Problem(shape), repeat)
