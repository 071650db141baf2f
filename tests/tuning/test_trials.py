"""Tests of the log of trials."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import clgemm
from clgemm.hardware.device import identify
from clgemm.kernels.common.family import Choice
from clgemm.kernels.direct.family import direct_config
from clgemm.records import tuned
from clgemm.tuning.trials import Trial, Trials

pytestmark = pytest.mark.one_device


def test_a_log_cut_short_is_read_as_far_as_it_goes(empty):
    """Every whole line counts."""
    who, choice = identify(empty), Choice(direct_config(empty.limits), None)
    trials = Trials(who)
    for number in range(3):
        trials.add(Trial("tiny", f"{number}", choice, 1.0, 2.0, ""))
    text = trials.path.read_text()
    trials.path.write_text(text[:-30] + "\n{}\nnonsense\n")
    assert [t.shapes for t in Trials(who).all] == ["0", "1"]


def test_two_tuners_at_once(empty):
    """Both end with their records stored, and every trial of both is in the log."""
    script = "import clgemm; clgemm.tune({}, shapes=[{}], minutes=0.02)"
    number = clgemm.devices().index(empty)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    both = [
        subprocess.Popen([sys.executable, "-c", script.format(number, shape)], env=variables)
        for shape in ((12, 12, 12), (9, 10, 10, 10))
    ]
    assert [process.wait(120) for process in both] == [0, 0]
    tuned.forget()
    stored = tuned.own_records(identify(empty))
    assert {r.shape_class for r in stored} == {"tiny", "batched"}
    trials = Trials(identify(empty))
    lines = trials.path.read_text().splitlines()
    assert len(trials.all) == len(lines) == len([json.loads(line) for line in lines])
    assert {t.shape_class for t in trials.all} == {"tiny", "batched"}
