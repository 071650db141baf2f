"""Tests of the look-up of records, and of the files that hold them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import CPU, DIRECT, GPU, LIMITS, record, served

from clgemm.core.problem import SHAPE_CLASSES
from clgemm.records import lookup
from clgemm.records.record import findings_from


def test_the_order_of_look_up(alone):
    """First this user's; then shipped for this device; the same architecture, vendor, type."""
    configs = [replace(DIRECT, work_m=work_m) for work_m in (1, 2, 3, 4, 5, 6)]
    others = {"name": "B", "architecture": "capability 9.0"}
    alone(
        record(GPU._replace(**others, vendor="AMD"), configs[5]),
        record(GPU._replace(**others), configs[4]),
        record(GPU._replace(name="A30"), configs[3]),
        record(GPU._replace(driver="550"), configs[2]),
        record(GPU, configs[1]),
        record(CPU, DIRECT),
        record(GPU, DIRECT, "small"),
    )
    lookup.store(GPU, record(GPU, configs[0]))
    validated = [True, True, False, False, False, False]
    assert served() == list(zip(configs, validated, strict=True))
    assert not served(family="tiled")


def test_only_the_same_vector_extension_and_runtime_count_on_a_cpu(alone):
    """A record serves other processors of its kind under its runtime, of any version, only."""
    alone(record(CPU, DIRECT))
    newer = CPU.platform.replace(CPU.platform.split(",")[-1], " of another version")
    assert served(CPU._replace(name="Epyc", platform=newer)) == [(DIRECT, False)]
    assert not served(CPU._replace(platform="Another OpenCL, 3.1"))
    assert not served(CPU._replace(architecture="AVX2"))


def test_a_record_that_the_device_cannot_run_does_not_serve(alone):
    """Its work-groups are too large here."""
    alone(record())
    assert served() == [(DIRECT, True)]
    assert not served(limits=replace(LIMITS, work_group_size=63))


def test_shipped_records_of_other_kernels_are_tried_first(alone):
    """They were validated with those."""
    alone(record(kernels="0" * 16))
    assert served() == [(DIRECT, False)]


def test_stale_records_are_left_out_with_one_warning(alone, caplog):
    """Found with another driver, with other kernels, malformed: one warning for the whole file."""
    lookup.store(GPU, record(), record(name="small", kernels="0" * 16))
    path = lookup.user_file(GPU)
    whole = json.loads(path.read_text())
    whole["records"].append({"family": "direct"})
    path.write_text(json.dumps(whole))
    lookup.forget()
    with caplog.at_level(logging.WARNING):
        assert served() == [(DIRECT, True)]
        assert not served(name="small")
        assert not served(family="tiled")
    assert len(caplog.records) == 1
    assert "2 of its records are not used" in caplog.text
    assert "python -m clgemm tune" in caplog.text
    assert not served(GPU._replace(driver="581"))


def test_what_is_shipped_is_in_order():
    """No problem in any file, and one record for each device, family and class."""
    lookup.shipped.cache_clear()
    found = lookup.shipped()
    assert not found.problems
    keys = [(r.device, r.key) for r in found.records]
    assert len(keys) == len(set(keys))
    assert {r.shape_class for r in found.records} <= set(SHAPE_CLASSES)


def run_here(script, *arguments):
    """Start a script that has records and their look-up, but no device."""
    path = [str(Path(__file__).parents[1]), *sys.path]
    known = """
from clgemm.core.cache import remember
from clgemm.core.problem import SHAPE_CLASSES
from clgemm.records import lookup
from made_records import GPU, record
"""
    whole = f"import sys\nsys.path[:0] = {path!r}\n{known}\n{script}"
    command = [sys.executable, "-c", whole, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def as_nobody():
    """With no right to write to anything of ours, root or not."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_full_disk_leaves_what_was_there(alone):
    """Writing fails, with an OSError; the old file is whole, and no other is left."""
    lookup.store(GPU, record())
    path = lookup.user_file(GPU)
    before = path.read_text(), sorted(path.parent.iterdir())
    # In a process that has opened no OpenCL: compilers write files too, and end with the disk.
    done = run_here(
        """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
try:
    lookup.store(GPU, record(name="small"))
except OSError as error:
    print("too large" in str(error), remember("key" * 99, True))
"""
    )
    assert done.communicate(timeout=60)[0].strip() == "True False"
    assert (path.read_text(), sorted(path.parent.iterdir())) == before
    assert served() == [(DIRECT, True)]


def test_a_folder_that_cannot_be_written_is_still_read(alone, monkeypatch):
    """What is there serves; storing fails and changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("CLGEMM_CACHE_DIR", folder)
        lookup.store(GPU, record())
        path = lookup.user_file(GPU)
        before = path.read_text()
        path.chmod(0o444)
        for each in (Path(folder), path.parent):
            each.chmod(0o555)
        with as_nobody():
            assert served() == [(DIRECT, True)]
            with pytest.raises(OSError, match="denied"):
                lookup.store(GPU, record(name="small"))
            assert path.read_text() == before
        for each in (Path(folder), path.parent):
            each.chmod(0o755)


def test_a_file_that_is_broken_is_kept_beside(alone, caplog):
    """The next record begins a new file; the old one's good records and its text are not lost."""
    lookup.store(GPU, record())
    path = lookup.user_file(GPU)
    broken = path.read_text()[:-40]
    path.write_text(broken)
    lookup.forget()
    with caplog.at_level(logging.WARNING):
        assert not served()
        lookup.store(GPU, record(name="small"))
    assert served(name="small") == [(DIRECT, True)]
    assert path.with_suffix(".broken").read_text() == broken


def test_writers_do_not_lose_each_others_records(alone, tmp_path):
    """Two processes store ten records each, at the same time."""
    script = """
for number in range(10):
    lookup.store(GPU, record(name=SHAPE_CLASSES[int(sys.argv[1]) + number % 4]))
"""
    both = [run_here(script, first) for first in ("0", "4")]
    assert [process.communicate(timeout=60)[0] for process in both] == ["", ""]
    assert [process.returncode for process in both] == [0, 0]
    lookup.forget()
    stored = findings_from(lookup.user_file(GPU).read_text())
    assert {r.shape_class for r in stored.records} == set(SHAPE_CLASSES[:8])
    assert not stored.problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": 1, "records": [{"a', "it is not JSON: "),
        ("", "it is not JSON: "),
        ('{"format": 7}', "it is not in format 1"),
        (None, "Is a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_reason_and_consequence(text, said, alone, caplog):
    """One warning: which file, what is wrong with it, what serves now, and what mends it."""
    path = lookup.user_file(GPU)
    path.parent.mkdir(parents=True)
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert not served()
        assert not served(name="small")
    (warning,) = caplog.messages
    assert warning.startswith(f"{path} holds no tuning records that can be read ({said}")
    assert "shipped records and defaults are used instead" in warning
    assert "python -m clgemm tune" in warning
