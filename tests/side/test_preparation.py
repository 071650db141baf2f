"""Tests of the way of a program to its device, with a supervisor that the tests play."""

from __future__ import annotations

import pytest
from accelerated import forget_products

from clgemm.core import cache
from clgemm.hardware import trial
from clgemm.side import preparation
from clgemm.side.counts import HOST_FASTER
from clgemm.side.decision import Entry
from clgemm.side.preparation import State

OPERANDS = ((500, 500), (500, 1)), ((500, 500), (500, 1)), (500, 500)


def an_entry(size=500, dtype=None):
    kind, dtypes = ("blas", ()) if dtype is None else (f"exact {dtype}", (dtype,) * 3)
    return Entry("matmul", (size, size, size, 1), kind, OPERANDS, dtypes)


class Supervisor:
    """What `clgemm.hardware.trial` does, without processes."""

    def __init__(self, monkeypatch):
        self.jobs, self.said, self.devices, self.starts = [], {}, None, 0
        self.can_start, self.urgent, self.outlives = True, [], []
        for name in ("start", "request", "answers", "found_devices", "impossible"):
            monkeypatch.setattr(trial, name, getattr(self, name))

    def start(self, _, does_rest, outlives):
        assert does_rest != outlives
        self.outlives.append(outlives)
        self.starts += 1
        return self.can_start

    def impossible(self):
        return "" if self.can_start else "no processes here"

    def request(self, name, is_urgent=False, **keywords):
        self.urgent.append(is_urgent)
        self.jobs.append((name, keywords))
        return len(self.jobs) - 1

    def answers(self):
        return self.said

    def found_devices(self):
        return self.devices


@pytest.fixture
def supervisor(monkeypatch, tmp_path):
    """A process that has just begun, an empty cache, no setting, a supervisor that is played."""
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(preparation, "CHILD_COST_US", 1e5)
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "cache"))
    forget_products()
    yield Supervisor(monkeypatch)
    forget_products()


@pytest.fixture
def elapsed(monkeypatch):
    """The seconds since the program began."""
    seconds = [100.0]
    monkeypatch.setattr(State, "elapsed_s", lambda _: seconds[0])
    return seconds


@pytest.fixture
def opened(monkeypatch):
    """How often the device was opened: it takes no time."""
    opened = []

    def open_it(state):
        if not (state.is_open or state.reason):
            opened.append(state)
            state.is_open = True
        return state.is_open

    monkeypatch.setattr(State, "open", open_it)
    return opened


def run(entry, products, us):
    """Let NumPy make products that take so many microseconds."""
    for _ in range(products):
        entry.calls += 1
        entry.record_host(us)


def test_a_product_that_repeats_is_asked_for_once(supervisor, elapsed, opened):
    """A child makes the product, once; what it took is expected from then on."""
    entry = an_entry()
    run(entry, 5, 1e3)
    assert supervisor.jobs == []  # hardly anything was computed yet
    run(entry, 200, 1e3)
    ((name, keywords),) = supervisor.jobs
    assert (name, keywords["shape"], keywords["device"]) == ("product", (500, 500), None)
    assert entry.is_requested
    supervisor.said[0] = {"outcome": "right", "seconds": 2e-4, "built": []}
    run(entry, 10, 1e3)
    assert entry.expected_us()[1] == pytest.approx(200.0)
    assert supervisor.said == {}


def test_a_child_process_starts_once_products_pay_for_it(supervisor, elapsed, opened):
    """The program feels it. Once it runs, each product is asked for."""
    first, second, third = an_entry(500), an_entry(100), an_entry(50)
    run(first, 50, 1e3)
    run(second, 45, 1e3)
    assert (supervisor.starts, supervisor.jobs) == (0, [])
    run(second, 10, 1e3)
    assert len(supervisor.jobs) == 2
    run(third, 10, 1e3)
    assert len(supervisor.jobs) == 3


def test_what_numpy_has_no_blas_for_pays_sooner(supervisor, elapsed, opened):
    """Most of such products gain a lot."""
    for dtype, starts in (("float64", 0), ("int32", 1)):
        run(an_entry(500, dtype), 50, 1e3)
        assert supervisor.starts == starts


def test_what_is_missing_is_prepared_after_the_program(supervisor, opened, monkeypatch, elapsed):
    """A short program does not feel it, and the next run finds what it needs."""
    monkeypatch.setattr(preparation, "CHILD_COST_US", 2e6)
    entry = an_entry(500)
    run(entry, 200, 1e3)
    preparation.state._write()
    assert (supervisor.starts, supervisor.jobs) == (0, [])  # it was too short for that, too
    run(entry, 200, 1e3)
    preparation.state._write()
    assert len(supervisor.jobs) == 1
    assert (supervisor.outlives, supervisor.urgent) == ([True], [False])
    preparation.state._write()
    assert len(supervisor.jobs) == 1


def test_a_program_that_ends_opens_nothing(supervisor, opened, monkeypatch, elapsed):
    """Also where no child process starts."""
    monkeypatch.setattr(preparation, "CHILD_COST_US", 2e7)
    supervisor.can_start = False
    run(an_entry(), 4, 3e6)
    preparation.state._write()
    assert (supervisor.starts, opened) == (1, [])


@pytest.mark.parametrize(("seconds", "is_urgent"), [(0.3, False), (3.0, True)])
def test_child_processes_have_no_low_priority_for_long_products(
    seconds, is_urgent, supervisor, elapsed, opened
):
    """On a busy machine they would get no time otherwise."""
    run(an_entry(), 3, 1e6 * seconds)
    assert supervisor.urgent == [is_urgent]


def test_a_product_of_a_slow_class_is_not_asked_for(supervisor, elapsed, opened):
    """The device took a quarter longer than NumPy for one like it: no child starts for others."""
    first, second = an_entry(500), an_entry(490)
    assert first.size_class == second.size_class
    preparation.clock.device.add(first.size_class, first.work, 1.3e3)
    run(second, 500, 1e3 * second.work / first.work)
    assert (supervisor.starts, supervisor.jobs) == (0, [])
    assert not second.is_faster_on_device()
    assert second.reason == HOST_FASTER
    preparation.clock.device.add(first.size_class, first.work, 1.1e3)
    run(an_entry(480), 500, 1e3)
    assert len(supervisor.jobs) == 1


def test_times_beside_child_processes_are_only_bounds(supervisor, elapsed, opened, monkeypatch):
    """They take cores from NumPy meanwhile."""
    monkeypatch.setattr(State, "_poll", lambda _: None)  # nothing has been answered yet
    entry = an_entry()
    run(entry, 10, 1e3)
    preparation.state.is_working = True
    run(entry, 10, 3e3)
    assert entry.host.us == 1e3
    assert preparation.clock.host.us(entry.size_class, entry.work) == pytest.approx(1e3)
    run(entry, 2, 500.0)
    assert entry.host.us < 1e3


@pytest.mark.parametrize("setting", ["CLGEMM_PREPARE=never", "CLGEMM_SIDE=host"])
def test_settings_that_start_nothing(setting, supervisor, elapsed, opened, monkeypatch):
    """No child starts, and the device is not opened."""
    monkeypatch.setenv(*setting.split("="))
    run(an_entry(), 500, 1e4)
    assert (supervisor.starts, supervisor.jobs, opened) == (0, [], [])


def test_the_device_is_opened_once_that_pays(supervisor, elapsed, opened):
    """Both counts: what it has cost to be without it, and how long the program runs."""
    entry = an_entry()
    entry.estimate_us = 1e3
    run(entry, 40, 1e4)  # 0.36 s would have been saved
    assert opened == []
    run(entry, 60, 1e4)
    assert len(opened) == 1
    forget_products()
    elapsed[0] = 3.0  # the opening would be a fifth of the program
    entry = an_entry()
    entry.estimate_us = 9e3
    run(entry, 800, 1e4)  # of which a quarter would have been saved
    assert len(opened) == 1
    entry.estimate_us = 1e3
    run(entry, 800, 1e4)  # nearly all of it
    assert len(opened) == 2


def test_an_opening_is_known_to_all_programs(supervisor, elapsed, opened):
    """Whichever program has opened the device; a short one pays for a program that gains less."""
    entry = an_entry()
    entry.estimate_us = 1e3
    preparation.state.read()
    preparation.clock.opening_s = 0.1
    preparation.state._write()
    forget_products()
    preparation.clock.opening_s = 0.0
    preparation.state.read()
    assert preparation.clock.opening_s == 0.1
    entry = an_entry()
    entry.estimate_us = 1e3
    run(entry, 20, 1e4)  # 0.18 s would have been saved
    assert len(opened) == 1


def test_a_slower_device_is_never_opened(supervisor, elapsed, opened):
    """NumPy goes on."""
    entry = an_entry()
    entry.estimate_us = 2e4
    run(entry, 5000, 1e4)
    assert opened == []


def test_the_next_run_of_a_program_opens_at_once(supervisor, elapsed, opened):
    """It knows what the last one computed, and what the device would have taken."""
    state, entry = preparation.state, an_entry()
    preparation.entries["a"] = entry
    run(entry, 1000, 1e4)
    key = supervisor.jobs[0][1]["key"]
    cache.remember(key, 1e-3)  # the child was still at work when the program ended
    state._write()
    forget_products()
    elapsed[0] = 1.0
    run(an_entry(), 1, 2.1e4)  # reads what was stored
    assert opened == []
    entry = an_entry()
    preparation.state.recall(entry)
    assert (entry.host.us, entry.estimate_us) == (pytest.approx(1e4), pytest.approx(1e3))
    run(entry, 1, 1e4)
    assert len(opened) == 1


DAMAGES = [None, 7, [], {"products": {}, "opening": "x"}, {"opening": -1.0}, {"products": [1]}]
DAMAGES += [{"products": {"k": x}} for x in ([None, 1, 0.0], ["a", 1, "b"], [1.0], [-1, 1, 1e99])]


@pytest.mark.parametrize("damage", [*DAMAGES, "brackets"])
def test_what_is_stored_may_be_damaged(damage, supervisor, elapsed, opened):
    """Then nothing is known of the last run."""
    for key in (preparation._program_key(), preparation._machine_key()):
        cache.remember(key, damage)
        if damage == "brackets":
            cache._verdict_file(key).write_text("[" * 100_000)
    run(an_entry(), 100, 1e4)
    assert len(supervisor.jobs) == 1
    assert preparation.clock.opening_s == 0.0


def test_beside_a_short_program_hardly_anything_is_done(supervisor, elapsed, opened):
    """What this process does for the device takes at most a small part of the time so far."""
    elapsed[0] = 0.1
    run(an_entry(), 500, 1e4)
    assert (supervisor.starts, supervisor.jobs) == (0, [])


def test_a_device_that_no_worker_finds_is_one_warning(supervisor, elapsed, opened, caplog):
    """NumPy multiplies from then on, and the reason is known."""
    entry = an_entry()
    run(entry, 100, 1e4)
    supervisor.devices = {"device": None, "problem": "no OpenCL device was found"}
    run(entry, 300, 1e4)
    assert [record.message for record in caplog.records] == [
        "clgemm: NumPy multiplies: no OpenCL device was found"
    ]
    assert preparation.state.reason == "no OpenCL device was found"
    entry.estimate_us, entry.remaining = 1.0, 0
    assert not entry.goes_to_device()


def test_a_product_that_a_worker_refuses_stays_numpys(supervisor, elapsed, opened):
    """It is not asked for again."""
    entry = an_entry()
    run(entry, 100, 1e4)
    supervisor.said[0] = {"outcome": "refused", "reason": "cannot be built"}
    run(entry, 300, 1e4)
    assert (len(supervisor.jobs), entry.expected_us()[1], opened) == (1, 0.0, [])


def test_a_product_that_had_no_room_is_asked_for_again(supervisor, elapsed, opened):
    """Other processes held the memory: it is asked for ten seconds later, then after twenty."""
    entry = an_entry()
    run(entry, 100, 1e4)
    for asked, seconds in ((1, 10), (2, 20)):
        supervisor.said[asked - 1] = {"outcome": "unchecked", "reason": "OUT_OF_HOST_MEMORY"}
        run(entry, 1, 1e4)
        elapsed[0] += 0.9 * seconds
        run(entry, 1, 1e4)
        assert len(supervisor.jobs) == asked
        elapsed[0] += 0.2 * seconds
        run(entry, 1, 1e4)
        assert len(supervisor.jobs) == asked + 1


def test_a_device_without_room_is_opened_later(supervisor, elapsed, monkeypatch):
    """NumPy multiplies meanwhile."""
    attempts = []

    def has_no_room():
        attempts.append(1)
        if len(attempts) == 1:
            raise MemoryError("no room for this process now")

    monkeypatch.setattr("clgemm.side.preparation.open_chosen", has_no_room)
    assert not preparation.state.open()
    assert not preparation.state.open()
    elapsed[0] += 11
    assert preparation.state.open()
    assert (preparation.state.reason, len(attempts)) == ("", 2)


def test_where_no_child_starts_the_device_is_used_unchecked(supervisor, elapsed, opened):
    """It is opened by the program itself."""
    supervisor.can_start = False
    run(an_entry(), 100, 1e4)
    assert len(opened) == 1


def test_a_product_waits_if_numpy_takes_longer_than_all_else(supervisor, elapsed, opened):
    """One of 20,000 a side waits for a device that nobody has prepared; one of 2000 does not."""
    assert not an_entry(2000).goes_to_device()
    assert opened == []
    large = an_entry(20_000)
    large.host.us = 1e8
    assert large.goes_to_device()
    assert (large.waits, len(opened)) == (True, 1)


def test_products_of_several_devices_have_times_of_their_own(supervisor, monkeypatch):
    """What one device takes says nothing about another."""
    monkeypatch.setattr(preparation, "_identity", lambda devices: devices and devices[0])
    keys = {preparation._product_key("x", devices) for devices in (None, ("one",), ("two",))}
    assert len(keys) == 3


def test_a_disk_that_is_full_costs_time_only(supervisor, elapsed, opened, monkeypatch):
    """Nothing is stored, and nothing fails."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "replace", full)
    entry = an_entry()
    preparation.entries["a"] = entry
    run(entry, 500, 1e4)
    preparation.state._write()
    assert len(supervisor.jobs) == 1


def test_progress_is_told_in_words(supervisor, monkeypatch):
    """It is empty if nothing is being done."""
    monkeypatch.setattr(trial, "status", dict)
    assert preparation.progress() == ""
    monkeypatch.setattr(trial, "status", lambda: {"done": 3, "total": 5, "seconds": 4.2})
    assert preparation.progress() == "preparing: 3 of 5 parts done, 4 s"
    monkeypatch.setattr(trial, "status", lambda: {"done": 5, "total": 5, "seconds": 4.2})
    assert preparation.progress() == ""
