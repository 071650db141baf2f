"""The supervisor of trials: a process that starts workers, gives them jobs and survives their end.

`clgemm.hardware.trial` runs this file as a script, isolated: it imports the standard library alone,
and a worker imports what the parent process imports. A job is a line of JSON, and so is its answer.

A worker crashes, hangs or gives wrong results where a driver does. The supervisor repeats such a
job once in another worker. What fails twice is the device's fault: the next worker stores that, and
does the job by other kernels.
What another process or the system ends says nothing about the device, nor does a want of memory.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

TICK_SECONDS = 0.25
FINISH_SECONDS = 7.0  # what workers have to finish their job once the parent has ended
OUTLIVES_SECONDS = 20.0  # what they have for all jobs of a parent that starts them as it ends
IDLE_SECONDS = 20.0  # after which workers without a job end
NICE, PATIENCE = 19, 8  # how much longer than the limit a job of low priority may take
MOST_REJECTED = 8  # faults that are seen twice, after which a job fails
FAULTS = ("crash", "hang", "refused", "wrong")  # outcomes that are the device's fault if seen twice
# Signals by which a process itself fails. By others, somebody else ends it.
OWN_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
# Errors that pass: other processes take memory, places or disks. OUT_OF_RESOURCES is one where an
# object is made. At a launch it is the kernel's fault, which needs too many registers.
PASSING = re.compile(
    r"OUT_OF_HOST_MEMORY|MEM_OBJECT_ALLOCATION_FAILURE"
    r"|\b(clCreate)?(Context|CommandQueue\w*|Buffer|create_buffer) failed: "
    r"(OUT_OF_RESOURCES|DEVICE_NOT_AVAILABLE)"
    r"|MemoryError|bad_alloc|out of memory|(cannot|can't|unable to) allocate"
    r"|resource temporarily unavailable|start new thread|too many open files"
    r"|no space left|quota exceeded|read-only file system",
    re.IGNORECASE,
)
LAST_LINES = 5  # of what a process wrote, which say why it ended

Message = dict[str, Any]


def is_passing(text: str) -> bool:
    """Return whether an error says nothing about the device: the next process may not meet it."""
    return PASSING.search(text) is not None


def low_priority(is_busy: bool) -> None:
    """Give way to all other processes.

    For those that compute, `nice` alone is not enough: on 16 cores, one process of nice 19 makes a
    program whose BLAS has 16 threads twice as slow, since each product waits for the thread that
    shares its core. A core that runs nothing but SCHED_IDLE is an idle one to Linux.
    """
    with contextlib.suppress(OSError):
        if os.name == "nt":
            import ctypes

            kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
            kernel.SetPriorityClass(kernel.GetCurrentProcess(), 0x40)  # IDLE_PRIORITY_CLASS
        else:
            os.nice(NICE)
    if is_busy and sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Parent:
    """The process that asked for the trials; whether it still runs."""

    def __init__(self, pid: int, started: str) -> None:
        self._pid, self._started = pid, started
        self._descriptor = -1
        with contextlib.suppress(OSError, AttributeError):
            self._descriptor = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]

    def has_ended(self) -> bool:
        """Return whether the process has ended, whoever else may hold its pipes."""
        if self._descriptor >= 0:
            import select

            return bool(select.select([self._descriptor], [], [], 0)[0]) or self._is_another()
        if os.name == "nt":
            return not _runs_on_windows(self._pid)
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return self._is_another()

    def _is_another(self) -> bool:
        return started_at(self._pid) != self._started


def started_at(pid: int) -> str:
    """Return when a process was started, as Linux counts; "" where that is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes long to import
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def _runs_on_windows(pid: int) -> bool:
    import ctypes

    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    handle = kernel.OpenProcess(0x00100000, False, pid)  # SYNCHRONIZE
    if not handle:
        return False
    runs = kernel.WaitForSingleObject(handle, 0) == 0x102  # WAIT_TIMEOUT
    kernel.CloseHandle(handle)
    return bool(runs)


class Slot:
    """One of the places for workers of low priority that all processes of a user share."""

    def __init__(self, folder: str, number: int) -> None:
        path = os.path.join(folder, f"worker-{number}.lock")  # noqa: PTH118 - as above
        self._file = open(path, "ab")  # noqa: PTH123, SIM115 - as above; closed by the process's end
        try:
            if os.name == "nt":
                import msvcrt

                msvcrt.locking(self._file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
            else:
                import fcntl

                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise

    def release(self) -> None:
        """Leave the place to others."""
        self._file.close()


class Worker:
    """A process that does one job at a time."""

    def __init__(self, supervisor: Supervisor, slot: Slot | None, is_urgent: bool) -> None:
        self.slot, self.is_urgent = slot, is_urgent
        self.job: Message | None = None  # what it does now
        # The keys of the verdicts that the job is about, as the worker has announced them.
        self.about: list[str] = []
        self.is_ready = False  # whether it has imported everything
        self.since = self.idle_since = time.monotonic()
        self._errors = _errors_file()
        settings = supervisor.settings | {"nice": not is_urgent}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", os.path.abspath(__file__), "work", json.dumps(settings)],  # noqa: PTH100
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors or subprocess.DEVNULL,
        )
        threading.Thread(target=self._read, args=(supervisor.events,), daemon=True).start()

    def _read(self, events: queue.Queue[Any]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            events.put(("answer", self, line))
        events.put(("gone", self, b""))

    def give(self, job: Message) -> None:
        """Start a job."""
        self.job, self.about, self.since = job, [], time.monotonic()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: that is noticed
            self.process.stdin.write((json.dumps([job["ask"], job["with"]]) + "\n").encode())
            self.process.stdin.flush()

    def said(self) -> str:
        """Return what the process wrote to its error stream."""
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return str(self._errors.read().decode("utf-8", "replace")).strip()

    def forget(self) -> int:
        """Return the exit status of a process that has ended."""
        status = self.process.wait()
        for file in (self.process.stdin, self._errors):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()
        if self.slot is not None:
            self.slot.release()
        return status


def _errors_file() -> Any:
    """Return a file for an error stream; None if there is no space for one."""
    try:
        if hasattr(os, "memfd_create"):
            return os.fdopen(os.memfd_create("errors"), "w+b")
        import tempfile

        return tempfile.TemporaryFile()
    except OSError:
        return None


class Supervisor:
    """The jobs, the workers, and what the parent is told.

    Parameters
    ----------
    settings : dict
        ``requests`` and ``answers``: descriptors. ``parent`` and ``started``: its number and start.
        ``packages``: the folders of packages that workers import, by name. ``module``: what workers
        run. ``folder``: the cache folder, or None. ``workers``: the most of low priority.
        ``limits``: seconds for the start of a worker and for a job. ``rest``: whether to do more
        than was asked for. ``outlives``: whether to do all of it once the parent has ended.
    """

    def __init__(self, settings: Message) -> None:
        self.settings = settings
        self.events: queue.Queue[Any] = queue.Queue()
        self.parent = Parent(settings["parent"], settings["started"])
        self.waiting: list[Message] = []
        self.workers: list[Worker] = []
        self.done, self.total = 0, 0
        self.most = settings["workers"]
        self.start_failures = 0
        self.ends_at: float | None = None
        self.asked_for_rest: set[str] = set()
        self.last_event = time.monotonic()
        self.told: Message = {}
        self._unsent = b""
        with contextlib.suppress(OSError, AttributeError):
            os.set_blocking(settings["answers"], False)  # the parent may not read for long

    def run(self) -> None:
        """Serve the parent until it has ended, or nothing is to be done for a while."""
        threading.Thread(target=self._read_requests, daemon=True).start()
        if self.settings["first"]:
            self._start(is_urgent=self.settings["urgent"])
        while True:
            try:
                kind, worker, line = self.events.get(timeout=TICK_SECONDS)
            except queue.Empty:
                kind = ""
            if kind == "request":
                self._accept(json.loads(line))
            elif kind == "answer":
                self._answered(worker, json.loads(line))
            elif kind == "gone" and worker in self.workers:
                self._gone(worker)
            elif kind == "closed":
                self._end()
            if self._has_ended():
                return

    def _read_requests(self) -> None:
        with os.fdopen(self.settings["requests"], "rb") as requests:
            for line in requests:
                self.events.put(("request", None, line))
        self.events.put(("closed", None, b""))  # nobody holds the other end any more

    def _accept(self, job: Message) -> None:
        self.last_event = time.monotonic()
        if job["ask"] == "rest":
            self.settings["rest"] = True
            self._add_rest(job["with"]["device"])
        else:
            self.total += 1
            self.waiting.append(job)
        self._assign()

    def _assign(self) -> None:
        """Give waiting jobs to workers, urgent ones first, and start workers for others."""
        if self.ends_at is not None and not self.settings["outlives"]:
            return
        self.waiting.sort(key=lambda job: (not job.get("urgent"), job.get("rest", False)))
        free = [worker for worker in self.workers if worker.is_ready and worker.job is None]
        for worker, job in zip(free, list(self.waiting), strict=False):
            worker.give(job)
            self.waiting.remove(job)
        starting = sum(not worker.is_ready for worker in self.workers)
        if len(self.waiting) > starting:
            self._start(is_urgent=bool(self.waiting[0].get("urgent")))
        self._tell()

    def _start(self, is_urgent: bool) -> None:
        """Start a worker, unless there are enough."""
        slot = None
        folder = self.settings["folder"]
        if is_urgent:
            if sum(worker.is_urgent for worker in self.workers) >= max(self.most, 1):
                return
        else:
            if len(self.workers) >= self.most:
                return
            if folder is not None:
                slot = self._free_slot(folder)
                if slot is None and self.settings["folder"] is not None:
                    return
        try:
            self.workers.append(Worker(self, slot, is_urgent))
        except (OSError, RuntimeError, MemoryError) as error:  # no process, thread or memory
            if slot is not None:
                slot.release()
            self._cannot_start(str(error))

    def _free_slot(self, folder: str) -> Slot | None:
        try:
            for number in range(self.most):
                with contextlib.suppress(BlockingIOError):
                    return Slot(folder, number)
        except OSError:  # locks or files are impossible there
            self.settings["folder"] = None
        return None

    def _cannot_start(self, reason: str) -> None:
        """Answer all that waits: no worker starts."""
        for job in self.waiting:
            message: Message = {"outcome": "unchecked", "reason": reason}
            if job["ask"] == "condemn":  # nobody stores it, and the parent learns it all the same
                verdict, job = job["with"], job["for"]
                job = job | {"rejected": [*job.get("rejected", ()), verdict]}
            if "id" in job:
                self._send(message | {"id": job["id"], "rejected": job.get("rejected", [])})
        self.waiting.clear()

    def _answered(self, worker: Worker, message: Message) -> None:
        self.last_event = time.monotonic()
        if message.keys() == {"about"}:
            worker.about = message["about"]
            return
        if "ready" in message:
            worker.is_ready, self.start_failures = True, 0
            worker.idle_since = time.monotonic()
            most = message["ready"].pop("most_workers", self.most)
            self.most = max(1, min(self.most, most))
            self._send({"ready": message["ready"]})
            if self.settings["rest"] and message["ready"].get("device"):
                self._add_rest(message["ready"]["device"])
        else:
            job, worker.job = worker.job, None
            worker.idle_since = time.monotonic()
            assert job is not None
            if job["ask"] == "rest_of" and "id" not in job:  # else the parent asks for each
                for each in message.get("jobs", ()):  # none if it failed
                    self.total += 1
                    self.waiting.append({"ask": each[0], "with": each[1], "rest": True})
            else:
                if job["ask"] == "calibrate" and "id" not in job:
                    self._add_rest(job["with"]["device"], is_calibrated=True)
                self._finished(worker, job, message)
        self._assign()

    def _add_rest(self, device: Any, is_calibrated: bool = False) -> None:
        """Let a worker list what else is worth doing: once, and again after a calibration."""
        if (key := json.dumps([device, is_calibrated])) not in self.asked_for_rest:
            self.asked_for_rest.add(key)
            wanted = {"device": device, "is_calibrated": is_calibrated}
            self.waiting.append({"ask": "rest_of", "with": wanted, "rest": True})

    def _finished(self, worker: Worker, job: Message, message: Message) -> None:
        """Pass an answer on, unless it is a fault that was seen once."""
        outcome = message.get("outcome", "")
        if outcome in FAULTS and job["ask"] != "condemn":
            about = message.get("about") or worker.about
            reason, details = message.get("reason", ""), message.get("details", "")
            if not job.get("was_tried"):  # once more, by another worker
                self.waiting.insert(0, job | {"was_tried": True})
                self._end_worker(worker)
                return
            if about:
                verdict = {"key": list(about), "reason": reason, "details": details}
                self.waiting.insert(
                    0, {"ask": "condemn", "with": verdict, "for": job, "urgent": True}
                )
                return
        if job["ask"] == "condemn":
            verdict, job = job["with"], job["for"]
            rejected = [*job.get("rejected", ()), verdict]
            if len(rejected) < MOST_REJECTED:  # once more, by what is used instead
                self.waiting.insert(0, job | {"was_tried": False, "rejected": rejected})
                return
            message = {"outcome": "failed"} | verdict
        self.done += 1
        if "id" in job:
            self._send(message | {"id": job["id"], "rejected": job.get("rejected", [])})

    def _gone(self, worker: Worker) -> None:
        """Judge the end of a worker that was not asked to end."""
        self.workers.remove(worker)
        said = worker.said()
        status = worker.forget()
        job = worker.job
        how, is_own = _how(status)
        cause = _telling(said)
        if not worker.is_ready:
            self._start_failed(worker, f"{how}: {cause}", is_own)
        elif job is not None:
            reason = f"the trial's process died ({how})" + (f": {cause}" if cause else "")
            last = " ".join(said.splitlines()[-LAST_LINES:])
            outcome = "crash" if is_own and not is_passing(last) else "unchecked"
            self._judged(worker, job, outcome, reason, said)
        self._assign()

    def _judged(self, worker: Worker, job: Message, outcome: str, reason: str, said: str) -> None:
        message = {"outcome": outcome, "reason": reason, "details": said or reason}
        self._finished(worker, job, message | {"about": worker.about})

    def _start_failed(self, worker: Worker, reason: str, is_own: bool) -> None:
        """Judge a worker that ended before it was ready: it could not import or list devices."""
        self.start_failures += 1
        if self.start_failures < 2 and is_own:
            self._start(worker.is_urgent)
            return
        self._cannot_start(f"no worker could be started ({reason})")

    def _has_ended(self) -> bool:
        """Enforce limits; return whether the supervisor has nothing left to do."""
        now = time.monotonic()
        self._flush()
        if self.ends_at is None and self.parent.has_ended():
            self._end()
        for worker in list(self.workers):
            start_s, job_s = self.settings["limits"]
            limit = (start_s if not worker.is_ready else job_s) * (
                1 if worker.is_urgent else PATIENCE
            )
            is_idle = worker.is_ready and worker.job is None
            if is_idle and (self.ends_at is not None or now > worker.idle_since + IDLE_SECONDS):
                self._end_worker(worker)
            elif not is_idle and now > worker.since + limit:
                self._overdue(worker, limit)
        if self.ends_at is not None and (not self.workers or now > self.ends_at):
            for worker in list(self.workers):
                self._end_worker(worker)
            return True
        if self.waiting and self.ends_at is None and not self.workers:
            self._assign()  # a place may have become free
        return not (self.workers or self.waiting) and now > self.last_event + IDLE_SECONDS

    def _end(self) -> None:
        """Start nothing any more, since the parent has ended, unless that was wanted."""
        if self.ends_at is not None:
            return
        outlives = self.settings["outlives"]
        self.ends_at = time.monotonic() + (OUTLIVES_SECONDS if outlives else FINISH_SECONDS)
        if outlives:
            return
        # Let each worker finish its job, or the first if it still imports; drop the others.
        starting = [worker for worker in self.workers if not worker.is_ready]
        self.waiting.sort(key=lambda job: job.get("rest", False))
        first = self.waiting[: len(starting)]
        self.waiting.clear()
        for worker, job in zip(starting, first, strict=False):
            worker.is_ready = True  # what it is given waits in its pipe
            worker.give(job)
        for worker in starting[len(first) :]:
            self._end_worker(worker)

    def _end_worker(self, worker: Worker) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
            worker.process.kill()
            worker.forget()

    def _overdue(self, worker: Worker, limit: float) -> None:
        said = worker.said()
        self._end_worker(worker)
        if not worker.is_ready:
            self._start_failed(worker, f"it took more than {limit:g} s", is_own=True)
        elif worker.job is not None:
            reason = f"it did not multiply small matrices within {limit:g} s"
            self._judged(worker, worker.job, "hang", reason, said)
        self._assign()

    def _tell(self) -> None:
        """Tell the parent how far all is, if that has changed."""
        doing = [worker.job["ask"] for worker in self.workers if worker.job is not None]
        now = {"done": self.done, "total": self.total, "doing": doing, "waiting": len(self.waiting)}
        if now != self.told:
            self.told = now
            self._send({"status": now})

    def _send(self, message: Message) -> None:
        self._unsent += (json.dumps(message) + "\n").encode()
        self._flush()

    def _flush(self) -> None:
        """Send what the pipe takes."""
        with contextlib.suppress(OSError):  # the parent has ended, or does not read now
            while self._unsent:
                self._unsent = self._unsent[os.write(self.settings["answers"], self._unsent) :]


def _how(status: int) -> tuple[str, bool]:
    """Return how a process ended, and whether it was by a fault of its own."""
    if status >= 0:
        return f"exit status {status}", bool(status)
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return f"signal {name}", name in OWN_SIGNALS


def _telling(text: str) -> str:
    """Return the last line of a text that names an error, or its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[-1]


class _Given:
    """Finds the packages that the parent has, where the parent has them."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, *_: Any) -> Any:
        if name not in self._folders:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._folders[name]])


def work(settings: Message) -> None:
    """Be a worker: import what the parent imports, and do jobs until the input ends."""
    requests, answers = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as null:  # noqa: PTH123 - as above
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)  # runtimes and compilers print
    if settings["nice"]:
        low_priority(is_busy=True)
    # More threads of the host's BLAS would take cores from the program.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    import site

    site.main()
    sys.path += [path for path in settings["packages"].values() if path not in sys.path]
    sys.meta_path.insert(0, _Given(settings["packages"]))
    importlib.import_module(settings["module"]).main(requests, answers, settings)


def main() -> None:
    """Run as a script: ``supervisor.py supervise|work SETTINGS``."""
    role, settings = sys.argv[1], json.loads(sys.argv[2])
    for name in ("SIGINT", "SIGHUP", "SIGTSTP", "SIGPIPE"):  # those of the program's terminal
        with contextlib.suppress(AttributeError, OSError, ValueError):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(AttributeError):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # all are blocked at the start
    if role == "work":
        work(settings)
        return
    if "handles" in settings:
        import msvcrt

        opened: Any = msvcrt
        settings["requests"] = opened.open_osfhandle(settings["handles"][0], os.O_RDONLY)
        settings["answers"] = opened.open_osfhandle(settings["handles"][1], 0)
    with contextlib.suppress(AttributeError, OSError):
        os.setpgid(0, 0)
    if not settings["urgent"]:
        low_priority(is_busy=False)
    Supervisor(settings).run()


if __name__ == "__main__":
    main()
