"""The parent's side of a worker: its process and its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from clgemm.bench.contenders import ACCELERATED, ROUTED
from clgemm.bench.host_blas_peers import VARIABLES
from clgemm.core.child import Child, ChildDiedError, RequestError

__all__ = ["RequestError", "Worker", "WorkerDiedError", "environment", "own_environment"]

THREAD_VARIABLES = (
    *(f"{library}_NUM_THREADS" for library in ("OPENBLAS", "OMP", "MKL", "BLIS")),
    "VECLIB_MAXIMUM_THREADS",
    "POCL_MAX_PTHREAD_COUNT",
    "POCL_CPU_MAX_CU_COUNT",  # PoCL from version 4 on
    "DPCPP_CPU_NUM_CUS",  # Intel's runtime
)

# How long the idle threads of a peer spin after a call. They would slow the next contender, which
# another process runs on the same cores.
SPIN_TIMES = {
    "KMP_BLOCKTIME": "20",  # ms: MKL's OpenMP, in place of 200
    "OPENBLAS_THREAD_TIMEOUT": "24",  # 2^24 cycles, 5 to 8 ms, in place of 2^28, 105 to 135 ms
}

WorkerDiedError = ChildDiedError


def environment(threads: int, spin_times: Mapping[str, str] = SPIN_TIMES) -> dict[str, str]:
    """Return the environment of workers: this many threads, and clgemm always on the device."""
    return {
        **spin_times,
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "CLGEMM_THRESHOLD": "0",
        "CUPY_TF32": "0",
    }


def own_environment(contender: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of one contender, from that of all."""
    own = {**variables, **VARIABLES.get(contender, {})}
    if contender in (ROUTED, ACCELERATED):  # clgemm chooses the side as the user has set it
        own.pop("CLGEMM_THRESHOLD", None)
        if (users := os.environ.get("CLGEMM_THRESHOLD")) is not None:
            own["CLGEMM_THRESHOLD"] = users
    return own


class Worker(Child):
    """A contender's process.

    Parameters
    ----------
    contender : str
        The contender's name.
    identified : list of str
        The device, as `clgemm.hardware.identity.identity` returns it.
    variables : mapping of str to str
        Its whole environment.
    """

    def __init__(self, contender: str, identified: list[str], variables: Mapping[str, str]) -> None:
        super().__init__(contender, "clgemm.bench.worker", [contender, *identified], variables)
        self.contender = contender
