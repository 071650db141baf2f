"""Tests of the acceleration of a worker's process, and of the report, without a cluster."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")

from chunked import is_original
from dask.array.dispatch import einsum_lookup

import clgemm
from clgemm.dask import workers
from clgemm.dask.workers import Settings, report

# The process.


def test_the_precision_holds_while_the_plugin_does(undone, monkeypatch):
    """The plugin's precision is in the environment until the plugin is removed."""
    monkeypatch.setenv("CLGEMM_PRECISION", "fast")
    workers.begin("test", Settings(0, "strict", "one-each"), 1)
    assert os.environ["CLGEMM_PRECISION"] == "strict"
    workers.begin("another", Settings(0, "float32", None), 1)
    workers.end("another")
    assert os.environ["CLGEMM_PRECISION"] == "strict"
    workers.end("test")
    assert os.environ["CLGEMM_PRECISION"] == "fast"


def test_a_device_that_the_program_has_set_is_left(undone, device):
    """The plugin keeps a device that the program has chosen before."""
    clgemm.set_device(device)
    workers.begin("test", Settings(0, None, "one-each"), 1)
    assert clgemm.get_device().cl_device == device.cl_device
    workers.end("test")
    assert clgemm.get_device() is device


@pytest.mark.parametrize(
    ("dtypes", "given", "asked"),
    [
        ("ff", False, True),
        ("f", False, False),  # nothing is multiplied
        ("fd", False, False),
        ("ff", "greedy", "greedy"),
    ],
)
def test_products_of_float32_are_contracted_by_matrix_products(monkeypatch, dtypes, given, asked):
    """The optimize argument is set for two or more float32 operands, unless it is given."""
    seen = []

    def einsum(*arguments, optimize, **keywords):
        seen.append(optimize)
        return arguments, keywords

    monkeypatch.setattr(np, "einsum", einsum)
    operands = tuple(np.ones((2, 2), dtype) for dtype in dtypes)
    found = workers.einsum("ij,jk", *operands, optimize=given, order="C")
    assert seen == [asked]
    assert found == (("ij,jk", *operands), {"order": "C"})


def test_dasks_table_is_restored(undone):
    """Dask's table of functions has NumPy's function again after the end."""
    assert is_original()
    workers.begin("test", Settings(0, None, None), 1)
    assert einsum_lookup.dispatch(np.ndarray) is workers.einsum
    workers.end("test")
    assert is_original()


# The report.


ABOUT = {
    "host": "h", "pid": 7, "device": "D", "platform": "P", "kind": "GPU", "compute_units": 2,
    "offloaded": 3, "offloaded_bytes": 5_000_000, "bytes_moved": 5_000_000, "stayed": {"dtype": 4},
    "left_out": ("X failed",),
}  # fmt: skip


class Client:
    """A client whose workers answer as given."""

    def __init__(self, **answers):
        self.answers = answers

    def run(self, _function, on_error):
        assert on_error == "return"
        return self.answers


def test_workers_of_one_process_count_once():
    """They have the same counts, which are those of the process."""
    one = ABOUT | {"offloaded": 3}
    found = report(Client(b=one, a=one, c=ABOUT | {"pid": 8, "bytes_moved": 0}))
    assert [worker.address for worker in found.workers] == ["a", "b", "c"]
    assert found.offloaded == 6
    assert found.bytes_moved == 5_000_000  # nothing moves where the device uses host memory


def test_a_worker_that_does_not_answer_is_in_the_report():
    """The reason is in its line, and the others count."""
    found = report(Client(a=OSError("gone"), b=ABOUT))
    assert found.offloaded == 3
    assert "a: NumPy multiplies: it does not answer: OSError('gone')" in str(found)


def test_the_line_of_a_worker_tells_all():
    """Products, bytes, device, part, sharing, what stayed and which devices failed."""
    (line,) = str(report(Client(a=ABOUT | {"part": "part 1 of 2", "others": 1}))).splitlines()
    assert line == (
        "a: 3 products of 5.0 MB on D (P, part 1 of 2, shared by 2 processes), 5.0 MB moved; "
        "on the host: 4 (dtype); X failed"
    )
    assert str(report(Client())) == "no workers"


def test_a_notebook_displays_a_table():
    """A row for each worker; a worker with a problem says it across all columns."""
    shown = report(Client(a=ABOUT | {"part": "part 1 of 2"}, b=ValueError("gone")))._repr_html_()
    assert "<tr><td>a</td><td>" in shown
    assert "part 1 of 2" in shown
    assert "b: NumPy multiplies: it does not answer: ValueError(&#x27;gone&#x27;)" in shown
    assert report(Client())._repr_html_().startswith("<p>no workers</p>")
