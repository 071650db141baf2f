"""The child process of one contender: ``python -m clgemm.bench.worker NAME DEVICE``.

It answers requests by `clgemm.core.child.serve`.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from clgemm.bench.cases import Case, judge, reference
from clgemm.bench.contenders import HOST, PEERS, available, is_ours, prepare
from clgemm.bench.rounds import SKIPPED
from clgemm.core.child import error_text, serve
from clgemm.core.settings import chosen_precision

WARM_S = 1.0  # for longer calls, the first one counts too, though caches may be cold


class Server:
    """The requests to one contender.

    Each method is a request. JSON carries its keyword arguments and its result.
    """

    def __init__(self, contender: str, identified: list[str]) -> None:
        self.contender = contender
        self.identified = identified
        self._device: Any = None
        self._case: Any = None
        self._call: Any = None

    @property
    def device(self) -> Any:
        """The OpenCL device; None for a host's BLAS, beside which no runtime's threads must be."""
        if self._device is None and PEERS.get(self.contender) != HOST:
            import clgemm
            from clgemm.hardware.device import find

            each = [self.identified[i : i + 3] for i in range(0, len(self.identified), 3)]
            devices = [find(one) for one in each]
            clgemm.set_device(*devices)
            self._device = devices[0]  # the others only share products of host arrays
        return self._device

    def about(self) -> dict[str, Any]:
        """Return versions and threads; raise if the contender cannot compete on this device."""
        about: dict[str, Any] = {"version": available(self.contender, self.device)}
        if self.contender == "NumPy":
            return about | _host_blas()
        if self.device is None:
            return about
        return about | {"compute_units": self.device.limits.compute_units}

    def prepare(self, case: dict[str, Any], mode: str) -> float:
        """Make the operands of a product, and return the seconds of a first call."""
        self.release()
        self._case = Case.from_dict(case)
        self._call = prepare(self.contender, self._case, mode, self.device)
        return _seconds(self._call.once)

    def turn(self, seconds: float) -> float:
        """Repeat the call for `seconds`, at least once, and return the median time of a call."""
        once = self._call.once
        first = _seconds(once)
        times = [first] if first > WARM_S else []
        spent = 0.0
        while spent < seconds or not times:
            if times and spent + times[-1] > 2 * seconds:
                break
            times.append(_seconds(once))
            spent += times[-1]
        return median(times)

    def reference(self, case: dict[str, Any], file: str) -> None:
        """Write the product of a case in float64 to a file."""
        self.release()
        np.save(f"{file}.npy", reference(Case.from_dict(case)))

    def judge(self, file: str) -> list[float]:
        """Compare the result of the timed calls with that of `reference`."""
        expected = np.load(f"{file}.npy", mmap_mode="r")
        return [*map(float, judge(self._case, self._call.fetch(), expected, self._precision()))]

    def _precision(self) -> str:
        """Return the mode whose promise the results keep; elsewhere every mode is "strict"."""
        from clgemm.hardware.choice import get_devices

        if is_ours(self.contender) and any(device.traits.is_nvidia for device in get_devices()):
            return chosen_precision()
        return "strict"

    def release(self) -> None:
        """Release the operands."""
        self._call = self._case = None

    def roofs(self) -> dict[str, Any]:
        """Measure the device's arithmetic peak and memory bandwidth."""
        from clgemm.bench.peak import measure

        return measure(self.device)


def _seconds(once: Callable[[], object]) -> float:
    begin = time.perf_counter_ns()
    once()
    return (time.perf_counter_ns() - begin) / 1e9


def _host_blas() -> dict[str, Any]:
    """Return the BLAS that NumPy was built with, its threads and its kernels."""
    built: Any = np.show_config("dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    found: dict[str, Any] = {"blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}"}
    try:
        pools = importlib.import_module("threadpoolctl").threadpool_info()
    except ImportError:
        return found
    for pool in pools:
        if pool["user_api"] == "blas":
            found |= {"threads": pool["num_threads"], "kernels": pool.get("architecture", "")}
    return found


def _message(error: Exception) -> str:
    """Return an error's message, marked as skipped if the library has no such product."""
    if type(error) is NotImplementedError:
        return f"{SKIPPED}{error}"
    return error_text(error)


def main(arguments: list[str]) -> int:
    """Serve until the input ends."""
    serve(Server(arguments[0], arguments[1:]), _message)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
