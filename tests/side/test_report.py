"""Tests of the counts of products, and of the sentence that says why none ran on the device."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from accelerated import A, B

import clgemm
from clgemm.accel import enabled, report
from clgemm.accel.failures import ERROR, FAILED, NO_DEVICE
from clgemm.side import decision, preparation
from clgemm.side.clock import class_of
from clgemm.side.decision import Entry
from clgemm.side.preparation import BEING_PREPARED
from clgemm.side.report import DEVICE, DTYPE, SMALL, LeftOut, Report, Row, Tally

OPERANDS = ((8, 8), (8, 1)), ((8, 8), (8, 1)), (8, 8)


@pytest.fixture
def entries(monkeypatch):
    """Return the entries of products, of which there are none yet, and their state."""
    monkeypatch.setattr(preparation, "state", preparation.State())
    monkeypatch.setattr(preparation.state, "saw", lambda *_: None)
    made = {}
    monkeypatch.setattr(preparation, "entries", made)
    monkeypatch.setattr(decision, "entries", made)
    return made


def entry_of(name, *times_us):
    """Return the entry of a product that NumPy has made, in these times."""
    made = Entry(name, 512, class_of("blas", 512, 8), OPERANDS)
    for us in times_us:
        made.note_host(us)
    return made


# Counts.


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


def test_calls_are_added_by_function_and_reason(entries):
    """Calls and times are sums by function and reason, the longest first, untimed calls last."""
    tally = Tally()
    tally.add("dot", SMALL, 1.0)
    tally.add("dot", DEVICE, 0.5, 100)
    tally.add("dot", DEVICE, 2.0, 10)
    tally.add("matmul", SMALL, 0.25)
    count = tally.quick("inner", DTYPE)
    count.add(), count.add()
    tally.quick("matmul", DTYPE)
    assert list(tally.rows()) == [
        Row("dot", DEVICE, 2, 2.5),
        Row("dot", SMALL, 1, 1.0),
        Row("matmul", SMALL, 1, 0.25),
        Row("inner", DTYPE, 2, None),
    ]
    assert tally.moved() == (110, 0, 0, 0)


def test_the_products_that_are_decided_by_times_count_too(entries):
    """What entries count is added to the rest, under the function's name alone."""
    tally = Tally()
    tally.add("dot", DEVICE, 1.0)
    tally.add("tensordot", DTYPE, 1.0)
    for i, name in enumerate(["dot", "dot", "tensordot ((1,), (0,))", "tensordot ((0,), (0,))"]):
        entries[i] = entry_of(name, 1e6, 1e6)
    entries[0].note_device(5e5)
    entries[0].size_bytes = 64
    found = {(row.function, row.reason): (row.calls, row.seconds) for row in tally.rows()}
    assert found == {
        ("dot", decision.UNKNOWN): (4, 4.0),
        ("dot", DEVICE): (2, 1.5),
        ("tensordot", decision.UNKNOWN): (4, 4.0),
        ("tensordot", DTYPE): (1, 1.0),
    }
    assert tally.moved()[0] == 64


def test_all_counts_begin_anew(entries):
    """A reset sets all counts to zero, also those of entries, which keep their measurements."""
    tally = Tally()
    tally.add("dot", DEVICE, 1.0, 100)
    tally.add_resident(1, 2, 3)
    tally.quick("dot", SMALL).add()
    entries[0] = entry_of("matmul", 5.0)
    tally.reset()
    assert list(tally.rows()) == []
    assert tally.moved() == (0, 0, 0, 0)
    assert entries[0].host.us == 5.0
    tally.quick("dot", SMALL).add()
    assert list(tally.rows()) == [Row("dot", SMALL, 1, None)]


def test_a_timed_call_that_fails_is_counted(entries):
    """A timed function returns what the original returns, and counts what raises, too."""
    tally = Tally()
    call = tally.timed("dot", DTYPE, lambda x, *, y: x / y)
    assert call(6, y=2) == 3
    with pytest.raises(ZeroDivisionError):
        call(1, y=0)
    assert [row[:3] for row in tally.rows()] == [("dot", DTYPE, 2)]


def test_no_call_is_lost_among_threads(entries):
    """Calls of many threads are all counted."""
    tally = Tally()
    quick = tally.quick("dot", SMALL)

    def work():
        for _ in range(2000):
            quick.add()
            tally.add("dot", DEVICE, 0.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row.calls for row in tally.rows()] == [8000, 8000]


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


def test_a_count_may_be_interrupted_by_another(entries):
    """A signal's handler may count a product while the same thread counts another one."""
    tally = Tally()
    with tally._lock:
        tally.add("dot", DEVICE, 1.0)
    assert [row.calls for row in tally.rows()] == [1]


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
    left_out = LeftOut("GPU", 2, until, "it burns")
    more = Report("GPU", rows[:1], (left_out,), "children.", "preparing: 1 of 2 parts done, 3 s")
    clock = time.strftime("%H:%M:%S", time.localtime(until))
    assert str(more) == (
        "3 products on GPU; on the host: none; preparing: 1 of 2 parts done, 3 s; GPU is not used "
        f"until {clock}, since it failed 2 times in a row: it burns; children."
    )
    assert "it failed once: it burns" in str(left_out._replace(failures=1))


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
        ([Row("dot", SMALL, 5, None), Row("dot", decision.UNKNOWN, 1, 0.2)], "were too few to com"),
        ([Row("dot", decision.NOT_OPEN, 5, 3.0)], "to open it takes longer than it would have"),
        ([Row("dot", decision.HOST_FASTER, 5, 3.0)], "NumPy is faster at its products than the d"),
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
def test_each_reason_has_its_sentence(rows, said, entries):
    """The sentence names a fault, or else the reason of the products that took longest."""
    sentence = Report("", tuple(rows)).why_nothing
    assert sentence.startswith("Nothing was offloaded: ")
    assert sentence.endswith(".")
    assert said in sentence
    assert Report("GPU", (*rows, Row("dot", "", 1, 0.1))).why_nothing == ""


@pytest.mark.parametrize("reason", [BEING_PREPARED, decision.UNKNOWN])
def test_what_helps_is_named(reason, entries):
    """If the device was not ready, the sentence names the command and the option that help."""
    sentence = Report("", (Row("dot", reason, 5, 1.0),)).why_nothing
    assert "'python -m clgemm warmup'" in sentence
    assert "--threshold N" in sentence


def test_a_device_that_cannot_be_used_is_the_reason(entries):
    """If the preparation has found no device, the sentence says what it has found."""
    preparation.state.reason = "no OpenCL device was found here"
    for reason in (BEING_PREPARED, decision.UNKNOWN):
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
