"""From which size on the device multiplies: kept, believed if it may be, and used by products."""

from __future__ import annotations

import json
import logging

import numpy as np
import pyopencl as cl
import pytest

import clgemm
from clgemm import contraction, products
from clgemm.accel import crossover
from clgemm.core import caches
from clgemm.planning import crossovers, selection
from clgemm.runtime import call_cache, launch


@pytest.fixture
def empty(device, monkeypatch, tmp_path):
    """A cache folder of its own, no threshold, and the device."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    crossovers.forget()
    caches.forget_plans()
    yield device
    monkeypatch.undo()
    crossovers.forget()
    caches.forget_plans()


def least_by_kind(**known):
    """Crossovers of every kind: never, unless it is known."""
    return dict.fromkeys(crossovers.kinds()) | {k.replace("_", "-"): v for k, v in known.items()}


def test_what_is_kept_is_read_again(empty):
    """For the device, with the date; the file lies beside the records."""
    least = least_by_kind(block=600**3, stack_32=10**6)
    assert crossovers.measured(empty) is None
    crossovers.keep(empty, least)
    assert crossovers.file().parent.name == "tuning"
    crossovers.forget()
    assert crossovers.measured(empty).least == least
    assert crossovers.smallest(10**9) == 10**6
    assert crossovers.smallest(10**3) == 10**3


@pytest.mark.parametrize(
    "least",
    [None, [], {"block": 1}, least_by_kind(block="many"), least_by_kind(block=-1), {"x": True}],
)
def test_nonsense_is_not_believed(least, empty):
    """A user's file may hold anything; what else it holds is kept."""
    crossovers.keep(empty, least_by_kind(block=600**3))
    text = json.loads(crossovers.file().read_text())
    (entry,) = text["measured"].values()
    entry["least"] = least
    text["measured"] |= {"another device": {"least": 1}}
    crossovers.file().write_text(json.dumps(text))
    crossovers.forget()
    assert crossovers.measured(empty) is None
    assert crossovers.smallest(10**9) == 10**9
    crossovers.keep(empty, least_by_kind())
    assert "another device" in crossovers.file().read_text()
    assert set(crossovers.measured(empty).least.values()) == {None}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "measured": 3}'])
def test_a_broken_file_is_one_that_holds_nothing(text, empty):
    """It is replaced at the next measurement."""
    crossovers.file().parent.mkdir()
    crossovers.file().write_text(text)
    assert crossovers.measured(empty) is None
    crossovers.keep(empty, least_by_kind(block=1))
    assert crossovers.measured(empty).least["block"] == 1


def test_what_cannot_be_kept_is_a_warning(empty, caplog, tmp_path):
    """And nothing else."""
    (tmp_path / "tuning").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        crossovers.keep(empty, least_by_kind())
    assert "crossovers are not kept" in caplog.text


def test_what_was_measured_on_another_host_does_not_count(empty, monkeypatch):
    """A home folder may be shared by many."""
    crossovers.keep(empty, least_by_kind(block=1))
    monkeypatch.setattr(crossovers.platform, "node", lambda: "elsewhere")
    crossovers.forget()
    assert crossovers.measured(empty) is None
    assert crossovers.smallest(10) == 10


def test_products_go_where_they_were_measured_to_be_faster(empty, monkeypatch):
    """dot, matmul, inner and tensordot: from the crossover of their kind on, and not below."""
    calls = []

    def counted(*arguments, **keywords):
        calls.append(arguments[1].shape)
        return launch.multiply(*arguments, **keywords)

    for module in (contraction, products):
        monkeypatch.setattr(module, "multiply", counted)
    crossovers.keep(empty, least_by_kind(shallow_32=100**3, stack_32=64**3 * 10))
    x, small = np.ones((100, 100), np.float32), np.ones((99, 99), np.float32)
    stack = np.ones((10, 64, 64), np.float32)
    with clgemm.device(empty):
        for product in (clgemm.dot, clgemm.matmul, clgemm.inner):
            np.testing.assert_array_equal(product(x, x), np.full((100, 100), 100))
            product(small, small)
            product(x[:31], x)  # of no kind that pays
            product(x, x[:, :40].T if product is clgemm.inner else x[:, :40])  # of another kind
        clgemm.tensordot(x, x, 1)
        clgemm.matmul(stack, stack)
        clgemm.matmul(stack[:9], stack[:9])
    assert calls == [(100, 100)] * 4 + [(10, 64, 64)]


def test_small_products_open_no_device(empty, monkeypatch):
    """Below what any device was measured to win, nothing is asked for."""
    crossovers.keep(empty, least_by_kind(block=10**6))

    def opened():
        raise AssertionError("a device was opened")

    monkeypatch.setattr(selection, "get_device", opened)
    monkeypatch.setattr(call_cache, "_calls", {})  # no product is like one before
    x = np.ones((99, 99), np.float32)
    np.testing.assert_array_equal(clgemm.dot(x, x), x @ x)
    with pytest.raises(AssertionError, match="opened"):
        clgemm.dot(np.ones((100, 100), np.float32), np.ones((100, 100), np.float32))


def test_the_threshold_is_stronger(empty, monkeypatch):
    """CLGEMM_THRESHOLD says what goes to the device, whatever was measured."""
    crossovers.keep(empty, least_by_kind())
    monkeypatch.setenv("CLGEMM_THRESHOLD", "1000")
    assert not selection.host_is_faster(10, 10, 10, 1)
    assert "1000 multiply-adds" in str(clgemm.show_config("dicts")["Crossover"])


def test_show_config_tells_where_it_comes_from(empty):
    """Rules by default; what was measured, by kind and with its date."""
    assert "not measured here" in clgemm.show_config("dicts")["Crossover"]
    crossovers.keep(empty, least_by_kind(block=512 * 10**6))
    shown = clgemm.show_config("dicts")["Crossover"]
    assert shown["block"] == "from 512 million on"
    assert shown["narrow-32"] == "the host is faster"
    assert any(name.startswith("measured here, 20") for name in shown)


@pytest.mark.parametrize("trials", [0, 3])
def test_measuring_ends_in_time(trials, empty, monkeypatch):
    """After the trial that is under way; what was found so far is not kept: the rest is unknown."""
    now = iter([0.0, *[1.0] * trials, *[99.0] * 100])
    monkeypatch.setattr(crossover.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(crossover, "_largest", lambda _, trial: trial(600))
    monkeypatch.setattr(crossover, "_device_wins", lambda *_: True)
    with pytest.raises(TimeoutError):
        crossover.measure(empty, np.matmul, 60.0)
    assert next(now) == 99.0
    assert crossovers.measured(empty) is None


def test_what_was_measured_with_other_threads_of_the_blas_does_not_count(empty, monkeypatch):
    """In a Dask worker the host's BLAS has one thread: a device wins earlier there."""
    threads = 1
    monkeypatch.setattr(crossovers, "blas_threads", lambda: threads)
    crossovers.keep(empty, least_by_kind(block=10**6))
    threads = 8
    assert crossovers.measured(empty) is None
    crossovers.keep(empty, least_by_kind(block=10**9))
    assert crossovers.measured(empty).least["block"] == 10**9
    threads = 1
    assert crossovers.measured(empty).least["block"] == 10**6
    assert crossovers.smallest(10**12) == 10**6  # whatever the threads


def test_a_part_of_a_device_is_another_device(empty):
    """It has fewer compute units, so what was measured for the whole does not count."""
    units = empty.limits.compute_units
    if empty.kind != "CPU" or units == 1 or "llvmpipe" in empty.name:
        pytest.skip("this device cannot be cut")
    properties = [cl.device_partition_property.EQUALLY, 1]
    try:
        part = clgemm.Device(empty.cl_device.create_sub_devices(properties)[0])
    except cl.Error as error:
        pytest.skip(f"this device cannot be cut: {error}")
    crossovers.keep(empty, least_by_kind(block=1))
    assert crossovers.measured(part) is None
