"""Tests of records: what a file may hold, and what is said of the rest."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from made_records import LIMITS, record

from clgemm.kernels.blocked.family import register_config
from clgemm.kernels.pack.plan import copy_config
from clgemm.kernels.skinny_cpu.family import skinny_config
from clgemm.kernels.skinny_gpu.family import skinny_lanes_config
from clgemm.kernels.tensor_core.config import WgmmaConfig
from clgemm.kernels.tiled.family import lane_configs
from clgemm.records.record import Findings, as_json, choice_from, findings_from

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
