"""The ladder: kernels from naive to tuned, which can be run, checked and timed.

``python -m clgemm ladder`` runs all rungs, and `run` runs one. The kernels are in
``kernels/ladder``; the README there explains each step.

    rung             the base class of rungs: parameters, constraints, launches, memory traffic
    rungs, tensor    rungs 1 to 16 and 22, and 17 to 21 for tensor cores; the choice of parameters
    measure          the run, check and times of a rung through either toolchain, and of libraries
    explain          what the rungs' kernel files say, printed and as the interactive page
    command          the command line, with table, JSON and picture
"""

from __future__ import annotations

import operator

from clgemm.hardware.choice import find_device, get_device
from clgemm.ladder import measure
from clgemm.ladder.measure import Problem, Result, opencl_target
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
        1 to 22.
    n : int or tuple of int
        The size of square matrices, or (m, n, k). Sizes must be multiples of the tile, except for
        rung 10. Rungs 19 and 20 need a k of 512 or more. Rung 21 multiplies int32, rung 22
        complex64, and the others float32.
    device : str or int, optional
        As for `clgemm.set_device`. The default is the device of `clgemm.get_device`.
    repeat : int, optional
        The number of timed runs, after a first run that is not timed.
    **params : int
        Parameters of the rung, by clgemm's names (``tile_m=64``) or the tutorial's (``TSM=64``).
        The others are chosen to suit the device and the size.

    Returns
    -------
    Result
        GFLOP/s, the median time in nanoseconds, and the error relative to float64 with the bound
        that the rung promises. A product has 2 m n k operations, of complex numbers 8 m n k.

    Raises
    ------
    ValueError
        If the parameters break a constraint of the rung or a limit of the device, if the device
        lacks what the rung needs, if `n` has neither one nor three sizes, or if `repeat` is less
        than 1.

    Examples
    --------
    >>> import clgemm.ladder
    >>> clgemm.ladder.run(6, 256, tile_m=64, tile_n=64).correct
    True
    """
    sizes = n if isinstance(n, tuple) else (n, n, n)
    if len(sizes) != 3:
        raise ValueError(f"n={n} is neither one size nor (m, n, k)")
    if repeat is not None and repeat < 1:
        raise ValueError(f"repeat={repeat} is less than 1")
    shape = Shape(*map(operator.index, sizes))
    chosen = get_device() if device is None else find_device(device)
    configured = configure(rung, shape, opencl_target(chosen), **params)
    return measure.run(chosen, configured, Problem(shape, configured.dtype), repeat)
