"""The two ways to accelerate Dask's workers: a client's plugin, and a module to preload."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from distributed import WorkerPlugin

from clgemm.core.precision import require_precision
from clgemm.core.settings import require_threshold
from clgemm.dask.devices import ONE_EACH
from clgemm.dask.process import Settings, begin, end

__all__ = ["Accelerate", "dask_setup", "dask_teardown"]


class Accelerate(WorkerPlugin):  # type: ignore[misc]
    """Accelerate NumPy in every worker, each on a device of its own.

    Workers that are started later, restarted or added by adaptive scaling are accelerated too. A
    worker without an OpenCL device multiplies with NumPy and logs one warning. NumPy is restored
    when the plugin is removed (``client.unregister_worker_plugin("clgemm")``) and when the worker
    closes. Registering it again changes nothing, whatever the arguments are.

    Parameters
    ----------
    threshold : int, optional
        As for `clgemm.accel.install`.
    precision : {"strict", "float32", "fast"}, optional
        As `clgemm.precision`, for the whole worker.
    device : str, int, sequence of those or None, optional
        ``"one-each"`` gives each worker of a machine a device that no other worker of this user
        has. GPUs come first. Then come parts of the processor, with as many compute units as the
        worker has threads. If there are too few devices, workers share them. CLGEMM_DEVICE,
        CUDA_VISIBLE_DEVICES and its like limit the choice. A name or position, as for
        `clgemm.set_device`, is one device for all workers. With a list of these, each worker of a
        machine gets another one. None leaves the choice to `clgemm.get_device`.

    Raises
    ------
    ValueError
        If `threshold` is negative or no whole number, or `precision` is not one of the three.
    TypeError
        If `device` is of another type.

    Examples
    --------
    >>> client.register_plugin(clgemm.dask.Accelerate())
    >>> c = da.matmul(a, b).compute()
    >>> print(clgemm.dask.report(client))
    """

    name = "clgemm"
    idempotent = True

    def __init__(
        self,
        threshold: int | None = None,
        precision: str | None = None,
        device: str | int | Sequence[str | int] | None = ONE_EACH,
    ) -> None:
        least = require_threshold(threshold)
        if precision is not None:
            require_precision(precision)
        self._settings = Settings(least, precision, _checked(device))

    async def setup(self, worker: Any) -> None:
        """Accelerate a worker's process. Dask calls this."""
        # In a thread: finding devices may take seconds, and the worker has to answer meanwhile.
        cores = worker.state.nthreads
        await asyncio.to_thread(begin, (worker.id, "plugin"), self._settings, cores)

    async def teardown(self, worker: Any) -> None:
        """Restore NumPy in a worker's process. Dask calls this."""
        await asyncio.to_thread(end, (worker.id, "plugin"))


def _checked(device: Any) -> Any:
    if device is None or isinstance(device, str | int):
        return device
    if isinstance(device, Sequence) and device and all(isinstance(x, str | int) for x in device):
        return tuple(device)
    raise TypeError(
        f"device={device!r} is neither 'one-each', a name or position, a list of those, nor None"
    )


async def dask_setup(worker: Any) -> None:
    """Accelerate a worker that preloads this package: ``dask worker --preload clgemm.dask``.

    Its settings are CLGEMM_THRESHOLD, CLGEMM_PRECISION and CLGEMM_DEVICE.
    """
    if hasattr(worker, "state") and hasattr(worker.state, "nthreads"):  # a worker, no nanny
        settings = Settings(None, None, ONE_EACH)
        await asyncio.to_thread(begin, (worker.id, "preload"), settings, worker.state.nthreads)


async def dask_teardown(worker: Any) -> None:
    """Restore NumPy in a worker that closes."""
    await asyncio.to_thread(end, (worker.id, "preload"))
