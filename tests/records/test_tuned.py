"""Tests of tuning records: what is read, checked and stored, and which record serves a device."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from made_records import CPU, DIRECT, GPU, LIMITS, record, served

from clgemm.core.problem import SHAPE_CLASSES
from clgemm.kernels.blocked.family import register_config
from clgemm.kernels.pack.plan import copy_config
from clgemm.kernels.skinny_cpu.family import skinny_config
from clgemm.kernels.skinny_gpu.family import skinny_lanes_config
from clgemm.kernels.tensor_core.plan import WgmmaConfig
from clgemm.kernels.tiled.family import lane_configs
from clgemm.records import tuned
from clgemm.records.tuned import Findings, as_json, choice_from, findings_from

LOCAL = lane_configs()[1]
TENSOR = WgmmaConfig(swizzle=16, tile_n=256, stages=2)


def test_records_survive_a_file():
    """Everything comes back as it was."""
    records = record(), record(config=LOCAL, name="medium"), record(config=TENSOR, name="large")
    assert findings_from(as_json(records)) == Findings(records, ())


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("config", "work_m"), "4 -DFMA=1", "work_m='4 -DFMA=1' is not of type int"),
        (("config", "work_m"), 2.0, "work_m=2.0 is not of type int"),
        (("config", "work_m"), True, "work_m=True is not of type int"),
        (("config", "work_m"), 2**40, "is not between 0 and"),
        (("config", "work_m"), 0, "work_m=0 is less than 1"),
        (("config", "fma"), 1, "fma=1 is not of type bool"),
        (("config", "width"), 3, "width=3 is not one of"),
        (("config", "-cl-fast-relaxed-math"), 1, "are missing or unknown in direct"),
        (("config", "options"), ["-cl-fast-relaxed-math"], "are missing or unknown in direct"),
        (("config",), [1, 2], "is not a config"),
        (("family",), "../../direct", "family='../../direct' is not one of"),
        (("family",), ["direct"], "family=['direct'] is not one of"),
        (("pack",), [{}, {}], "direct packs nothing"),
        (("shape_class",), "gigantic", "shape_class='gigantic' is not one of"),
        (("gflops",), [float("nan")], "are not one positive number for each"),
        (("gflops",), [], "are not one positive number for each"),
        (("shapes",), [[1, 2, "3"]], "are not of whole numbers"),
        (("date",), "; rm -rf", "Invalid isoformat"),
        (("device",), {"name": "x"}, "a device has"),
        (("device", "name"), 5, "name=5 is not a string"),
    ],
)
def test_no_record_says_anything_but_what_its_family_knows(place, value, said):
    """A wrong field, type or value takes the record out of use, and is named; the others stay."""
    whole = json.loads(as_json((record(), record(name="small"))))
    target = whole["records"][0]
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    found = findings_from(json.dumps(whole))
    assert [r.shape_class for r in found.records] == ["small"]
    assert len(found.problems) == 1
    assert said in found.problems[0]


REGISTER = register_config(8, False, False)


def test_packing_belongs_to_its_config():
    """Panels of another size than the tiles, and packing of another family, are refused."""
    choice = record(config=LOCAL).choice
    good = asdict(choice.config), [asdict(pack) for pack in choice.pack]
    assert choice_from("tiled", *good) == choice
    with pytest.raises(ValueError, match="do not make tiles"):
        choice_from("tiled", good[0], [good[1][0] | {"panel": 8}, good[1][1]])
    with pytest.raises(ValueError, match="missing or unknown in pack_vectors"):
        choice_from("blocked", asdict(REGISTER), good[1][:1])
    with pytest.raises(ValueError, match="is not a list of 1 packing configs"):
        choice_from("blocked", asdict(REGISTER), good[1])


def test_the_operand_of_few_rows_is_copied_row_by_row():
    """One packing, of panels of one row; where work-items spread over lanes, none."""
    skinny, copy = asdict(skinny_config(4, 8, False)), copy_config(LIMITS)
    assert choice_from("skinny_cpu", skinny, [asdict(copy)]).pack == (copy,)
    with pytest.raises(ValueError, match=r"panels of \(2,\) rows do not make tiles of \(1,\)"):
        choice_from("skinny_cpu", skinny, [asdict(copy) | {"panel": 2}])
    with pytest.raises(ValueError, match="is not a list of 1 packing configs"):
        choice_from("skinny_cpu", skinny, [asdict(copy)] * 2)
    lanes = asdict(skinny_lanes_config(4, LIMITS))
    assert choice_from("skinny_gpu", lanes, None).pack is None
    with pytest.raises(ValueError, match="skinny_gpu packs nothing"):
        choice_from("skinny_gpu", lanes, [asdict(copy)])


def test_a_file_cut_short_anywhere_is_no_error():
    """Every prefix of a file gives its records or says what is wrong."""
    text = as_json((record(), record(config=LOCAL, name="medium")))
    for end in range(0, len(text) - 1, 7):
        found = findings_from(text[:end])
        assert not found.records
        assert found.problems
    for text in ("null", "[]", '{"format": 2}', '{"format": 1, "records": 5}', "\x00\xff"):
        assert findings_from(text).problems


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (3, "record 0: 3 is not a record"),
        ({}, "record 0 has no 'shapes'"),
        (
            {"shapes": 4, "gflops": [1]},
            "record 0: shapes=4 and gflops=[1] are not two lists",
        ),
        ({"shapes": [5], "gflops": [1]}, "record 0: shapes=[5] and gflops=[1] are not two lists"),
        ({"shapes": [[1, 2, 3]], "gflops": [1], "family": "direct"}, "record 0 has no 'device'"),
        ({"shapes": [[1, 2, 3]], "gflops": [1], "device": 5}, "record 0: 5 is not a device"),
    ],
)
def test_what_is_wrong_with_a_record_is_said_in_its_own_words(item, said):
    """Not in Python's: no "'int' object is not subscriptable"."""
    (problem,) = findings_from(json.dumps({"format": 1, "records": [item]})).problems
    assert problem.startswith(said)


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
    tuned.store(GPU, record(GPU, configs[0]))
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


def test_malformed_records_are_left_out_with_one_warning(alone, caplog):
    """One for the whole file."""
    tuned.store(GPU, record(), record(name="small"))
    path = tuned.user_file(GPU)
    whole = json.loads(path.read_text())
    whole["records"].append({"family": "direct"})
    path.write_text(json.dumps(whole))
    tuned.forget()
    with caplog.at_level(logging.WARNING):
        assert served() == [(DIRECT, True)]
        assert served(name="small") == [(DIRECT, True)]
        assert not served(family="tiled")
    assert len(caplog.records) == 1
    assert "1 of its records are not used" in caplog.text
    assert "python -m clgemm tune" in caplog.text


def test_own_records_outlive_an_update(alone):
    """Of the driver or the kernels: they are tried again; a shipped one that was tried is first."""
    tuned.store(GPU, record(), record(name="small", kernels="0" * 16))
    newer = GPU._replace(driver="581")
    assert served(newer) == [(DIRECT, False)]
    assert served(name="small") == [(DIRECT, False)]
    (found,) = tuned.candidates(newer, LIMITS, "direct", "tiny")
    assert "driver 580" in found.origin
    other = replace(DIRECT, work_m=4)
    alone(record(newer, other))
    tuned.store(newer, record())
    assert served(newer) == [(other, True), (DIRECT, False)]


def test_records_of_others_are_taken_over_where_there_is_none_of_ones_own(alone):
    """The nearest device's; those that are too far are left out."""
    other, own = replace(DIRECT, work_m=4), replace(DIRECT, work_m=1)
    tuned.store(GPU, record(config=own, name="small"))
    near = record(GPU._replace(name="A30"), other)
    theirs = [
        record(GPU._replace(vendor="AMD", architecture="another"), own),
        *(near, replace(near, shape_class="small"), record(CPU)),
    ]
    assert tuned.take_over(GPU, theirs) == [near]
    assert served() == [(other, False)]
    assert served(name="small") == [(own, True)]
    assert tuned.take_over(GPU, [record(CPU)]) == []


def test_what_is_shipped_is_in_order():
    """No problem in any file, and one record for each device, family and class."""
    tuned.shipped.cache_clear()
    found = tuned.shipped()
    assert not found.problems
    keys = [(r.device, r.key) for r in found.records]
    assert len(keys) == len(set(keys))
    assert {r.shape_class for r in found.records} <= set(SHAPE_CLASSES)


def run_here(script, *arguments):
    """Start a script that has records and their look-up, but no device."""
    path = [str(Path(__file__).parents[1] / "helpers"), *sys.path]
    known = """
from clgemm.core.cache import remember
from clgemm.core.problem import SHAPE_CLASSES
from clgemm.records import tuned
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
    tuned.store(GPU, record())
    path = tuned.user_file(GPU)
    before = path.read_text(), sorted(path.parent.iterdir())
    # In a process that has opened no OpenCL: compilers write files too, and end with the disk.
    done = run_here(
        """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
try:
    tuned.store(GPU, record(name="small"))
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
        tuned.store(GPU, record())
        path = tuned.user_file(GPU)
        before = path.read_text()
        path.chmod(0o444)
        for each in (Path(folder), path.parent):
            each.chmod(0o555)
        with as_nobody():
            assert served() == [(DIRECT, True)]
            with pytest.raises(OSError, match="denied"):
                tuned.store(GPU, record(name="small"))
            assert path.read_text() == before
        for each in (Path(folder), path.parent):
            each.chmod(0o755)


def test_a_file_that_is_broken_is_kept_beside(alone, caplog):
    """The next record begins a new file; the old one's good records and its text are not lost."""
    tuned.store(GPU, record())
    path = tuned.user_file(GPU)
    broken = path.read_text()[:-40]
    path.write_text(broken)
    tuned.forget()
    with caplog.at_level(logging.WARNING):
        assert not served()
        tuned.store(GPU, record(name="small"))
    assert served(name="small") == [(DIRECT, True)]
    assert path.with_suffix(".broken").read_text() == broken


def test_writers_do_not_lose_each_others_records(alone, tmp_path):
    """Two processes store ten records each, at the same time."""
    script = """
for number in range(10):
    tuned.store(GPU, record(name=SHAPE_CLASSES[int(sys.argv[1]) + number % 4]))
"""
    both = [run_here(script, first) for first in ("0", "4")]
    assert [process.communicate(timeout=60)[0] for process in both] == ["", ""]
    assert [process.returncode for process in both] == [0, 0]
    tuned.forget()
    stored = findings_from(tuned.user_file(GPU).read_text())
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
    path = tuned.user_file(GPU)
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
