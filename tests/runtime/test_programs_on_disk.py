"""Tests of compiled programs on disk."""

from __future__ import annotations

import errno
import logging
import os
import time
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.cache
import pytest

import clgemm
from clgemm.core.cache import program_cache_folder
from clgemm.runtime import programs as module

KEY, OTHER = "ab" * 32, "cd" * 32
ONES = np.ones((40, 40), np.float32)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Set an empty cache folder, and forget which warnings were logged."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    module.warn_once.cache_clear()
    return program_cache_folder()


@pytest.fixture
def kept_here(device, monkeypatch):
    """Return each device, with clgemm's cache even if its driver has a cache of its own."""
    monkeypatch.setattr(module, "_are_cached", lambda _: True)
    return device


def fresh(device):
    """Return a device in a context of its own, in which no program is built."""
    return clgemm.device(clgemm.Device(device.cl_device))


@pytest.fixture
def programs(monkeypatch):
    """Count the programs that are made from source and those from binaries."""
    made = {"source": 0, "binary": 0}
    original = cl.Program

    def spy(*arguments):
        made["binary" if len(arguments) == 3 else "source"] += 1
        return original(*arguments)

    monkeypatch.setattr(cl, "Program", spy)
    return made


def test_what_is_kept_is_found(folder):
    """A stored binary is found under its key, and an unknown key gives None."""
    assert module._load(KEY) is None
    module._store(KEY, b"binary")
    module._store(KEY, b"another")
    assert module._load(KEY) == b"another"
    assert module._load(OTHER) is None
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:10],
        lambda _: b"",
        lambda content: content[:-1] + b"?",
        lambda content: b"?" + content[1:],
        lambda content: content + b"?",
        lambda content: bytes(len(content)),
    ],
)
def test_what_is_damaged_is_not_given_to_the_driver(damage, folder):
    """A file that was cut, changed or lengthened is ignored, and the next store replaces it."""
    module._store(KEY, b"binary")
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert module._load(KEY) is None
    module._store(KEY, b"binary")
    assert module._load(KEY) == b"binary"


def test_another_programs_file_counts_for_nothing(folder):
    """A file that was renamed to another key is ignored."""
    module._store(KEY, b"binary")
    (path,) = folder.iterdir()
    path.rename(path.with_name(path.name.replace(KEY, OTHER)))
    assert module._load(OTHER) is None


@pytest.mark.parametrize(("most_files", "most_bytes"), [(5, 10**6), (100, 5 * 132)])
def test_what_was_used_longest_ago_makes_way(most_files, most_bytes, folder, monkeypatch):
    """The folder keeps its limits of files and bytes, and other programs' files stay in it."""
    monkeypatch.setattr(module, "MOST_FILES", most_files)
    monkeypatch.setattr(module, "MOST_BYTES", most_bytes)
    folder.mkdir(parents=True)
    (folder / "lock").write_text("another program's")
    (folder / "young.new").write_text("another process writes it")
    (folder / "old.new").write_text("nobody writes it")
    os.utime(folder / "old.new", (0, 0))
    keys = [f"{i:064}" for i in range(20)]
    for i, key in enumerate(keys):
        module._store(key, bytes(100))
        path = next(path for path in folder.iterdir() if path.name.startswith(key))
        os.utime(path, (time.time() - 1000 + i,) * 2)
        if i > 0:
            assert module._load(keys[0])  # and so it was used last
    found = {path.name.partition(".")[0] for path in folder.iterdir()}
    assert {keys[0], keys[-1], "lock", "young"} <= found
    assert "old" not in found
    assert len(found) <= 7


def test_a_full_disk_is_named_once(folder, monkeypatch, caplog):
    """On a full disk, one warning names folder and reason, and no unfinished file is left."""

    def full(descriptor, _):
        os.close(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fdopen", full)
    with caplog.at_level(logging.WARNING, "clgemm"):
        module._store(KEY, b"binary")
        module._store(OTHER, b"binary")
    (record,) = caplog.records
    expected = f"compiled programs are not kept: no space left on device in {folder}"
    assert record.getMessage() == expected
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_is_no_obstacle(kept_here, monkeypatch, tmp_path, caplog):
    """Without a cache folder the product is right, and the warning says why nothing is kept."""
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "file"))
    with fresh(kept_here), caplog.at_level(logging.WARNING, "clgemm"):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, ONES, ONES), ONES @ ONES)
    assert f"not a directory in {tmp_path}" in caplog.text


def test_programs_are_built_once(kept_here, programs):
    """A second context loads every binary and compiles nothing."""
    with fresh(kept_here):
        clgemm.sgemm(1.0, ONES, ONES)
    programs.update(source=0, binary=0)
    with fresh(kept_here):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, ONES, ONES), ONES @ ONES)
    assert programs["source"] == 0
    assert programs["binary"] > 0


def test_damaged_files_are_built_anew(kept_here, programs, folder):
    """Damaged binaries are built and stored again, and the product is right."""
    with fresh(kept_here):
        clgemm.sgemm(1.0, ONES, ONES)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for damaged in (True, False):
        programs.update(source=0, binary=0)
        with fresh(kept_here):
            np.testing.assert_array_equal(clgemm.sgemm(1.0, ONES, ONES), ONES @ ONES)
        assert (programs["source"] > 0, programs["binary"] > 0) == (damaged, not damaged)


def test_a_binary_that_the_driver_refuses_is_built_anew(kept_here, monkeypatch, folder):
    """A binary that the driver refuses, as after an update, is built again."""
    with fresh(kept_here):
        clgemm.sgemm(1.0, ONES, ONES)
    original = cl.Program

    def refusing(*arguments):
        if len(arguments) == 3:
            raise cl.LogicError("INVALID_BINARY")
        return original(*arguments)

    monkeypatch.setattr(cl, "Program", refusing)
    with fresh(kept_here):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, ONES, ONES), ONES @ ONES)
    assert list(folder.iterdir())


def test_nobody_waits_for_a_lock_that_a_dead_process_left(kept_here, monkeypatch, folder):
    """A dead process's lock delays nothing, because pyopencl's cache is not used."""
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    asked = []
    cached = "create_built_program_from_source_cached"
    monkeypatch.setattr(pyopencl.cache, cached, lambda *x, **_: asked.append(x))
    with fresh(kept_here):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, ONES, ONES), ONES @ ONES)
    assert not asked


def test_pyopencls_switch_is_ours_too(device, monkeypatch):
    """With PYOPENCL_NO_CACHE, or if the driver has a cache, clgemm caches no binary."""
    monkeypatch.setattr(module, "has_src_build_cache", lambda _: None)
    assert module._are_cached(device.cl_device)
    monkeypatch.setattr(cl, "_PYOPENCL_NO_CACHE", True)
    assert not module._are_cached(device.cl_device)
    monkeypatch.setattr(cl, "_PYOPENCL_NO_CACHE", False)
    monkeypatch.setattr(module, "has_src_build_cache", lambda _: True)
    assert not module._are_cached(device.cl_device)


def test_a_key_names_all_that_a_binary_is_made_of(device):
    """Another source or other options give another key, and the same ones the same key."""
    own = device.cl_device
    keys = [
        module.key_of(own, source, options)
        for source in ("a", "b")
        for options in (["-Dx=1"], ["-Dx=2"], ["-Dx=1", "-Dx=2"])
    ]
    assert len(set(keys)) == len(keys)
    assert module.key_of(own, "a", ["-Dx=1"]) == keys[0]
    assert not Path(keys[0]).suffix
