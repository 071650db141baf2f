"""Tests of the cache folder, and of which caches in memory are forgotten with the plans."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import logging
import os
from pathlib import Path

import pytest
from made_records import DIRECT, GPU, LIMITS
from test_imports import MODULES

import clgemm
from clgemm.__main__ import main
from clgemm.core import cache
from clgemm.core.cache import (
    cache_folder,
    make_room,
    program_cache_folder,
    recall,
    remember,
    replace,
    rewrite,
)
from clgemm.kernels.common.family import Choice
from clgemm.records import tuned
from clgemm.tuning.trials import Trial, Trials


def test_rewriting_needs_no_file_to_begin_with(tmp_path):
    """The change is told that there was none."""
    path = tmp_path / "new" / "file"
    rewrite(path, lambda old: f"was {old}")
    rewrite(path, lambda old: f"{old}, then that")
    assert path.read_text() == "was None, then that"


def test_a_cache_folder_that_is_a_file_is_said_once(device, monkeypatch, tmp_path, caplog, capsys):
    """The variable, its value and what happens now; products go on, tuning is refused."""
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(blocked))
    tuned.forget()
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert not list(tuned.candidates(GPU, LIMITS, "direct", "medium"))
        assert not cache.remember("key", 1)
        Trials(GPU).add(Trial("tiny", "8", Choice(DIRECT, None), 1.0, 1.0, ""))
    said = f"CLGEMM_CACHE_DIR={blocked} is a file, not a folder"
    assert caplog.messages == [f"{said}: nothing is kept between runs"]
    assert main(["tune", "--budget", "1"]) == 2
    assert capsys.readouterr().err == f"{said}: no records could be kept\n"
    shown = clgemm.show_config("dicts")["Settings"]["cache folder"]
    assert shown.endswith("it is a file, not a folder; nothing is kept")
    tuned.forget()


def test_the_cache_folder_can_be_moved(monkeypatch):
    """CLGEMM_CACHE_DIR sets the cache folder."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", "/somewhere")
    assert program_cache_folder() == Path("/somewhere/programs")
    monkeypatch.delenv("CLGEMM_CACHE_DIR")
    assert cache_folder().name == "clgemm"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Return an empty cache folder."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("verdict", [True, 0.5, "so", {"reason": ""}, [1, 2]])
def test_a_verdict_is_kept_until_it_is_deleted(folder, verdict):
    """What is stored under a key is found again, until None is stored."""
    assert recall("key") is None
    assert remember("key", verdict)
    assert remember("another key", "another")
    assert recall("key") == verdict
    assert remember("key", None)
    assert recall("key") is None
    assert remember("key", None)
    assert recall("another key") == "another"


@pytest.mark.parametrize(
    "text",
    ["", "no", "[1]", "1", "{}", '{"key": "key"}', '{"key": "another", "verdict": 1}', "\udcff"],
)
def test_a_damaged_verdict_is_none(folder, text):
    """A file that is no verdict, or one on something else, counts as none and is replaced."""
    remember("key", True)
    (file,) = (folder / "verdicts").iterdir()
    file.write_text(text, errors="surrogateescape")
    assert recall("key") is None
    assert remember("key", True)
    assert recall("key") is True


def test_a_verdicts_file_says_what_it_is_about(folder):
    """The key stands in the file, for those who look for it."""
    remember("some device: works", True)
    (file,) = (folder / "verdicts").iterdir()
    assert json.loads(file.read_text()) == {"key": "some device: works", "verdict": True}


def test_a_write_that_fails_leaves_the_file_as_it_was(folder, monkeypatch):
    """No half of the new content stays, neither in the file nor beside it."""
    file = folder / "file"
    replace(file, b"old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        replace(file, b"new")
    assert file.read_bytes() == b"old"
    assert [*folder.iterdir()] == [file]


def test_what_killed_processes_leave_is_removed(folder):
    """Unfinished files go once they have no living writer; younger ones and others stay."""
    old, young, other = (folder / name for name in ("a.new", "b.new", "a.json"))
    for file in (old, young, other):
        file.write_bytes(b"half")
    for file in (old, other):
        os.utime(file, (1e9, 1e9))
    make_room(folder, ".json", 10)
    assert {*folder.iterdir()} == {young, other}
    make_room(folder / "none", ".json", 10)


def test_a_user_without_a_home_has_a_private_temporary_folder(monkeypatch, tmp_path):
    """Neither HOME nor an entry in passwd is needed, and ``~`` in the variable is the home."""
    for variable in ("CLGEMM_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLGEMM_CACHE_DIR", "~/mine")
    assert cache.cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("CLGEMM_CACHE_DIR")

    def no_home(_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(no_home))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert cache.cache_folder() == cache.kept_folder() == tmp_path / f"clgemm-{os.getuid()}"
    cache.kept_folder().chmod(0o777)  # as another user might have made it
    assert cache.kept_folder() == Path(os.devnull) / "clgemm"


@pytest.mark.parametrize("name", ["a" * 300, "file/below"])
def test_a_folder_that_cannot_be_used_costs_time_only(name, monkeypatch, tmp_path):
    """Its name is too long, or it would lie in a file: nothing is kept, and nothing is raised."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / name))
    assert not cache.is_writable(tmp_path / name)
    cache.remember("a key", 1.0)
    assert cache.recall("a key") is None
    assert cache.kept_folder() == tmp_path / name


# Caches that `forget_plans` leaves as they are, and why.
PURE = "the result depends on the arguments only"
SHIPPED = "the files of installed packages do not change"
DEVICES = "users hold these devices and queues, and what belongs to them"
MACHINE = "the processor and its memory stay the same"
ONCE = "a message is logged once, or a folder is made once"
PROGRAM = "a program's name and arguments stay the same, and so does its machine"
NUMPY = "what NumPy was before it was patched; uninstalling puts it back"
KEPT = {
    "accel.patches._signatures": NUMPY,
    "accel.session._patches": NUMPY,
    "accel.session._replacements": NUMPY,
    "bench.contenders._library": SHIPPED,
    "contraction._parsed": PURE,
    "contraction._product": PURE,
    "core.cache.warn_once": ONCE,
    "core.host._blas_name": SHIPPED,
    "core.host._pools": SHIPPED,
    "core.host.blas_label": SHIPPED,
    "core.host.processor_facts": MACHINE,
    "core.problem.dense_layout": PURE,
    "core.transfer.make_stream": PURE,
    "hardware.choice._why_no_device": DEVICES,
    "hardware.device.present": DEVICES,
    "hardware.device.wrapped": DEVICES,
    "hardware.choice._why_not_loaded": DEVICES,
    "hardware.runtimes._temporary_folder": ONCE,
    "hardware.runtimes.installed": SHIPPED,
    "hardware.device._default_config": MACHINE,
    "records.tuned.shipped": SHIPPED,
    "records.tuned.kernels_hash": PURE,
    "records.verdicts._all_kernels": PURE,
    "records.verified.all_verified": SHIPPED,
    "runtime.operands._device_layout": PURE,
    "runtime.operands._unallocated": DEVICES,
    "runtime.kept_memory._most_bytes": MACHINE,
    "transfer.single_transfer._route": PURE,
    "runtime.workspace.workspace": DEVICES,
    "side.preparation._machine": PROGRAM,
    "side.preparation._warn_once": ONCE,
    "core.settings._rule": PURE,
    "core.settings.quick_rule": PURE,
    "runtime.programs._keep_invokers": ONCE,
    "runtime.programs._require_pyopencls_cache": ONCE,
}
# Pure: a function there depends on its arguments, and on source files of the package.
PURE_PACKAGE = "kernels."
CACHED = type(functools.cache(int))


def cached_functions():
    """Each function of the package that functools caches, by its module and name."""
    for module in MODULES:
        if module.rpartition(".")[2] == "__main__":
            continue
        if module.partition(".")[0] == "dask" and not importlib.util.find_spec("distributed"):
            continue  # its extra is not installed
        name = "clgemm" if module == "__init__" else f"clgemm.{module}"
        for attribute, value in vars(importlib.import_module(name)).items():
            if isinstance(value, CACHED) and value.__module__ == name:
                yield f"{module}.{attribute}", value


def test_every_cached_function_is_forgotten_or_has_a_reason_to_stay():
    """A new cache is registered with `forgettable`, or stands in `KEPT` with its reason."""
    found = dict(cached_functions())
    forgotten = {name for name, cached in found.items() if cached.cache_clear in cache._clearers}
    assert forgotten.isdisjoint(KEPT)
    others = {name for name in found if not name.startswith(PURE_PACKAGE)} - forgotten
    assert others == set(KEPT)


def test_forgetting_empties_what_is_registered():
    """A function computes anew, and a cache of another kind is cleared, in the order registered."""
    made, cleared = [], []
    cached = cache.forgettable(functools.cache(made.append))
    cache.on_forget(lambda: cleared.append(list(made)))
    try:
        for _ in range(2):
            cached(1)
        cache.forget_plans()
        cached(1)
    finally:
        del cache._clearers[-2:]
    assert made == [1, 1]
    assert cleared == [[1]]


def test_notes_are_bounded():
    """With as many as allowed, all are dropped, and the newest is kept."""
    notes = {}
    for number in range(5):
        cache.note(notes, number, str(number), 2)
        assert notes[number] == str(number)
    assert notes == {4: "4"}
