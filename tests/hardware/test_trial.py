"""Tests of trials in child processes: their verdicts, and that the program does not notice them."""

from __future__ import annotations

import ast
import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import planted_worker
import pyopencl as cl
import pytest
import workers
from workers import begin_anew

import clgemm
from clgemm.core.child import error_text
from clgemm.core.settings import named
from clgemm.hardware import choice, runtimes, supervisor, trial
from clgemm.hardware.device import identity, where
from clgemm.planning import planner
from clgemm.records import verdicts
from clgemm.trials import worker

pytestmark = pytest.mark.one_device

PLANTED = {
    "refuses": "error: unknown target CPU 'generic'",
    "hangs": "it did not multiply small matrices within 2 s",
    "aborts": "the trial's process died (signal SIGABRT): LLVM ERROR: Cannot select",
    "result": "wrong result at ",
}


@pytest.fixture
def unknown(device, monkeypatch, tmp_path):
    """Return a device without a verdict on disk."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    begin_anew()
    yield device
    monkeypatch.undo()
    begin_anew()


@pytest.fixture
def plant(unknown, monkeypatch):
    """Return a function that plants a fault into the workers of this process."""

    def planted(fault):
        workers.plant(monkeypatch, fault)
        return unknown

    return planted


def checked(device):
    """Return the verdict on a device."""
    return choice.checked([device])[0]


def test_a_device_that_works_is_checked_once(unknown, monkeypatch):
    """A device that works is checked once, and the next process reads the verdict from disk."""
    assert checked(unknown).reason == ""
    begin_anew()
    monkeypatch.setattr(trial, "request", lambda *_, **__: pytest.fail("it is checked again"))
    assert checked(unknown).reason == ""
    assert choice.takes_addresses(unknown) == unknown.claims_addresses


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_is_found_and_named_in_one_line(fault, plant, monkeypatch):
    """A failed build, a hang, a crash and a wrong result each give a reason of one line."""
    monkeypatch.setattr(trial, "JOB_SECONDS", 2.0 if fault == "hangs" else 60.0)
    verdict = checked(plant(fault))
    assert PLANTED[fault] in verdict.reason
    assert "\n" not in verdict.reason
    begin_anew()
    monkeypatch.setattr(trial, "request", lambda *_, **__: pytest.fail("it is checked again"))
    assert checked(plant(fault)).reason == verdict.reason


def test_a_fault_that_is_seen_once_is_no_verdict(plant, monkeypatch, tmp_path):
    """A crash that does not repeat leaves the device in use."""
    monkeypatch.setenv("PLANTED_MARK", str(tmp_path / "mark"))
    assert checked(plant("once")).reason == ""
    assert (tmp_path / "mark").exists()


# Each at another place; `test_wants_are_no_verdict` has the other texts.
ELSEWHERE = ["terminated", "memory", "import", "bad_alloc", "no device", "context", "queue"]


@pytest.mark.parametrize("fault", ELSEWHERE)
def test_what_is_not_the_devices_fault_is_no_verdict(fault, plant, caplog):
    """A worker that is ended, or lacks memory or a module, leaves the device in use, unchecked."""
    device = plant(fault)
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert checked(device).reason == ""
        np.testing.assert_array_equal(clgemm.sgemm(1.0, [[2.0]], [[3.0]]), [[6.0]])
    assert "is used unchecked: " in caplog.text
    assert not any(json.loads(file.read_text())["verdict"] for file in stored())
    if fault == "terminated":
        plant("none")
        assert checked(device).reason == ""
        assert verdicts.known(verdicts.about_device(where(device))) == verdicts.Verdict(
            addresses=device.claims_addresses
        )


@pytest.mark.parametrize("text", planted_worker.WANTS.values())
def test_wants_are_no_verdict(text):
    """What a driver says where memory or processes are short is not the device's fault."""
    assert worker._is_passing(cl.RuntimeError(text), text)


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EROFS", "EMFILE", "ENFILE", "EAGAIN"])
def test_wants_of_the_system_are_no_verdict(name):
    """Nor is a want of disk space, files or processes, which has another text."""
    number = getattr(errno, name)
    error = OSError(number, os.strerror(number), "file")
    assert worker._is_passing(error, error_text(error))


def stored():
    """Return the files of verdicts."""
    return list((Path(os.environ["CLGEMM_CACHE_DIR"]) / "verdicts").glob("*.json"))


def test_a_launch_that_needs_too_much_is_the_kernels_fault(plant):
    """OUT_OF_RESOURCES at a launch says that a kernel needs too many registers: a verdict."""
    assert "OUT_OF_RESOURCES" in checked(plant("registers")).reason


def test_a_process_without_room_for_a_context_says_so(device, monkeypatch):
    """The error names the device and what the driver says, and the next product tries again."""
    fresh = clgemm.Device(device.cl_device)
    with clgemm.device(fresh):
        with monkeypatch.context() as patch:
            patch.setattr(runtimes, "_contexts", {})
            patch.setattr(cl, "Context", planted_worker.fails("Context failed: OUT_OF_HOST_MEMORY"))
            with pytest.raises(MemoryError, match=r"no room for this process now; .*HOST_MEMORY"):
                clgemm.sgemm(1.0, [[2.0]], [[3.0]])
        np.testing.assert_array_equal(clgemm.sgemm(1.0, [[2.0]], [[3.0]]), [[6.0]])


@pytest.mark.skipif(os.name == "nt", reason="takes descriptors")
def test_a_fault_is_told_where_no_process_can_store_it(unknown):
    """If no worker starts for that, the parent gets an answer, and the verdict with it."""
    answers, theirs = os.pipe()
    settings = {"parent": os.getpid(), "started": "", "workers": 1, "answers": theirs}
    served = supervisor.Supervisor(settings)
    verdict = {"key": ["a config"], "reason": "it crashed", "details": ""}
    served.waiting.append({"ask": "condemn", "with": verdict, "for": {"ask": "plan", "id": 3}})
    served._cannot_start("Resource temporarily unavailable")
    (answer,) = os.read(answers, 2**16).splitlines()
    for each in (answers, theirs):
        os.close(each)
    assert json.loads(answer) == {
        "outcome": "unchecked",
        "reason": "Resource temporarily unavailable",
        "id": 3,
        "rejected": [verdict],
    }
    assert not served.waiting


def test_a_device_that_fails_with_addresses_works_with_buffers(plant):
    """Only addresses are left out."""
    device = plant("addresses")
    assert checked(device).reason == ""
    assert not choice.takes_addresses(device)


def version_of(device):
    """Return what tells a platform from another one of the same name, such as two PoCLs."""
    return device.platform.partition(", ")[2].partition("  ")[0].strip()


@pytest.mark.every_device  # CI has two PoCLs for it
def test_a_device_that_fails_is_refused_by_name(plant, monkeypatch):
    """Once a check has failed, the error names device, reason and remedy, and has the log."""
    device = plant("refuses")
    checked(device)
    platform = version_of(device)
    for refused in (device, device.cl_device, device.context, platform):
        with pytest.raises(RuntimeError, match="unknown target CPU 'generic'\nWhat helps: ") as got:
            clgemm.set_device(refused)
        assert device.label in str(got.value)
        assert "log: (options" not in str(got.value)
        assert "log: (options" in str(got.value.__cause__)
    monkeypatch.setenv("CLGEMM_DEVICE", platform)
    monkeypatch.setattr(named, "by_process", None)
    with pytest.raises(RuntimeError, match=rf"^CLGEMM_DEVICE={re.escape(platform)}: .*generic"):
        clgemm.sgemm(1.0, [[1.0]], [[1.0]])


def test_naming_a_device_waits_for_no_check(plant):
    """A device is named without a check; `sgemm` then raises the check's error."""
    device = plant("refuses")
    clgemm.set_device(device)
    assert verdicts.known(verdicts.about_device(where(device))) is None
    with pytest.raises(choice.BrokenDeviceError, match="unknown target CPU 'generic'"):
        clgemm.sgemm(1.0, [[1.0]], [[1.0]])


class Stand:
    """A stand-in for a device, with nothing but a name and a kind."""

    def __init__(self, name, kind="CPU"):
        self.name = self.label = self.platform = name
        self.kind = kind


@pytest.fixture
def listed(monkeypatch):
    """Return a function that makes stand-ins the only devices, some of them broken."""

    def let(*stands, broken=(), fresh=True):
        present = choice.present()._replace(devices=stands)
        monkeypatch.setattr(choice, "present", lambda: present)
        monkeypatch.setattr(choice, "remedy", lambda *_: "another driver")
        monkeypatch.setattr(choice, "findings", list)

        def verdict(device):
            return verdicts.Verdict("it crashes" if device.name in broken else "", "the log")

        monkeypatch.setattr(choice, "verdict_on", verdict)
        monkeypatch.setattr(choice, "_fresh", set(stands) if fresh else set())
        monkeypatch.setattr(named, "by_process", None)
        choice._default.cache_clear()

    yield let
    choice._default.cache_clear()


def test_the_next_best_device_is_used_with_one_warning(listed, caplog):
    """The next best device is used, and one warning names the device, the reason and the remedy."""
    listed(Stand("fast"), Stand("slow"), broken=["fast"])
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert clgemm.get_device().name == clgemm.get_device().name == "slow"
    assert [record.getMessage() for record in caplog.records] == [
        "clgemm: fast cannot be used: it crashes. slow is used instead. What helps: another driver."
    ]
    assert [d.name for d in clgemm.devices()] == ["slow"]
    assert [d.name for d in choice.failed_devices()] == ["fast"]


@pytest.mark.parametrize(("kind", "warns"), [("GPU", 1), ("CPU", 0)])
def test_later_processes_warn_only_if_a_slower_kind_serves(kind, warns, listed, caplog):
    """Later processes warn only if the device in use is of another kind than the broken one."""
    listed(Stand("fast", kind), Stand("slow"), broken=["fast"], fresh=False)
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert clgemm.get_device().name == "slow"
    assert len(caplog.records) == warns


def test_names_prefer_devices_that_work(listed):
    """A name that several devices share names the first of them that works."""
    listed(Stand("amd one"), Stand("amd two"), broken=["amd one"])
    assert choice.find_device("amd").name == choice.find_device("cpu").name == "amd two"
    assert choice.find_device(0).name == "amd two"
    with pytest.raises(RuntimeError, match="amd one cannot be used: it crashes"):
        choice.find_device("amd one")
    with pytest.raises(ValueError, match="'3' names no OpenCL device; there is 0: amd two"):
        choice.find_device("3")


def test_if_no_device_works_the_error_lists_all(listed, monkeypatch):
    """If no device works, sgemm's error lists all of them and matmul uses NumPy."""
    listed(Stand("fast"), Stand("slow"), broken=["fast", "slow"])
    said = (
        "no OpenCL device works here.\n  fast cannot be used: it crashes\n"
        "  slow cannot be used: it crashes\nWhat helps: another driver."
    )
    with pytest.raises(RuntimeError) as got:
        clgemm.sgemm(1.0, [[1.0]], [[1.0]])
    assert str(got.value) == said
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    large = np.ones((1200, 1200), np.float32)
    assert (clgemm.matmul(large, large) == 1200).all()


def test_a_failure_holds_for_a_day_and_an_environment(unknown, monkeypatch):
    """A failure is not believed on another day, or where the environment is another one."""
    key = verdicts.about_device(where(unknown))
    for name in ("today", "environment"):
        verdicts.store(key, verdicts.Verdict("it crashed"))
        verdicts.forget()
        assert verdicts.known(key).reason == "it crashed"
        with monkeypatch.context() as patch:
            if name == "today":
                patch.setattr(verdicts, "today", lambda: "another day")
            else:
                patch.setenv("LD_LIBRARY_PATH", "/another")
            verdicts.forget()
            assert verdicts.known(key) is None


@pytest.mark.parametrize("entry", [True, "no", {"reason": 1}, {"reason": ""}, [], 0.5])
def test_a_damaged_verdict_is_not_believed(entry, unknown):
    """A damaged verdict on disk is ignored."""
    key = verdicts.about_device(where(unknown))
    verdicts.remember(key, entry)
    assert verdicts.known(key) is None


def test_checking_again_forgets_a_failure(plant):
    """``info --check-again`` checks a device anew."""
    device = plant("refuses")
    assert checked(device).reason
    plant("none")
    assert checked(device).reason
    choice.check_again()
    assert checked(device).reason == ""


def test_a_process_that_cannot_start_children_uses_devices_unchecked(unknown, monkeypatch, caplog):
    """If no child process can be started, devices are used unchecked and nothing is stored."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert checked(unknown).reason == ""
    assert "is used unchecked: this program is frozen" in caplog.text
    np.testing.assert_array_equal(clgemm.sgemm(1.0, [[2.0]], [[3.0]]), [[6.0]])
    assert not list(Path(os.environ["CLGEMM_CACHE_DIR"]).glob("verdicts/*"))


def run(code, tmp_path, *options, **variables):
    """Run a program in a new process and a folder of its own; return what it did."""
    paths = [str(Path(clgemm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=environment | {"CLGEMM_CACHE_DIR": str(tmp_path / "cache")} | variables,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )


UNSEEN = """
import os, signal, sys
seen = []
signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))
import clgemm.accel
clgemm.accel.install()
from clgemm.hardware import trial
answer = trial.ask("check", device={device!r})
assert answer["outcome"] == "right", answer
try:
    os.wait()
except ChildProcessError:
    print("no child", seen, clgemm.accel.report().children)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="by a function of Linux's C library")
def test_the_program_does_not_see_the_children(device, tmp_path):
    """There is no child to wait for, no signal, no warning, and no note on child processes."""
    done = run(UNSEEN.format(device=identity(device)), tmp_path, "-X", "dev", "-W", "error")
    assert (done.stdout, done.returncode) == ("no child [] \n", 0), done.stderr
    assert done.stderr == ""


def test_the_current_folder_hides_no_module_from_a_trial(device, tmp_path):
    """Files of the program's folder that are named like modules are not imported."""
    for name in ("random", "queue", "platform", "copy", "types", "numpy", "site"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong module')\n")
    code = (
        "import sys; sys.path.pop(0)\nfrom clgemm.hardware import trial\n"
        f"print(trial.ask('check', device={identity(device)!r})['outcome'])"
    )
    assert run(code, tmp_path).stdout == "right\n"


def test_a_site_that_prints_does_not_disturb_a_trial(device, tmp_path):
    """What Python's start prints in a worker is not taken for an answer."""
    (tmp_path / "sitecustomize.py").write_text("print('hello')\n")
    code = (
        "from clgemm.hardware import trial\n"
        f"print(trial.ask('check', device={identity(device)!r})['outcome'])"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert run(code, tmp_path, PYTHONPATH=path).stdout.endswith("right\n")


def test_processes_that_start_together_check_once(device, tmp_path):
    """Of processes that start together one checks the device, and the others find the verdict."""
    code = (
        "from clgemm.hardware import trial\n"
        f"print(trial.ask('check', device={identity(device)!r}).get('built') is not None)"
    )
    paths = [str(Path(clgemm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CLGEMM_CACHE_DIR": str(tmp_path),
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(3)
    ]
    outputs = [process.communicate()[0].strip() for process in started]
    assert outputs == ["True"] * 3
    found = [json.loads(file.read_text()) for file in (tmp_path / "verdicts").glob("*.json")]
    works = [entry["verdict"] for entry in found if ": works" in entry["key"]]
    assert [verdict["reason"] for verdict in works] == [""]


REST = """
import time
from clgemm.hardware import trial
trial.start(is_urgent=True, does_rest=True)  # otherwise it waits for all that this machine does
while trial.is_running():
    time.sleep(0.1)
    how_far = trial.status()
    if how_far.get("total") and how_far["done"] == how_far["total"]:
        break
print(trial.found_devices()["device"], how_far["waiting"])
print(trial.ask("check", device={device!r})["outcome"])
"""


def test_all_that_may_be_useful_is_done_in_the_background(device, tmp_path):
    """Every family is tried on the chosen device, and its worker goes on with other jobs."""
    platform = version_of(device)
    done = run(REST.format(device=identity(device)), tmp_path, CLGEMM_DEVICE=platform)
    assert done.stdout == f"{identity(device)} 0\nright\n", done.stderr
    found = [json.loads(file.read_text()) for file in (tmp_path / "cache/verdicts").glob("*.json")]
    tried = {entry["key"] for entry in found if entry["key"].startswith(where(device))}
    for family in planner.families(device):
        assert any(f": {family.name} " in key for key in tried), family.name


def test_a_job_after_the_supervisor_has_ended_is_done_by_another(device, tmp_path):
    """It ends by itself when it has had nothing to do for a while."""
    code = f"""
import contextlib, os, signal, time
from clgemm.hardware import trial
def done():
    return trial.ask("check", device={identity(device)!r})["outcome"]
first = done()
for folder in os.listdir("/proc"):
    with contextlib.suppress(OSError, IndexError):
        words = open(f"/proc/{{folder}}/cmdline", "rb").read()
        if b"supervisor.py" in words.split(bytes(1))[3] and {str(tmp_path)!r}.encode() in words:
            os.kill(int(folder), signal.SIGKILL)
time.sleep(0.2)
print(first, done())
"""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("processes cannot be found here")
    assert run(code, tmp_path).stdout == "right right\n"


def supervisors(folder):
    """Return the processes that supervise trials with a cache folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if b"supervisor.py" in words and str(folder).encode() in words:
            found.append(int(path.name))
    return found


LEAVES = """
import os, sys, time
from clgemm.hardware import trial
trial.start(is_urgent={urgent}, outlives={outlives})  # else it waits for all that this machine does
trial.request("check", device={device!r})
time.sleep({seconds})
print("over", flush=True)
{end}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), 9)", "os._exit(3)", "1 / 0"])
def test_no_process_outlives_the_program_for_long(end, device, tmp_path):
    """Seconds after the program, however it ends, no process and no unfinished file is left."""
    code = LEAVES.format(device=identity(device), seconds=0.4, end=end, urgent=True, outlives=False)
    begun = time.monotonic()
    done = run(code, tmp_path)
    assert done.stdout == "over\n"
    assert time.monotonic() - begun < 8  # it does not wait for them
    deadline = time.monotonic() + 30
    while supervisors(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not supervisors(tmp_path)
    assert not list((tmp_path / "cache").rglob("*.new"))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_is_asked_for_at_the_end_is_done_after_it(device, tmp_path):
    """All jobs, and what they find is on disk; then no process is left."""
    end = f"""
for size in (96, 97, 98):
    lying = (size, size), (size, 1)
    key = f"product {{size}}"
    trial.request("product", device={identity(device)!r}, a=lying, b=lying, shape=(size, size),
                  precision="strict", key=key, is_symmetric=False, dtypes=())"""
    code = LEAVES.format(device=identity(device), seconds=0, end=end, urgent=True, outlives=True)
    assert run(code, tmp_path).stdout == "over\n"
    deadline = time.monotonic() + supervisor.OUTLIVES_SECONDS + 30
    while supervisors(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not supervisors(tmp_path)
    read = "print([cache.recall(f'product {n}') for n in (96, 97, 98)])"
    found = ast.literal_eval(run(f"from clgemm.core import cache\n{read}", tmp_path).stdout)
    assert all(isinstance(each, float) for each in found), found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupt_reaches_the_program_alone(device, tmp_path):
    """Ctrl-C at the terminal does not reach the processes of trials, and the program ends by it."""
    code = LEAVES.format(device=identity(device), seconds=20, end="", urgent=False, outlives=False)
    paths = [str(Path(clgemm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CLGEMM_CACHE_DIR": str(tmp_path),
    }
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 20
    policies = []
    while os.SCHED_IDLE not in policies and time.monotonic() < deadline:
        time.sleep(0.02)
        policies = [os.sched_getscheduler(pid) for pid in supervisors(tmp_path)]
    assert os.SCHED_IDLE in policies  # the worker
    assert all(os.getpgid(pid) != program.pid for pid in supervisors(tmp_path)[:1])
    assert os.getpriority(os.PRIO_PROCESS, supervisors(tmp_path)[0]) == 19
    os.killpg(program.pid, signal.SIGINT)
    assert program.communicate()[1].endswith("KeyboardInterrupt\n")
    assert program.returncode == -signal.SIGINT


FORKS = """
import os, sys, time
from clgemm.hardware import trial
trial.start(is_urgent=True)
number = trial.request("check", device={device!r})
for _ in range(5):
    time.sleep(0.15)
    child = os.fork()
    if not child:
        import pyopencl
        assert not trial.is_running()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(trial.wait(number)["outcome"])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_during_trials_is_safe(device, tmp_path):
    """A forked child leaves the parent's trials alone, and may import pyopencl."""
    done = run(FORKS.format(device=identity(device)), tmp_path)
    assert (done.stdout, done.stderr) == ("right\n", "")


def test_a_disk_that_is_full_costs_time_only(device, monkeypatch):
    """Where nothing can be stored, a trial's verdict holds for this process."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", os.devnull)
    begin_anew()
    try:
        assert checked(device).reason == ""
        np.testing.assert_array_equal(clgemm.sgemm(1.0, [[2.0]], [[3.0]]), [[6.0]])
    finally:
        monkeypatch.undo()
        begin_anew()
