"""Tests of the report: the products of both sides, why none ran on the device, and advice."""

from __future__ import annotations

import time

import numpy as np
import pytest
from accelerated import A, B
from injection import TRANSFER

import clgemm
from clgemm.accel import enabled, report, reporting
from clgemm.accel.failures import ERROR, FAILED, NO_DEVICE, FailedDevice
from clgemm.accel.reporting import Report, Row, advisor
from clgemm.side import preparation
from clgemm.side.counts import (
    BEING_PREPARED,
    DTYPE,
    HOST_FASTER,
    NOT_OPEN,
    SMALL,
    UNKNOWN,
)


@pytest.fixture
def state(monkeypatch):
    """A program that has just begun."""
    monkeypatch.setattr(preparation, "state", preparation.State())
    return preparation.state


def test_a_profile_counts_everything(device):
    """A profile counts and times small products and other dtypes, too, by function."""
    with enabled(threshold=10**9, profile=True):
        A @ B, np.dot(A, B), np.inner(A, A), A.dot(B)
        A.astype(float) @ B.astype(float), np.dot(np.eye(3), np.eye(3)), np.arange(3) @ np.arange(3)
    counted = {(row.function, row.reason): row.calls for row in report().rows}
    assert counted[("matmul", "dtype")] == 2
    assert counted[("dot", "dtype")] == 1
    for name in ("matmul", "dot", "inner", "ndarray.dot"):
        assert counted[(name, "size")] == 1
    assert all(row.seconds is not None for row in report().rows)


def test_a_report_names_the_device_that_was_used(device):
    """The report names the device if it has made a product since the counts began, else none."""
    with enabled(threshold=0):
        assert report().device == ""
        A @ B
        assert report().device == device.name
    with enabled(threshold=10**12):
        A @ B
        assert report().device == ""


def test_a_report_names_the_device_of_the_settings(device):
    """The report names the device that `install` was given, whichever is chosen otherwise."""
    others = [d for d in clgemm.devices() if d.name != device.name]
    for other in others[:1]:
        with clgemm.device(device), enabled(threshold=0, device=other):
            A @ B
            assert report().device == other.name


# The report.


def test_a_report_in_one_line():
    """A report prints the products of both sides, what is being prepared, and what was left out."""
    rows = Row("dot", "", 3, 0.1), Row("dot", SMALL, 2, None), Row("matmul", SMALL, 1, None)
    found = Report("GPU", (*rows, Row("matmul", DTYPE, 4, None)))
    assert found.offloaded == 3
    assert found.stayed == {"size": 3, "dtype": 4}
    assert str(found) == "3 products on GPU; on the host: 3 (size), 4 (dtype)"
    assert str(Report("", ())) == "0 products on the device; on the host: none"
    until = time.time() + 60
    failed = FailedDevice("GPU", 2, until, "it burns")
    more = Report("GPU", rows[:1], (failed,), "children.", "preparing: 1 of 2 parts done, 3 s")
    clock = time.strftime("%H:%M:%S", time.localtime(until))
    assert str(more) == (
        "3 products on GPU; on the host: none; preparing: 1 of 2 parts done, 3 s; GPU is not used "
        f"until {clock}, since it failed 2 times in a row: it burns; children."
    )
    assert "it failed once: it burns" in str(failed._replace(failures=1))


def test_a_notebook_shows_a_report_as_a_table():
    """Each row is a row of it, and what it says in one line stands above."""
    rows = (Row("dot", "", 1234, 0.5), Row("matmul", "a < b", 2, None))
    shown = Report("X & Y", rows)._repr_html_()
    assert "1234 products on X &amp; Y" in shown
    assert "<tr><td>dot</td><td>1,234</td><td>device</td><td>0.500</td></tr>" in shown
    assert "<tr><td>matmul</td><td>2</td><td>host: a &lt; b</td><td></td></tr>" in shown


def test_a_report_says_what_resident_arrays_saved():
    """A report tells what was not sent for resident arrays, if any was used."""
    found = Report("GPU", (), resident=1200, saved_bytes=5_000_000, compared_bytes=40_000)
    assert found.saved == (
        "1,200 of the products used resident arrays: 5.0 MB were not sent, 0.0 MB were read to "
        "find changes"
    )
    assert found.saved in str(found)
    assert Report("GPU", ()).saved == ""


# Why no product ran on the device.


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "the program made no product with NumPy."),
        ([Row("dot", SMALL, 5, 0.1)], "its products are below the threshold, or take NumPy less"),
        ([Row("dot", SMALL, 5, 0.1), Row("dot", BEING_PREPARED, 5, 0.2)], "still being prepared"),
        ([Row("dot", SMALL, 5, None), Row("dot", UNKNOWN, 1, 0.2)], "were too few to com"),
        ([Row("dot", NOT_OPEN, 5, 3.0)], "to open it takes longer than it would have"),
        ([Row("dot", HOST_FASTER, 5, 3.0)], "NumPy is faster at its products than the d"),
        ([Row("dot", SMALL, 5, 9.0), Row("dot", NO_DEVICE, 5, 0.1)], "no OpenCL device works: "),
        (
            [Row("dot", SMALL, 5, 9.0), Row("dot", FAILED, 5, 0.1)],
            "the device failed: the log says",
        ),
        ([Row("dot", ERROR, 5, 0.1)], "the products failed inside clgemm: the log says why"),
        ([Row("dot", DTYPE, 5, 0.1)], "it multiplies no float32 arrays"),
        ([Row("dot", DTYPE, 5, None), Row("dot", SMALL, 1, None)], "its products are below the th"),
        ([Row("dot", "memory layout", 5, 0.1)], "the reason is 'memory layout'"),
    ],
)
def test_each_reason_has_its_sentence(rows, said, state):
    """The sentence names a fault, or else the reason of the products that took longest."""
    sentence = Report("", tuple(rows)).why_nothing
    assert sentence.startswith("Nothing was offloaded: ")
    assert sentence.endswith(".")
    assert said in sentence
    assert Report("GPU", (*rows, Row("dot", "", 1, 0.1))).why_nothing == ""


@pytest.mark.parametrize("reason", [BEING_PREPARED, UNKNOWN])
def test_what_helps_is_named(reason, state):
    """If the device was not ready, the sentence names the command and the option that help."""
    sentence = Report("", (Row("dot", reason, 5, 1.0),)).why_nothing
    assert "'python -m clgemm warmup'" in sentence
    assert "--threshold N" in sentence


def test_a_device_that_cannot_be_used_is_the_reason(state):
    """If the preparation has found no device, the sentence says what it has found."""
    state.reason = "no OpenCL device was found here"
    for reason in (BEING_PREPARED, UNKNOWN):
        sentence = Report("", (Row("dot", reason, 5, 1.0),)).why_nothing
        assert sentence == "Nothing was offloaded: no OpenCL device was found here."


def test_the_progress_of_the_preparation_is_told(monkeypatch):
    """The progress names the parts that are done, and is empty when all are or none are known."""
    from clgemm.hardware import trial

    status = {"done": 3, "total": 12, "seconds": 41.4}
    monkeypatch.setattr(trial, "status", lambda: status)
    monkeypatch.setattr(preparation, "state", preparation.State())
    assert preparation.progress() == "preparing: 3 of 12 parts done, 41 s"
    assert report().preparing == "preparing: 3 of 12 parts done, 41 s"
    preparation.state.reason = "no device"
    assert preparation.progress() == ""
    preparation.state.reason = ""
    status["done"] = 12
    assert preparation.progress() == ""
    status.clear()
    assert preparation.progress() == ""


# Advice: operands that are sent to a device again and again.


SIDE = 300


@pytest.fixture
def profiled(device, monkeypatch):
    """Everything runs with a profile, on a device to which operands are sent."""
    monkeypatch.setattr(reporting, "LEAST_SECONDS", 0)
    own = clgemm.Device(device.cl_device, transfer=TRANSFER)
    with clgemm.device(own), clgemm.accel.enabled(0, profile=True):
        yield


rng = np.random.default_rng(1)


def random(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def test_an_operand_that_is_sent_again_and_again_is_named(profiled):
    """With its variable, shape and line, how often, and what `resident` would save."""
    w = random(SIDE, SIDE)
    for _ in range(8):
        random(SIDE + 1, SIDE) @ w
    (text,) = advisor.sentences()
    assert text.startswith(f"`w` ({SIDE} x {SIDE}, test_reporting.py:"), text
    assert "was sent 8 times; `with clgemm.resident(w)` would save about" in text


def test_views_are_named_by_their_array(profiled):
    weights = random(SIDE, SIDE)
    for _ in range(8):
        np.dot(random(SIDE + 1, SIDE), weights.T)
    (text,) = advisor.sentences()
    assert "clgemm.resident(weights)" in text


def test_attributes_are_named(profiled):
    class Layer:
        def __init__(self):
            self.weights = random(SIDE, SIDE)

        def __call__(self, x):
            return x @ self.weights

    layer = Layer()
    for _ in range(8):
        layer(random(SIDE + 1, SIDE))
    (text,) = advisor.sentences()
    assert "`self.weights`" in text
    assert "clgemm.resident(self.weights)" in text


def test_what_changes_or_is_resident_is_no_advice(profiled):
    """Nor what is sent a few times, or is small."""
    w, small = random(SIDE, SIDE), random(8, 8)
    for number in range(1, 9):
        w += number
        random(SIDE + 1, SIDE) @ w
        small @ small
    for _ in range(reporting.LEAST_TIMES - 2):
        random(SIDE + 1, SIDE) @ w
    with clgemm.resident(w):
        for _ in range(8):
            random(SIDE + 1, SIDE) @ w
    assert advisor.sentences() == ()


def test_results_that_become_operands_are_named(profiled):
    """They come to the host and go back."""
    x = random(SIDE, SIDE)
    for _ in range(2 * reporting.LEAST_TIMES):
        x = x @ random(SIDE, SIDE)
    (text,) = advisor.sentences()
    assert text.startswith(
        f"results were operands of later products {2 * reporting.LEAST_TIMES - 1}"
    )
    assert "pyopencl" in text


def test_nothing_is_remembered_without_a_profile_or_of_the_last_one(device):
    own = clgemm.Device(device.cl_device, transfer=TRANSFER)
    w = random(SIDE, SIDE)
    with clgemm.device(own), clgemm.accel.enabled(0):
        for _ in range(8):
            random(SIDE + 1, SIDE) @ w
    assert advisor.sentences() == ()
    with clgemm.accel.enabled(0, profile=True):
        assert advisor.sentences() == ()
