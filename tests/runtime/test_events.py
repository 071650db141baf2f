"""Tests of events on demand, and of what a queue's next command waits for."""

from __future__ import annotations

import operator
import sys
import threading
import types

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from whole_numbers import whole

import clgemm
from clgemm.runtime import enqueueing
from clgemm.runtime import events as events_module
from clgemm.runtime import workspace as workspace_module
from clgemm.runtime.events import EventsOnDemand, QueueOrder, own_events
from clgemm.runtime.workspace import Workspace, workspace

COMPLETE = cl.command_execution_status.COMPLETE
direct = pytest.mark.skipif(not enqueueing.has_direct_calls(), reason="every kernel has an event")


@pytest.fixture
def queue(device):
    return cl.CommandQueue(device.context)


def products(queue, count=3):
    """Return two operands, their product, and the result of `count` products of both."""
    a, b = (cl_array.to_device(queue, whole(30, 30)) for _ in range(2))
    c = cl_array.zeros(queue, (30, 30), np.float32)
    for _ in range(count):
        clgemm.matmul(a, b, out=c)
    return a, b, c, a.get() @ b.get()


def markers(monkeypatch):
    """Return a list of the queues in which markers are enqueued."""
    found, marker = [], cl.enqueue_marker
    monkeypatch.setattr(
        cl, "enqueue_marker", lambda queue, **k: found.append(queue) or marker(queue, **k)
    )
    return found


@direct
def test_products_make_no_events_until_somebody_reads_them(queue, monkeypatch):
    """However many products there are, reading makes one marker, for all of them."""
    enqueued = []
    enqueue = cl.enqueue_nd_range_kernel
    a, b, c, expected = products(queue)
    d = clgemm.matmul(a, b)
    monkeypatch.setattr(
        cl, "enqueue_nd_range_kernel", lambda *given: enqueued.append(given) or enqueue(*given)
    )
    made = markers(monkeypatch)
    for _ in range(5):
        clgemm.matmul(c, b, out=d)
        clgemm.matmul(a, b, out=c)
    assert (enqueued, made) == ([], [])
    assert len(c.events) == len(d.events) == 1
    assert c.events[0] is d.events[0]
    assert made == [queue]
    c.events[0].wait()
    np.testing.assert_array_equal(c.get(), expected)
    np.testing.assert_array_equal(d.get(), expected @ b.get())


@direct
def test_another_queue_waits_for_the_product(device, queue, monkeypatch):
    """Its command runs after the product, although that has no event of its own yet."""
    gate = cl.UserEvent(device.context)
    a, b, c, expected = products(queue)
    c.fill(np.float32(7))
    made = markers(monkeypatch)
    clgemm.sgemm(1.0, b.T, a.T, 0.0, c.T, overwrite_c=1, wait_for=[gate])
    other = cl.CommandQueue(device.context)
    found = np.empty_like(expected)
    copied = cl.enqueue_copy(other, found, c.base_data, is_blocking=False, wait_for=c.events)
    other.flush()
    assert copied.command_execution_status != COMPLETE
    gate.set_status(COMPLETE)
    copied.wait()
    np.testing.assert_array_equal(found, expected)
    assert len(made) <= 2


@direct
def test_a_product_on_another_queue_waits_for_it(device, queue):
    """The operand's event is made, and the product on the other queue is right."""
    a, b, c, expected = products(queue)
    other = cl.CommandQueue(device.context)
    x = cl_array.Array(other, c.shape, c.dtype, data=c.base_data, events=c.events)
    y = cl_array.to_device(other, np.eye(30, dtype=np.float32))
    for _ in range(4):
        clgemm.matmul(a, b, out=c)
        np.testing.assert_array_equal(clgemm.matmul(x, y).get(), expected)


@direct
def test_an_event_does_not_wait_for_what_a_later_product_waits_for(device, queue):
    """A product's event comes, although the next product on the queue waits for the user."""
    gate = cl.UserEvent(device.context)
    a, b, c, _ = products(queue)
    clgemm.matmul(a, b, out=c)
    d = clgemm.sgemm(1.0, a.T, b.T, wait_for=[gate])
    try:
        c.events[0].wait()  # would hang
        assert c.events[0].command_execution_status == COMPLETE
    finally:
        gate.set_status(COMPLETE)
    assert d.get().shape == (30, 30)


@direct
def test_views_see_the_events_of_their_base(queue):
    """Views made before and after a product have its events."""
    a, b, _, expected = products(queue)
    c = cl_array.zeros(queue, (30, 30), np.float32)
    c.finish()
    before = c[3:]
    for _ in range(4):
        clgemm.matmul(a, b, out=c)
        assert before.events
        assert before.events is c.events
    d = clgemm.matmul(a, b)
    view = d[3:]
    clgemm.matmul(b, a, out=d)
    assert len(view.events) == 1
    np.testing.assert_array_equal(before.get(), expected[3:])
    np.testing.assert_array_equal(view.get(), (b.get() @ a.get())[3:])


@pytest.mark.parametrize("property_name", ["PROFILING_ENABLE", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_some_queues_need_all_events(device, property_name):
    """Events tell the times of kernels, and order the commands of an out-of-order queue."""
    properties = getattr(cl.command_queue_properties, property_name)
    if not device.cl_device.queue_properties & properties:
        pytest.skip("this device has no such queues")
    queue = cl.CommandQueue(device.context, device.cl_device, properties)
    assert not QueueOrder(queue, threading.RLock()).omits_events
    _, _, c, expected = products(queue)
    assert type(c.events) is list
    c.events[0].wait()
    if property_name == "PROFILING_ENABLE":
        assert c.events[0].profile.end >= c.events[0].profile.start
    np.testing.assert_array_equal(c.get(), expected)


@direct
def test_a_kernel_that_cannot_be_enqueued_raises_pyopencls_error(queue, monkeypatch):
    """The call is repeated by pyopencl, which names the error."""
    a, b, c, _ = products(queue)

    def fail(*_):
        raise RuntimeError("none left")

    monkeypatch.setattr(workspace_module.Launch, "enqueue", fail)
    for kernels in (bound.kernels for bound in workspace(queue)._kept.values()):
        for launch in kernels.launches:
            monkeypatch.setattr(launch, "_enqueue", lambda: -4)
    with pytest.raises(RuntimeError, match="none left"):
        clgemm.matmul(a, b, out=c)


class Commands:
    """Commands that are marked by a number in place of an event."""

    def __init__(self, queue="theirs"):
        self.queue, self.made = queue, 0

    def mark(self):
        self.made += 1
        return 1


class Order:
    """The order of a queue that has waited for the events 8 and 9."""

    queue = "theirs"

    @staticmethod
    def has_passed(events):
        return set(events) <= {8, 9}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (list, [7, 1]),
        (tuple, (7, 1)),
        (len, 2),
        (bool, True),
        (repr, "[7, 1]"),
        (sorted, [1, 7]),
        (lambda x: x[-1], 1),
        (lambda x: x[:1], [7]),
        (lambda x: operator.add(x, [3]), [7, 1, 3]),
        (lambda x: operator.add([3], x), [3, 7, 1]),
        (lambda x: [*x], [7, 1]),
        (lambda x: x == [7, 1], True),
        (lambda x: 1 in x, True),
        (lambda x: x.index(1), 1),
        (lambda x: x.pop(), 1),
        (lambda x: x.copy(), [7, 1]),
        (lambda x: [].extend(x) or list(reversed(x)), [1, 7]),
    ],
)
def test_events_on_demand_read_like_a_list(read, expected):
    """Whatever reads the list finds the event that was made for it, and makes it once."""
    commands = Commands()
    events = EventsOnDemand([5])
    events.end_with(commands)
    events.append(7)  # as by `add_event`, after the commands
    assert commands.made == 0
    found = read(events)
    assert (found, commands.made) == (expected, 1)
    assert list(events) == [7, 1] or read([7, 1]) == expected == 1
    assert commands.made == 1


def test_events_on_demand_are_emptied_like_a_list():
    """`clear`, and what `Array.finish` and `add_event` do."""
    events = EventsOnDemand()
    for empty in (EventsOnDemand.clear, lambda x: x.__delitem__(slice(None))):
        events.end_with(Commands())
        empty(events)
        assert list(events) == []
    events.end_with(Commands())
    events.append(5)
    events.extend([6])
    assert events.beside(Order) == (5, 6)
    assert not events.end_in(Order)
    assert list(events) == [5, 6, 1]
    assert events.beside(Order) == (5, 6, 1)


def test_only_the_queue_itself_needs_no_event():
    """Another queue's command waits for an event, which is made for it."""
    events, commands = EventsOnDemand(), Commands("another")
    events.end_with(commands)
    assert not events.end_in(Order)
    assert (events.beside(Order), commands.made) == ((1,), 1)
    events.end_with(Commands())
    assert events.end_in(Order)
    assert events.beside(Order) == ()
    events.append(8)  # which the queue has waited for
    assert events.end_in(Order)
    events.append(7)
    assert not events.end_in(Order)


def repeats(monkeypatch):
    """Return a list of what each product that may repeat the one before has made of that."""
    found, again = [], Workspace.start_again
    monkeypatch.setattr(
        Workspace, "start_again", lambda *given: found.append(again(*given)) or found[-1]
    )
    return found


@direct
def test_products_with_scratch_memory_keep_their_arguments(queue, monkeypatch):
    """Also after a larger product, which replaces the scratch memory.

    A CPU packs such columns. Another device cuts such a long k.
    """

    def operands(n):
        host = [whole(n, 100 * n), whole(50 * n, 2 * n)]
        a, b = (cl_array.to_device(queue, x)[:, ::2] for x in host)
        return a, b, cl_array.zeros(queue, (n, n), np.float32), host[0][:, ::2] @ host[1][:, ::2]

    a, b, c, expected = operands(40)
    for _ in range(4):
        clgemm.matmul(a, b, out=c)
    scratch = dict(workspace(queue)._memory.scratch)
    assert scratch
    repeated = repeats(monkeypatch)
    clgemm.matmul(a, b, out=c)
    assert None not in repeated
    x, y, z, larger = operands(200)
    clgemm.matmul(x, y, out=z)
    assert workspace(queue)._memory.scratch != scratch
    del repeated[:]
    c.fill(0)
    for _ in range(2):
        clgemm.matmul(a, b, out=c)
    assert repeated[-1] is not None
    np.testing.assert_array_equal(c.get(), expected)
    np.testing.assert_array_equal(z.get(), larger)


@direct
def test_operands_that_were_read_go_on_without_events(queue, monkeypatch):
    """After `get` has made an operand's event, products on the queue still make none."""
    a, b, c, expected = products(queue)
    x, y = clgemm.matmul(a, b), clgemm.matmul(b, a)
    assert (x.get() == expected).all()
    for _ in range(3):
        clgemm.matmul(x, y, out=c)
    started = repeats(monkeypatch)
    clgemm.matmul(x, y, out=c)
    assert len(started) == 1
    assert started[0] is not None
    np.testing.assert_array_equal(c.get(), x.get() @ y.get())


@direct
def test_threads_mark_and_multiply(queue):
    """While one thread reads events, the products of others are right and none is lost."""
    done, wrong = threading.Event(), []
    results = []

    def multiply(seed):
        a, b, c, expected = products(queue)
        results.append(c)
        for _ in range(150):
            clgemm.matmul(a, b, out=c)
        wrong.extend([] if np.array_equal(c.get(), expected) else [seed])

    def read():
        while not done.is_set():
            for c in tuple(results):
                list(c.events)

    reader = threading.Thread(target=read)
    reader.start()
    threads = [threading.Thread(target=multiply, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert not wrong
    queue.finish()
    assert not workspace(queue).order.pending()


@direct
def test_a_queue_that_was_dropped_is_freed_at_once(device):
    """Commands without event keep their queue only as long as an array has them."""
    queue = cl.CommandQueue(device.context)
    commands = QueueOrder(queue, threading.RLock()).commands()
    before = sys.getrefcount(queue)
    del commands
    assert sys.getrefcount(queue) == before - 1


def test_only_a_list_that_nobody_else_holds_is_replaced(device):
    """Another holder would not see the events."""
    array = cl_array.empty(device.queue, 3, np.float32)
    held = array.events
    assert own_events(array) is None
    assert array.events is held
    del held
    view = array[1:]
    assert own_events(array) is None
    del view
    own = own_events(array)
    assert isinstance(own, EventsOnDemand)
    assert own is array.events is own_events(array)


@pytest.mark.parametrize("name", ["_jit", "_is_gil_enabled"])
def test_where_references_are_left_out_no_list_is_replaced(name, device, monkeypatch):
    """A count that is too small would look as if nobody else held the list."""
    compiler = types.SimpleNamespace(is_enabled=lambda: True)
    monkeypatch.setattr(sys, name, {"_jit": compiler}.get(name, lambda: False), raising=False)
    monkeypatch.setattr(events_module, "_references", events_module._count_references())
    assert own_events(cl_array.empty(device.queue, 3, np.float32)) is None
