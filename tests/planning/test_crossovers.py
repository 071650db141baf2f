"""Tests of crossovers: how they are stored and checked, and which products follow them."""

from __future__ import annotations

import json
import logging

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

import clgemm
from clgemm import contraction, products
from clgemm.core import caches
from clgemm.planning import cpu_choice, crossovers, selection
from clgemm.planning.crossovers import Work, kind_of
from clgemm.runtime import call_cache, launch


@pytest.fixture
def empty(device, monkeypatch, tmp_path):
    """Return the device, with an empty cache folder and no threshold."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    crossovers.forget()
    caches.forget_plans()
    yield device
    monkeypatch.undo()
    crossovers.forget()
    caches.forget_plans()


def least_by_kind(**known):
    """Return crossovers of all kinds: None for those that are not given."""
    return dict.fromkeys(crossovers.kinds()) | {k.replace("_", "-"): v for k, v in known.items()}


def test_what_is_kept_is_read_again(empty):
    """Stored crossovers are read again with their date, from a file beside the records."""
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
    [None, [], {}, {"blocks": 1}, {"block": "many"}, least_by_kind(block=-1), {"block": True}],
)
def test_nonsense_is_not_believed(least, empty):
    """An invalid entry of the file is ignored, and other entries are kept."""
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


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 2, "measured": 3}'])
def test_a_broken_file_is_one_that_holds_nothing(text, empty):
    """A broken file is treated as empty, and the next measurement replaces it."""
    crossovers.file().parent.mkdir()
    crossovers.file().write_text(text)
    assert crossovers.measured(empty) is None
    crossovers.keep(empty, least_by_kind(block=1))
    assert crossovers.measured(empty).least["block"] == 1


def test_what_cannot_be_kept_is_a_warning(empty, caplog, tmp_path):
    """If crossovers cannot be stored, there is a warning and no error."""
    (tmp_path / "tuning").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        crossovers.keep(empty, least_by_kind())
    assert "crossovers are not kept" in caplog.text


def test_what_was_measured_on_another_host_does_not_count(empty, monkeypatch):
    """Crossovers of another host are ignored, since hosts may share a home folder."""
    crossovers.keep(empty, least_by_kind(block=1))
    monkeypatch.setattr(crossovers.platform, "node", lambda: "elsewhere")
    crossovers.forget()
    assert crossovers.measured(empty) is None
    assert crossovers.smallest(10) == 10


def test_products_go_where_they_were_measured_to_be_faster(empty, monkeypatch):
    """dot, matmul, inner and tensordot use the device from the crossover of their kind on."""
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
    """Products below every measured crossover open no device."""
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
    """CLGEMM_THRESHOLD takes precedence over measured crossovers."""
    crossovers.keep(empty, least_by_kind())
    monkeypatch.setenv("CLGEMM_THRESHOLD", "1000")
    assert not selection.host_is_faster(10, 10, 10, 1)
    assert "1000 multiply-adds" in str(clgemm.show_config("dicts")["Crossover"])


def test_show_config_tells_where_it_comes_from(empty):
    """show_config shows the default rules, or the measured crossovers by kind with the date."""
    assert "not measured here" in clgemm.show_config("dicts")["Crossover"]
    crossovers.keep(empty, least_by_kind(block=512 * 10**6))
    shown = clgemm.show_config("dicts")["Crossover"]
    assert shown["block"] == "from 512 million on"
    assert shown["narrow-32"] == "the host is faster"
    assert any(name.startswith("measured here, 20") for name in shown)


def test_a_kind_that_is_not_measured_is_unknown(empty):
    """A kind without a crossover is neither won nor lost; others keep theirs."""
    crossovers.keep(empty, {"block": 600**3})
    crossovers.keep(empty, {"stack-32": None})
    crossovers.forget()
    least = crossovers.measured(empty).least
    assert least == {"block": 600**3, "stack-32": None}
    assert crossovers.pays(Work(600, 600, 600), least) is True
    assert crossovers.pays(Work(599, 599, 600), least) is False
    assert crossovers.pays(Work(32, 32, 32, 10**6), least) is False
    assert crossovers.pays(Work(9000, 9000, 200), least) is None
    assert crossovers.pays(Work(9000, 9000, 8), least) is None
    assert crossovers.pays(Work(9000, 9000, 8), least_by_kind()) is False
    assert not crossovers.is_complete(least)
    crossovers.keep(empty, {"block": 500**3})
    assert crossovers.measured(empty).least == {"block": 500**3, "stack-32": None}
    shown = clgemm.show_config("dicts")["Crossover"]
    assert shown["narrow-32"] == "not measured"


def test_rules_hold_for_kinds_that_are_not_measured(empty, monkeypatch):
    """Where some kinds are measured, dot and matmul follow the rules for the others."""
    asked = []
    monkeypatch.setattr(cpu_choice, "may_suit", lambda *_: False)
    monkeypatch.setattr(selection, "_rules_choose_host", lambda *given: asked.append(given[1]))
    crossovers.keep(empty, {"block": 600**3})
    assert selection.host_is_faster(599, 600, 600, 1)
    assert not selection.host_is_faster(600, 600, 600, 1)
    assert asked == []
    assert not selection.host_is_faster(9000, 9000, 200, 1)
    assert asked == [Work(9000, 9000, 200)]


def test_what_was_measured_with_other_threads_of_the_blas_does_not_count(empty, monkeypatch):
    """Crossovers with another number of BLAS threads, as in a Dask worker, are ignored."""
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
    """Crossovers of a whole device are ignored for a part with fewer compute units."""
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


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (Work(600, 600, 600), "block"),
        (Work(600, 600, 600, symmetric=True), "symmetric"),
        (Work(600, 600, 100, symmetric=True), None),
        (Work(600, 600, 200), "shallow-128"),
        (Work(600, 40, 600), "narrow-32"),
        (Work(40, 600, 600), "narrow-32"),
        (Work(130, 200, 600, 9), "stack-128"),
        (Work(600, 600, 600, 9), "block"),
        (Work(10_000, 31, 10_000), None),
        (Work(1, 10_000, 10_000), None),
    ],
)
def test_kinds_of_products(work, kind):
    """The kind of a product depends on its shortest side."""
    assert kind_of(work) == kind
