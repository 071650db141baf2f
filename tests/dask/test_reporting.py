"""Tests of the report on a cluster, without one."""

from __future__ import annotations

import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")

from clgemm.dask.reporting import report

ABOUT = {
    "host": "h", "pid": 7, "device": "D", "platform": "P", "kind": "GPU", "compute_units": 2,
    "offloaded": 3, "offloaded_bytes": 5_000_000, "is_copied": True, "stayed": {"dtype": 4},
    "left_out": ["X failed"],
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
    found = report(Client(b=one, a=one, c=ABOUT | {"pid": 8, "is_copied": False}))
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
