"""Tests of the plugin: accelerated workers, their functions and reports."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")

import dask
import dask.array as da
from chunked import CHUNK, SIDE, A, B, chunked, is_original
from distributed import Client, LocalCluster

import clgemm
import clgemm.dask

WITHOUT_DEVICES = "no OpenCL device"


@pytest.fixture(scope="module")
def client():
    """Return the client of a cluster of two worker processes, each with one thread and a device."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(clgemm.dask.Accelerate(threshold=0))
        yield client


FUNCTIONS = {
    "matmul": (lambda a, b: da.matmul(a, b), lambda: A @ B),
    "tensordot": (lambda a, b: da.tensordot(a, b, 1), lambda: A @ B),
    "dot": (lambda a, b: da.dot(a, b), lambda: A @ B),
    "einsum": (lambda a, b: da.einsum("ij,jk->ik", a, b), lambda: A @ B),
    "einsum of three": (
        lambda a, b: da.einsum("ij,jk,kl->il", a, b, a[:, :CHUNK]),
        lambda: A @ B @ A[:, :CHUNK],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_of_chunks_run_on_devices(name, client):
    """Products of chunks are exact, and the workers' reports count them."""
    function, expected = FUNCTIONS[name]
    before = clgemm.dask.report(client).offloaded
    found = function(chunked(A), chunked(B)).compute()
    np.testing.assert_array_equal(found, expected())
    assert found.dtype == np.float32
    assert clgemm.dask.report(client).offloaded > before


def test_decompositions_run_their_products_on_devices(client):
    """The products in svd_compressed and lstsq run on devices, their LAPACK calls do not."""
    x = np.random.default_rng(0).normal(size=(8 * SIDE, 48)).astype(np.float32)
    rows = chunked(x, (SIDE, 48))
    before = clgemm.dask.report(client).offloaded
    _, found, _ = da.linalg.svd_compressed(rows, 48, n_oversamples=0, seed=0)
    singular = found.compute()
    between = clgemm.dask.report(client).offloaded
    expected = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(singular, expected, rtol=1e-4)
    solution = da.linalg.lstsq(rows, rows.sum(axis=1))[0].compute()
    np.testing.assert_allclose(solution, np.ones(48), rtol=1e-3)
    assert before < between < clgemm.dask.report(client).offloaded


def test_each_worker_has_a_device_of_its_own(client):
    """Two workers have different devices or parts, if there are enough for both."""
    one, other = clgemm.dask.report(client).workers
    assert not one.problem + other.problem
    enough = one.kind != "CPU" or one.part or other.kind != "CPU"
    if enough:
        assert (one.device, one.part) != (other.device, other.part) or one.kind != "CPU"
        assert one.others == other.others == 0
    else:
        assert sorted((one.others, other.others)) == [0, 1]


def test_a_worker_gets_its_share_of_a_processor(client):
    """A worker's part of a CPU has as many compute units as the worker has threads."""
    for worker in clgemm.dask.report(client).workers:
        if worker.part and worker.kind == "CPU":
            assert worker.compute_units == 1


def test_the_report_tells_of_the_products(client):
    """The report has device, sizes, reasons and BLAS threads, as text and as values."""
    da.dot(chunked(A.astype(np.float64)), chunked(B)).compute()
    report = clgemm.dask.report(client)
    assert report.offloaded == sum(worker.offloaded for worker in report.workers)
    assert any("dtype" in worker.stayed for worker in report.workers)
    for worker in report.workers:
        assert worker.blas_threads == 1
        assert worker.offloaded_bytes > 0
        assert worker.bytes_moved in (0, worker.offloaded_bytes)
        assert f"{worker.offloaded} products" in str(report)
        assert worker.device in str(report)


def test_a_plugin_that_is_registered_twice_changes_nothing(client):
    """Registering the plugin again changes no device and no count."""
    before = clgemm.dask.report(client)
    client.register_plugin(clgemm.dask.Accelerate(threshold=10**9))
    assert clgemm.dask.report(client) == before


def test_removing_the_plugin_restores_numpy_and_gives_the_device_back(client):
    """Removing the plugin restores NumPy, and it can be registered again."""
    assert not any(client.run(is_original).values())
    client.unregister_worker_plugin("clgemm")
    assert all(client.run(is_original).values())
    problems = {worker.problem for worker in clgemm.dask.report(client).workers}
    assert problems == {"not accelerated"}
    np.testing.assert_array_equal(da.matmul(chunked(A), chunked(B)).compute(), A @ B)
    client.register_plugin(clgemm.dask.Accelerate(threshold=0))
    assert not any(client.run(is_original).values())
    test_each_worker_has_a_device_of_its_own(client)


def test_a_worker_can_preload_the_module():
    """A worker that preloads clgemm.dask is accelerated, also after a plugin has left."""
    with (
        dask.config.set({"distributed.worker.preload": ["clgemm.dask"]}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        np.testing.assert_array_equal(da.matmul(chunked(A), chunked(B)).compute(), A @ B)
        (worker,) = clgemm.dask.report(client).workers
        assert worker.offloaded
        client.register_plugin(clgemm.dask.Accelerate())
        client.unregister_worker_plugin("clgemm")
        (worker,) = clgemm.dask.report(client).workers
        assert not worker.problem  # the preload still wants it
    assert is_original()


def test_the_scheduler_of_threads_needs_no_plugin(device):
    """With Dask's threads `clgemm.accel.enabled` is enough; einsum needs optimize=True."""
    a, b = chunked(A), chunked(B)
    with clgemm.accel.enabled(threshold=0, device=device):
        found = da.matmul(a, b).compute(scheduler="threads")
        before = clgemm.accel.report().offloaded
        again = da.einsum("ij,jk->ik", a, b, optimize=True).compute(scheduler="threads")
        assert clgemm.accel.report().offloaded > before > 0
    np.testing.assert_array_equal(found, A @ B)
    np.testing.assert_array_equal(again, A @ B)


def offloaded(a, b):
    """Multiply in another process; return the product and how many were offloaded there."""
    return a @ b, clgemm.accel.report().offloaded


def test_the_scheduler_of_processes_needs_no_plugin():
    """A block of `accel.enabled` with `children` accelerates Dask's processes, and only inside."""
    path = os.environ.get("PYTHONPATH")
    task = dask.delayed(_by_value(offloaded))(A, B)
    with clgemm.accel.enabled(threshold=0, children=True):
        found, count = task.compute(scheduler="processes", num_workers=1)
    np.testing.assert_array_equal(found, A @ B)
    assert count == 1
    assert os.environ.get("PYTHONPATH") == path
    assert "CLGEMM_ACCEL_CHILDREN" not in os.environ


def _by_value(function):
    """Return a function that is pickled by value: other processes cannot import this module."""
    return lambda *arguments: function(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"threshold": -1}, ValueError),
        ({"threshold": 1.5}, ValueError),
        ({"precision": "double"}, ValueError),
        ({"device": 1.5}, TypeError),
        ({"device": []}, TypeError),
    ],
)
def test_what_cannot_be_is_refused_before_it_reaches_a_worker(arguments, error):
    """Wrong arguments of the plugin raise an error in the client's program."""
    with pytest.raises(error, match=next(iter(arguments))):
        clgemm.dask.Accelerate(**arguments)
