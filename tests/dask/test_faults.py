"""Tests of faults in a cluster of accelerated workers."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")

import dask.array as da
from distributed import Client, LocalCluster

import clgemm.dask

SIDE, CHUNK = 512, 128
DEADLINE_SECONDS = 60
A = np.random.default_rng(0).integers(-4, 5, (SIDE, SIDE)).astype(np.float32)


@pytest.fixture(scope="module")
def cluster():
    """Start two worker processes with one thread each."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    """Return a client of two accelerated workers."""
    with Client(cluster) as client:
        client.register_plugin(clgemm.dask.Accelerate(threshold=0))
        client.wait_for_workers(2, timeout=DEADLINE_SECONDS)
        yield client


def product():
    """Return a product that consists of 64 products of chunks."""
    a = da.from_array(A, chunks=CHUNK)
    return da.matmul(a, a)


def accelerated(client, count):
    """Wait for `count` accelerated workers, and return their reports."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        workers = clgemm.dask.report(client).workers
        if len(workers) == count and not any(worker.problem for worker in workers):
            return workers
        time.sleep(0.1)
    raise AssertionError(f"no {count} accelerated workers: {clgemm.dask.report(client)}")


def is_shared(workers):
    """Tell whether workers share a device although each could have its own part."""
    return any(worker.part and worker.others for worker in workers)


def test_a_worker_is_killed_in_the_middle(client):
    """After a worker is killed, the result is right, and the nanny's new worker gets its device."""
    before = accelerated(client, 2)

    def slowly(block):
        time.sleep(0.1)
        return block

    future = client.compute(product().map_blocks(slowly))
    time.sleep(0.3)
    assert not future.done()
    os.kill(before[0].pid, signal.SIGKILL)
    np.testing.assert_array_equal(future.result(timeout=DEADLINE_SECONDS), A @ A)
    client.wait_for_workers(2, timeout=DEADLINE_SECONDS)
    after = accelerated(client, 2)
    assert before[0].pid not in {worker.pid for worker in after}
    assert {(w.device, w.part) for w in after} == {(w.device, w.part) for w in before}
    assert not is_shared(after)


def test_workers_are_restarted(client):
    """Restarted workers are accelerated again, with new counts."""
    product().compute()
    before = accelerated(client, 2)
    assert sum(worker.offloaded for worker in before)
    client.restart(timeout=DEADLINE_SECONDS)
    after = accelerated(client, 2)
    assert not {worker.pid for worker in before} & {worker.pid for worker in after}
    assert not is_shared(after)
    assert not any(worker.offloaded for worker in after)
    np.testing.assert_array_equal(product().compute(), A @ A)
    assert clgemm.dask.report(client).offloaded


def test_two_clients_may_accelerate_one_cluster(client, cluster):
    """A second client's plugin changes nothing, and workers stay accelerated when it leaves."""
    before = accelerated(client, 2)
    with Client(cluster, set_as_default=False) as other:
        other.register_plugin(clgemm.dask.Accelerate(threshold=0))
        assert clgemm.dask.report(other).workers == before
        results = [c.compute(product()) for c in (client, other)]
        for future in results:
            np.testing.assert_array_equal(future.result(timeout=DEADLINE_SECONDS), A @ A)
    assert clgemm.dask.report(client).offloaded > sum(worker.offloaded for worker in before)


def test_adaptive_scaling_accelerates_workers_that_come(client, cluster):
    """A worker that adaptive scaling adds gets the device of one that has left."""
    cluster.scale(1)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(client.scheduler_info()["workers"]) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    adaptive = cluster.adapt(minimum=1, maximum=2, interval="100ms", wait_count=100)
    try:
        future = client.submit(lambda: time.sleep(3), pure=False)
        more = client.map(lambda _: time.sleep(1), range(20), pure=False)
        client.wait_for_workers(2, timeout=DEADLINE_SECONDS)
        workers = accelerated(client, 2)
        assert not is_shared(workers)
        np.testing.assert_array_equal(product().compute(), A @ A)
        client.cancel([future, *more])
    finally:
        adaptive.stop()
        cluster.scale(2)


def test_a_worker_without_a_device_multiplies_with_numpy(tmp_path, capfd):
    """A worker without a device uses NumPy and says so once in its log and in the report."""
    environment = {
        "OCL_ICD_VENDORS": str(tmp_path),  # an empty folder, in place of all others
        "OPENCL_VENDOR_PATH": str(tmp_path),
        "POCL_DEVICES": "none",  # pyopencl's loader finds the runtime that pip has installed
        "CLGEMM_CACHE_DIR": str(tmp_path / "cache"),
    }
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", env=environment
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_plugin(clgemm.dask.Accelerate(threshold=0))
        client.register_plugin(clgemm.dask.Accelerate(threshold=0))
        for _ in range(2):
            future = client.compute(product())
            np.testing.assert_array_equal(future.result(timeout=DEADLINE_SECONDS), A @ A)
        report = clgemm.dask.report(client)
    (worker,) = report.workers
    assert "no OpenCL device" in worker.problem
    assert "NumPy multiplies: no OpenCL device" in str(report)
    assert report.offloaded == 0
    assert capfd.readouterr().err.count("NumPy multiplies in this worker") == 1
