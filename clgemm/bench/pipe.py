"""The parent's end of a worker: start it, ask it, see it die, end it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any

__all__ = ["RequestError", "Worker", "WorkerDiedError", "environment"]

THREAD_VARIABLES = (
    *(f"{library}_NUM_THREADS" for library in ("OPENBLAS", "OMP", "MKL", "BLIS")),
    "VECLIB_MAXIMUM_THREADS",
    "POCL_MAX_PTHREAD_COUNT",
    "POCL_CPU_MAX_CU_COUNT",  # PoCL from version 4 on
    "DPCPP_CPU_NUM_CUS",  # Intel's runtime
)
SHUT_DOWN_S = 5.0


class RequestError(RuntimeError):
    """A worker could not do what it was asked; it lives on."""


class WorkerDiedError(RuntimeError):
    """A worker ended of its own accord, by a signal or an abort of its compiler."""


def environment(threads: int) -> dict[str, str]:
    """Return the environment of workers that compute with so many threads, always on the device."""
    return {
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "CLGEMM_THRESHOLD": "0",
        "CUPY_TF32": "0",
    }


class Worker:
    """A contender's process, started at the first request and again after a death.

    Parameters
    ----------
    contender : str
    identified : list of str
        The device, as `clgemm.bench.identity.identity` has it.
    variables : mapping of str to str
        Its whole environment.
    """

    def __init__(self, contender: str, identified: list[str], variables: Mapping[str, str]) -> None:
        self.contender = contender
        self.command = [sys.executable, "-m", "clgemm.bench.worker", contender, *identified]
        self.variables = variables
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed by close()

    def ask(self, request: str, **keywords: Any) -> Any:
        """Return the answer to a request, a method of `clgemm.bench.worker.Server`.

        Raises
        ------
        RequestError
            If the worker reports an error.
        WorkerDiedError
            If it ends before it answers; the message has its exit status and last words.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([request, keywords]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerDiedError(self._obituary(process))
        answer = json.loads(line)
        if "error" in answer:
            raise RequestError(answer["error"])
        return answer["result"]

    @property
    def alive(self) -> bool:
        """Whether there is a process now."""
        return self._process is not None

    @property
    def process_id(self) -> int | None:
        """The process's number, if there is one."""
        return self._process.pid if self._process else None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._errors.seek(0)
            self._errors.truncate()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=dict(self.variables),
                text=True,
                encoding="utf-8",
            )
        return self._process

    def _obituary(self, process: subprocess.Popen[str]) -> str:
        self._end(process)
        status = process.returncode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        self._errors.seek(0)
        words = self._errors.read().strip().splitlines()
        return f"{self.contender}'s process died ({how})" + (f": {words[-1]}" if words else "")

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Wait for a process whose input has ended; kill it if it does not see that."""
        self._process = None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):  # what was not yet written to the dead
                if stream is not None:
                    stream.close()
        try:
            process.wait(SHUT_DOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End the process at once, whatever it computes."""
        if self._process is not None:
            self._process.kill()
            self._end(self._process)

    def close_process(self) -> None:
        """End the process; the next request starts another."""
        if self._process is not None:
            self._end(self._process)

    def close(self) -> None:
        """End the process and let its file go."""
        self.close_process()
        self._errors.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an interruption nobody waits for a product that takes seconds.
        if kind is not None:
            self.kill()
        self.close()
