"""Tests of the products that are known to stay on the host."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import clgemm
from clgemm.core.config import Limits
from clgemm.core.cpu_costs import INTEL
from clgemm.core.traits import MANY_CORES, Traits
from clgemm.hardware.choice import devices, get_device
from clgemm.planning import cpu_choice, crossovers, selection
from clgemm.planning.host_times import BatchKind
from clgemm.runtime import results, staying, turns

A, B = np.ones((30, 40), np.float32), np.ones((40, 50), np.float32)
WORK = 30 * 40 * 50


@pytest.fixture
def judged(device, monkeypatch):
    """The products whose side is chosen, above a threshold of one multiply-add more than theirs."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", str(WORK + 1))
    monkeypatch.setattr(staying, "_is_small", lambda *_: False)
    monkeypatch.setattr(staying, "_known", {})
    monkeypatch.setattr(staying, "_small", {})
    found = []
    original = selection.host_is_faster

    def judge(*arguments, **keywords):
        found.append(arguments)
        return original(*arguments, **keywords)

    monkeypatch.setattr(selection, "host_is_faster", judge)
    return found


@pytest.mark.parametrize("function", [clgemm.matmul, clgemm.dot])
def test_a_product_that_stays_is_judged_once(function, judged):
    """Whatever its data and result are, since only shapes and strides count."""
    for a, b, out in ((A, B, None), (2 * A, B, None), (-A, B, np.empty((30, 50), "f"))):
        np.testing.assert_array_equal(function(a, b, out=out), a @ b)
    assert len(judged) == 1
    function(A[:, ::-1], B)
    assert len(judged) == 2


def told_of(monkeypatch, name):
    """Leave all products to the host; return a list of what is said of each by this keyword."""
    told = []

    def judge(*_, **keywords):
        told.append(keywords[name])
        return True

    monkeypatch.setattr(selection, "host_is_faster", judge)
    return told


def test_what_numpy_copies_for_its_blas_is_told(judged, monkeypatch):
    """Matrices, no axis of which has neighbours in memory."""
    told = told_of(monkeypatch, "copied")
    wide = np.ones((60, 80), np.float32)
    channel = np.ones((30, 40, 3), np.float32)[..., 1]
    apart = np.repeat(B, 2, axis=1)[:, ::2]
    for a, b, copied in (
        *((A, B, 0), (A.T.copy().T, B, 0), (wide[::2, :40], B, 0), (wide[::2, ::2], B, A.size)),
        *((channel, B, A.size), (A[:, ::-1], B, A.size), (A, apart, B.size)),
        (channel, apart, A.size + B.size),
    ):
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
        assert told.pop() == copied
    clgemm.dot(channel, B)
    assert told.pop() == A.size
    batch = np.ones((3, 30, 40, 2), np.float32)[..., 1]
    clgemm.matmul(batch, apart)
    assert told == [3 * (A.size + B.size)]


def test_a_transposed_b_that_blas_packs_is_told(judged, monkeypatch):
    """Not of a small product whose A has contiguous rows."""
    told = told_of(monkeypatch, "is_b_transposed")
    turned_a, turned_b = A.T.copy().T, B.T.copy().T
    sliced = np.ones((30, 60), np.float32)[:, :40]
    for most, row_major in ((WORK, False), (WORK - 1, True)):
        monkeypatch.setattr(staying, "UNPACKED", most)
        for a, b, is_told in (
            *((A, B, False), (turned_a, B, False), (turned_a, turned_b, True)),
            *((A, turned_b, row_major), (sliced, turned_b, row_major)),
        ):
            for function in (clgemm.matmul, clgemm.dot):
                np.testing.assert_array_equal(function(a, b), a @ b)
                assert told.pop() == is_told
        told.clear()
        staying._known.clear()


def test_other_shapes_functions_and_types_are_judged_anew(judged):
    """A product is known by its function and its shapes. Both operands must be float32."""
    clgemm.matmul(A, B)
    assert staying.stays("matmul", A, B, None)
    assert not staying.stays("dot", A, B, None)
    assert not staying.stays("matmul", A[1:], B, None)
    assert not staying.stays("matmul", A.astype(np.float64), B, None)
    assert not staying.stays("matmul", A.view(np.matrix), B, None)
    assert not staying.stays("matmul", A, B, clgemm)


def test_another_threshold_is_another_choice(judged, monkeypatch):
    """The environment may change between two calls."""
    clgemm.matmul(A, B)
    monkeypatch.setenv("CLGEMM_THRESHOLD", str(WORK))
    assert not staying.stays("matmul", A, B, None)
    np.testing.assert_array_equal(clgemm.matmul(A, B), A @ B)
    assert len(judged) == 2


def test_another_device_or_crossover_is_another_choice(judged, monkeypatch):
    """What was known of one device does not hold for another one, or after a measurement."""
    clgemm.matmul(A, B)
    others = [each for each in devices() if each is not get_device()]
    for other in others[:1]:
        with clgemm.device(other):
            assert not staying.stays("matmul", A, B, None)
    assert staying.stays("matmul", A, B, None)
    found = crossovers.Measured({"block": 1}, "2026-11-24")
    monkeypatch.setattr(staying, "measured", lambda _: found)
    assert not staying.stays("matmul", A, B, None)


def test_a_resident_operand_is_judged(judged):
    """Less is sent then, so that the device may win."""
    clgemm.matmul(A, B)
    with clgemm.resident(B):
        assert not staying.stays("matmul", A, B, None)
        np.testing.assert_array_equal(clgemm.matmul(A, B), A @ B)
    assert staying.stays("matmul", A, B, None)


def test_without_a_device_nothing_is_noted(judged, monkeypatch):
    """A device may work later."""

    def broken():
        raise RuntimeError("no device")

    monkeypatch.setattr(staying, "get_devices", broken)
    assert staying.host_is_faster("matmul", A, B, (30, 50, 40, 1), 1.0)
    assert staying._known == {}
    assert not staying.stays("matmul", A, B, None)


def test_there_are_not_too_many(judged, monkeypatch):
    """Shapes that never come again are forgotten."""
    monkeypatch.setattr(staying, "MOST_KNOWN", 3)
    for rows in range(1, 9):
        clgemm.matmul(A[:rows], B)
        assert staying.stays("matmul", A[:rows], B, None)
        assert len(staying._known) <= 3


def test_a_batch_of_short_sides_is_not_known_by_its_sizes(monkeypatch):
    """Since its short rows and columns count as longer. NumPy's dot does not use its BLAS."""
    monkeypatch.delenv("CLGEMM_THRESHOLD", raising=False)
    a, b = np.ones((200, 3, 39), np.float32), np.ones((39, 90), np.float32)
    assert staying.stays("dot", a.reshape(600, 39), b, None)
    assert not staying.stays("dot", a, b, None)
    assert not staying.stays("matmul", a, b, None)
    assert staying.stays("matmul", a[:3], b[:, :3], None)
    assert staying.stays("matmul", a[0], b, None)


def test_a_large_result_is_judged_each_time(monkeypatch):
    """A new one may go to a device where one with `out` stays."""
    told = told_of(monkeypatch, "is_kept")
    monkeypatch.setattr(selection, "LEAST_NEW_RESULT", 600)
    monkeypatch.setattr(selection, "MOST_OPERANDS", 3)
    monkeypatch.setattr(results, "LEAST_BYTES", 600)
    out = np.empty((30, 50), np.float32)
    for function in (clgemm.matmul, clgemm.dot):
        for _ in range(2):
            function(A, B, out=out)
            function(A, B)
    assert told == [False, True] * 4


def test_what_the_matrices_of_a_batch_share_is_told(judged, monkeypatch):
    """With one B, a device makes one product of it if all rows of A follow one another."""
    told = told_of(monkeypatch, "kind")
    own, one_b, folded = BatchKind
    batch, one = np.ones((70, 30, 40), np.float32), np.ones((40, 50), np.float32)
    for a, b, kind in (
        *((batch, one, folded), (batch, one[None], folded)),
        *((batch.reshape(7, 10, 30, 40), one, folded), (batch[:, :, ::-1], one, folded)),
        *(
            (batch[:, ::2], one, folded),
            (batch[::2], one, one_b),
            (one.T[None], batch[0].T, folded),
        ),
        *((batch.swapaxes(1, 2), batch[0, :, :9], one_b), (batch[0], one, own)),
        (batch, np.ones((70, 40, 50), np.float32), own),
    ):
        told.clear()
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
        assert told == [kind], (a.shape, b.shape)


def test_how_long_numpy_takes_for_an_element_is_told(judged, monkeypatch):
    """With more than two axes, and longer where the summed axes are not dense."""
    told = told_of(monkeypatch, "element_us")
    batch = np.ones((3, 30, 40), np.float32)
    for a, b in ((A, B), (batch, B), (batch, B.T.copy().T), (batch, np.ones(40, np.float32))):
        np.testing.assert_array_equal(clgemm.dot(a, b), np.dot(a, b))
        np.testing.assert_array_equal(clgemm.inner(a, b.T), np.inner(a, b.T))
    by_blas, strided, dense, vector = told[::2]
    assert told[::2] == told[1::2]
    assert 0 == by_blas < dense == vector < strided


def test_small_products_of_more_axes_are_known_at_once(monkeypatch):
    """Without CLGEMM_THRESHOLD, those that take NumPy less time than any device's call."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    a = np.ones((2, 3, 40), np.float32)
    assert staying.stays("dot", a, B[:, :2], None)
    assert not staying.stays("dot", a, B, None)


SIDES = [1, 2, 3, 15, 16, 17, 100, 400, 3000]


@pytest.mark.parametrize("batch", [(), (1,), (7,), (90,), (2, 3)])
def test_no_device_suits_what_is_small_at_once(batch, monkeypatch):
    """Whatever its runtime costs; a batch may meet a single matrix."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    matrices, found = int(np.prod(batch)), 0
    for m, n, k in itertools.product(SIDES, repeat=3):
        a = np.broadcast_to(np.float32(0), (*batch, m, k))
        for shape in {(k, n), (*batch, k, n)}:
            b = np.broadcast_to(np.float32(0), shape)
            if staying._is_small("matmul", a, b):
                found += 1
                for is_amd in (True, False):
                    assert not cpu_choice.suits(m, n, k, matrices, cpu_choice.Cpu(INTEL, is_amd))
                assert selection.host_is_faster(m, n, k, matrices)
    assert found > 200


def test_a_threshold_of_the_environment_decides_what_is_small(monkeypatch):
    """Then nothing is small at once."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", "8")
    one, batch = np.ones((2, 2), np.float32), np.ones((3, 2, 2), np.float32)
    for _ in range(2):
        monkeypatch.setenv("CLGEMM_THRESHOLD", "8")
        assert not staying.stays("matmul", one, one, None)
        assert not staying.stays("matmul", batch, one, None)
        monkeypatch.delenv("CLGEMM_THRESHOLD")
        assert staying.stays("matmul", one, one, None)
        assert staying.stays("matmul", batch, one, None)
    for empty in ((3, 0, 2), (3, 2, 0), (0, 2, 2)):
        np.testing.assert_array_equal(
            clgemm.matmul(np.ones(empty, "f"), np.ones((empty[2], 2), "f")),
            np.ones(empty, "f") @ np.ones((empty[2], 2), "f"),
        )


def test_what_is_small_is_looked_up(monkeypatch):
    """Until the crossovers change, and for any `out`; shapes that never come again are dropped."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(staying, "MOST_KNOWN", 3)
    crossovers.forget()
    assert staying._small == {}
    for rows in range(1, 9):
        for out in (None, np.empty((rows, 50), np.float32)):
            np.testing.assert_array_equal(clgemm.matmul(A[:rows], B, out), A[:rows] @ B)
        assert staying._small[("matmul", (rows, 40), (40, 50))] is False
        assert len(staying._small) <= 3
    clgemm.dot(A, B)
    assert ("dot", A.shape, B.shape) in staying._small
    monkeypatch.setattr(staying, "_is_small", lambda *_: pytest.fail("judged again"))
    np.testing.assert_array_equal(clgemm.dot(2 * A, B), 2 * A @ B)
    np.testing.assert_array_equal(clgemm.dot(A.astype(int), B.astype(int)), A @ B)


def test_what_takes_long_to_copy_is_not_small(monkeypatch):
    """The copy may take NumPy longer than the product. Others of these shapes are small."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    rows, vector = selection.LEAST_SCATTERED // 64, np.ones(64, np.float32)
    wide = np.ones((rows, 128), np.float32)
    for function in ("dot", "matmul"):
        for _ in range(2):
            assert staying.stays(function, wide[:, :64], vector, None)
            assert not staying.stays(function, wide[:, ::2], vector, None)
            assert staying.stays(function, wide[1:, ::2], vector, None)
        monkeypatch.setenv("CLGEMM_THRESHOLD", "1000000000")
        assert staying.stays(function, wide[:, ::2], vector, None)
        monkeypatch.delenv("CLGEMM_THRESHOLD")


def test_what_is_not_for_numpy_alone_is_left_to_it(monkeypatch):
    """Scalars, subclasses and other objects, whose products have rules of their own."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    for a, b, out in (
        (A, [1], None),
        (A, B.view(np.matrix), None),
        (A, B, (np.empty((30, 50), "f"),)),
        (np.array(2.0, np.float32), np.array(3.0, np.float32), None),
    ):
        assert not staying.stays("dot", a, b, out)
    assert clgemm.dot(np.array(2.0, np.float32), np.array(3.0, np.float32)) == 6


@pytest.fixture
def in_turns(device, monkeypatch):
    """Threads of NumPy's BLAS that spin for a second beside a CPU device that reads in place.

    The device takes four fifths of the host's time where B has 50 columns, else five fourths.
    """
    monkeypatch.delenv("CLGEMM_THRESHOLD", raising=False)
    now = [1000.0]
    monkeypatch.setattr(turns.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(turns, "spin_seconds", lambda: 1.0)
    monkeypatch.setattr(staying, "may_spin", lambda: True)
    monkeypatch.setattr(staying, "_known", {})
    monkeypatch.setattr(staying, "_small", {})
    monkeypatch.setattr(staying, "_is_small", lambda *_: False)
    monkeypatch.setattr(staying, "LEAST_THREADED", 1)
    monkeypatch.setattr(staying, "MANY_WAIT_US", 0.0)
    monkeypatch.setattr(selection, "reads_in_place", lambda _: True)
    monkeypatch.setattr(selection, "host_is_faster", lambda *sizes, **_: sizes[1] != 50)
    monkeypatch.setattr(
        cpu_choice, "both_us", lambda *sizes, **_: (5e3, 4e3) if sizes[1] == 50 else (4e3, 5e3)
    )
    turns.forget()
    yield now
    turns.forget()


@pytest.mark.parametrize("function", [clgemm.matmul, clgemm.dot])
def test_a_program_stays_on_one_side_for_a_while(function, in_turns, planned):
    """A product right after one of NumPy is NumPy's too, until a change has paid."""
    wide = np.ones((40, 51), np.float32)
    function(A, B)
    assert len(planned) == 1
    for _ in range(3):  # by the call cache: the program leans on the device
        np.testing.assert_array_equal(function(A, wide), A @ wide)
    found = len(planned)
    assert found == 2
    in_turns[0] += 10
    function(A, wide)
    before = turns._turns.saved_us
    np.testing.assert_array_equal(function(A, B), A @ B)
    assert turns._turns.saved_us == before + 1e3
    assert not turns._turns.is_leaning
    for _ in range(400):
        function(A, B)
    assert turns._turns.is_leaning
    assert turns._turns.saved_us > before + 1e5
    assert len(planned) == found


@pytest.mark.parametrize("steals_work", [False, True])
@pytest.mark.parametrize("units", [MANY_CORES - 1, MANY_CORES])
def test_many_threads_wait_for_one_another(units, steals_work, in_turns, monkeypatch):
    """Unless those that have a core take over the work of the others."""
    limits = Limits(2**15, 256, 2**30, units, 16)
    device = SimpleNamespace(traits=Traits(limits, "CPU", steals_work=steals_work))
    monkeypatch.setattr(staying, "_state", lambda: (None, (device,), None))
    monkeypatch.setattr(staying, "MANY_WAIT_US", 123.0)
    _, product = staying.compared(A, B, (30, 50, 40, 1), 1.0)
    assert product.waits_us == (123.0 if units == MANY_CORES and not steals_work else 0.0)


def test_several_devices_and_thresholds_are_not_the_concern_of_turns(in_turns, monkeypatch):
    """The environment's threshold is the user's choice of the side."""
    clgemm.matmul(A, np.ones((40, 51), np.float32))
    before = turns._turns.end
    monkeypatch.setenv("CLGEMM_THRESHOLD", "1")
    clgemm.matmul(A, B)
    assert turns._turns.end == before
