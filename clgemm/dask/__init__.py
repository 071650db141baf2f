"""Acceleration of Dask's workers: float32 products run on OpenCL devices where that is faster.

``client.register_plugin(clgemm.dask.Accelerate())`` accelerates every worker of a cluster.
``dask worker --preload clgemm.dask`` accelerates one worker that is started on the command line.
`report` returns each worker's device and counts of its products. `suggest_chunks` returns chunk
shapes for the operands of a product.
"""

from clgemm.dask.chunks import suggest_chunks
from clgemm.dask.workers import (
    Accelerate,
    ClusterReport,
    WorkerReport,
    dask_setup,
    dask_teardown,
    report,
)

__all__ = [
    "Accelerate",
    "ClusterReport",
    "WorkerReport",
    "dask_setup",
    "dask_teardown",
    "report",
    "suggest_chunks",
]
