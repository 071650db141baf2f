"""Child processes that answer requests, with time limits and reports of how they died."""

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

SHUT_DOWN_S = 5.0
ChildType = TypeVar("ChildType", bound="Child")


class RequestError(RuntimeError):
    """A child process reports that a request failed; the process goes on."""


class ChildDiedError(RuntimeError):
    """A child process ended without being asked to, such as by a signal or an abort.

    Attributes
    ----------
    details : str
        What the process wrote to its standard error.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details or message


class ChildTimeoutError(ChildDiedError):
    """A child process took too long to answer and was killed."""


class Child:
    """A process that serves requests.

    The first request starts it; the first request after its end starts another.

    Parameters
    ----------
    name : str
        Its name in messages.
    module : str
        The module that it runs, which calls `serve`.
    arguments : sequence of str
        The module's command line.
    variables : mapping of str to str
        Its whole environment.
    new_session : bool, optional
        Whether to start it in a new session, so that Ctrl-C at the terminal does not reach it.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        new_session: bool = False,
    ) -> None:
        self.name = name
        self.command = [sys.executable, "-m", module, *arguments]
        self.variables = variables
        self.new_session = new_session
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed by close()

    def ask(self, request: str, timeout_s: float | None = None, **keywords: Any) -> Any:
        """Send a request and return the answer.

        Parameters
        ----------
        request : str
            A method of the object that the child process serves; `keywords` are its arguments.
        timeout_s : float, optional
            Seconds after which the child process is killed.

        Raises
        ------
        RequestError
            If the child process reports an error.
        ChildTimeoutError
            If it takes longer than `timeout_s`.
        ChildDiedError
            If it ends before it answers. The message has its exit status and the most telling line
            of its standard error.
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
            raise ChildDiedError(*self._exit_report(process))
        answer = json.loads(line)
        if "error" in answer:
            raise RequestError(answer["error"])
        return answer["result"]

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None

    @property
    def process_id(self) -> int | None:
        """The process's number, or None if none runs."""
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
                start_new_session=self.new_session,
            )
        return self._process

    def _exit_report(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        self._end(process)
        status = process.returncode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        self._errors.seek(0)
        words = self._errors.read().strip()
        cause = telling_line(words, -1)
        return f"{self.name}'s process died ({how})" + (f": {cause}" if cause else ""), words

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Close a process's input and wait for its end; kill it if it does not end."""
        self._process = None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):  # closing flushes, perhaps to a dead process
                if stream is not None:
                    stream.close()
        try:
            process.wait(SHUT_DOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End the process at once, even in the middle of a request."""
        if self._process is not None:
            self._process.kill()
            self._end(self._process)

    def close_process(self) -> None:
        """End the process; the next request starts another."""
        if self._process is not None:
            self._end(self._process)

    def close(self) -> None:
        """End the process and delete the file that holds its standard error."""
        self.close_process()
        self._errors.close()

    def __enter__(self: ChildType) -> ChildType:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an exception, such as Ctrl-C, do not wait for the request in progress.
        if kind is not None:
            self.kill()
        self.close()


def telling_line(text: str, otherwise: int = 0) -> str:
    """Return the first line of a log that names an error.

    Parameters
    ----------
    otherwise : int, optional
        The index of the line to return if no line does.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)]
    return errors[0] if errors else lines[otherwise] if lines else ""


def error_text(error: Exception) -> str:
    """Return an error's message, preceded by its type unless that is plain RuntimeError."""
    return str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"


def serve(server: object, message: Callable[[Exception], str] = error_text) -> None:
    """Answer requests from the standard input until it ends.

    A request is a line of JSON and so is its answer. The input ends with the parent process, so
    this process cannot outlive its parent.

    Parameters
    ----------
    server : object
        Each request names one of its methods.
    message : callable, optional
        Returns the message for an exception.
    """
    # Runtimes and compilers print to the standard output: the answers use another descriptor.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, keywords = json.loads(line)
        try:
            answer = {"result": getattr(server, name)(**keywords)}
        except Exception as error:
            answer = {"error": message(error)}
            # The traceback would keep the operands of the failed call in memory.
            error.__traceback__ = None
        print(json.dumps(answer), file=answers, flush=True)


def trial_child(identified: list[str], name: str = "the trial") -> Child:
    """Return a child process that runs trials on a device.

    Parameters
    ----------
    identified : list of str
        The device, as `clgemm.hardware.device.identity` returns it.
    name : str, optional
        Its name in messages.
    """
    # More threads of the host's BLAS would spin while kernels are timed.
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    variables = child_environment() | threads
    return Child(name, "clgemm.tuning.trial", identified, variables, new_session=True)


def child_environment() -> dict[str, str]:
    """Return the environment of a child process that imports clgemm.

    It finds the same modules as this process, and does not accelerate NumPy.
    """
    own = {name: x for name, x in os.environ.items() if not name.startswith("CLGEMM_ACCEL")}
    return own | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
