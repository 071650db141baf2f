"""A child process that is asked and answers: started, timed out, seen to die, ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

__all__ = [
    "Child",
    "ChildDiedError",
    "ChildTimeoutError",
    "RequestError",
    "said",
    "serve",
    "telling_line",
]

SHUT_DOWN_S = 5.0
Own = TypeVar("Own", bound="Child")


class RequestError(RuntimeError):
    """A child could not do what it was asked; it lives on."""


class ChildDiedError(RuntimeError):
    """A child ended of its own accord, by a signal or an abort of its compiler.

    Attributes
    ----------
    details : str
        The end of what it wrote to its standard error.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details or message


class ChildTimeoutError(ChildDiedError):
    """A child did not answer in time, and was ended."""


class Child:
    """A process that serves requests, started at the first one and again after a death.

    Parameters
    ----------
    name : str
        Whose process it is, for messages.
    module : str
        What runs in it, ending in a call of `serve`.
    arguments : sequence of str
        Its command line.
    variables : mapping of str to str
        Its whole environment.
    apart : bool, optional
        Whether a Ctrl-C at the terminal is this process's business only.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        apart: bool = False,
    ) -> None:
        self.name = name
        self.command = [sys.executable, "-m", module, *arguments]
        self.variables = variables
        self.apart = apart
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed by close()

    def ask(self, request: str, timeout_s: float | None = None, **keywords: Any) -> Any:
        """Return the answer to a request, a method of the object that the child serves.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds after which the child is ended.

        Raises
        ------
        RequestError
            If the child reports an error.
        ChildTimeoutError
            If it takes longer than `timeout_s`.
        ChildDiedError
            If it ends before it answers; the message has its exit status and last words.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            process.kill()

        timer = threading.Timer(timeout_s, end) if timeout_s else None
        if timer:
            timer.start()
        try:
            process.stdin.write(json.dumps([request, keywords]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            if timer:
                timer.cancel()
        if not line and overdue.is_set():
            self._end(process)
            raise ChildTimeoutError(f"{self.name}'s process was ended after {timeout_s:g} s")
        if not line:
            raise ChildDiedError(*self._obituary(process))
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
                start_new_session=self.apart,
            )
        return self._process

    def _obituary(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        self._end(process)
        status = process.returncode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        self._errors.seek(0)
        words = self._errors.read().strip()
        told = telling_line(words, -1)
        return f"{self.name}'s process died ({how})" + (f": {told}" if told else ""), words

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

    def __enter__(self: Own) -> Own:
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


def telling_line(text: str, otherwise: int = 0) -> str:
    """Return the line of a log that tells most: the first that names an error.

    Parameters
    ----------
    otherwise : int, optional
        Which line to take if none does.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)]
    return errors[0] if errors else lines[otherwise] if lines else ""


def said(error: Exception) -> str:
    """Return an error's message, with its type unless that says no more than that it is one."""
    return str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"


def serve(server: object, message: Callable[[Exception], str] = said) -> None:
    """Answer requests from the standard input, each a method of `server`, until it ends.

    A request is a line of JSON, and so is its answer; in between the process is blocked on the
    read. It ends with its input, so it cannot outlive its parent.

    Parameters
    ----------
    message : callable, optional
        Makes the message of an exception.
    """
    # Runtimes and compilers print what they like: the answers go through a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, keywords = json.loads(line)
        try:
            answer = {"result": getattr(server, name)(**keywords)}
        except Exception as error:
            answer = {"error": message(error)}
            # The traceback would keep the operands of the failed call.
            error.__traceback__ = None
        print(json.dumps(answer), file=answers, flush=True)


def trial_child(identified: list[str], name: str = "the trial") -> Child:
    """Return the child process that tries choices out on a device.

    Parameters
    ----------
    identified : list of str
        The device, as `clgemm.hardware.identity.identity` has it.
    name : str, optional
        What the child does, for messages.
    """
    paths = [path for path in sys.path if path]  # as this process finds its modules
    # NumPy itself is not to be accelerated there, whatever the user has asked for here.
    own = {name: x for name, x in os.environ.items() if not name.startswith("CLGEMM_ACCEL")}
    variables = own | {
        "PYTHONPATH": os.pathsep.join(paths),
        # The threads of the host's BLAS would go on spinning while kernels are timed.
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
    return Child(name, "clgemm.tuning.trial", identified, variables, apart=True)
