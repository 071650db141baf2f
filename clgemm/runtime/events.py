"""What the commands of a queue wait for, and events that are made when somebody asks for them.

An event costs NVIDIA's driver 2 us for each kernel, on the host and on the GPU, and most are never
used: commands of an in-order queue follow each other anyway. So a product on such a queue leaves
`EventsOnDemand` in its result. These make a marker when they are read.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pyopencl as cl

from clgemm.hardware.device import is_in_order
from clgemm.runtime.enqueueing import has_direct_calls

MOST_PAST = 32  # the number of events that are remembered as waited for


class Unmarked:
    """Commands of an in-order queue that have no event yet.

    Attributes
    ----------
    event : pyopencl.Event or None
        Complete only after all of them. None as long as nobody has asked for it.
    """

    __slots__ = ("_lock", "event", "queue")

    def __init__(self, queue: cl.CommandQueue, lock: threading.RLock) -> None:
        self.queue, self._lock = queue, lock
        self.event: cl.Event | None = None

    def mark(self) -> cl.Event:
        """Return their event. Later commands are none of these."""
        with self._lock:
            if self.event is None:
                self.event = flushed_marker(self.queue)
            return self.event


def flushed_marker(queue: cl.CommandQueue) -> cl.Event:
    """Return a new event after all of a queue's commands, for which another queue may wait."""
    marker = cl.enqueue_marker(queue)
    queue.flush()
    return marker


class EventsOnDemand(list[cl.Event]):
    """A list of events, the last of which is made when the list is read.

    All methods are those of a list; those that read it make the event first. The event is complete
    after everything that its queue holds when it is made.
    """

    __slots__ = ("_commands",)

    def __init__(self, events: Iterable[cl.Event] = ()) -> None:
        super().__init__(events)
        self._commands: Unmarked | None = None

    def end_with(self, commands: Unmarked) -> None:
        """Replace all events by that of some commands, which wait for all that were here."""
        list.clear(self)
        self._commands = commands

    def are_of(self, commands: Unmarked) -> bool:
        """Return whether there is only the event of some commands, not made yet."""
        return self._commands is commands and not list.__len__(self)

    def end_in(self, order: QueueOrder) -> bool:
        """Return whether a queue's next command comes after all of them anyway."""
        commands = self._commands
        if commands is not None and commands.queue is not order.queue:
            return False
        return not list.__len__(self) or order.has_passed(list.__iter__(self))

    def beside(self, order: QueueOrder) -> Sequence[cl.Event]:
        """Return the events that the next command of a queue has to wait for.

        These are all but that of the queue's own commands.
        """
        commands = self._commands
        if commands is not None and commands.queue is not order.queue:
            self._make()
        return tuple(list.__iter__(self)) if list.__len__(self) else ()

    def _make(self) -> None:
        commands = self._commands
        if commands is not None:
            event = commands.mark()
            if commands is self._commands:  # no other thread was here meanwhile
                self._commands = None
                list.append(self, event)

    def __radd__(self, other: list[cl.Event]) -> list[cl.Event]:
        return [*other, *self]

    def clear(self) -> None:
        """Remove all events."""
        list.clear(self)
        self._commands = None


def _reading(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def read(self: EventsOnDemand, *arguments: Any) -> Any:
        self._make()
        return method(self, *arguments)

    read.__name__, read.__doc__ = name, method.__doc__
    return read


for _name in (
    *("__contains__", "__delitem__", "__eq__", "__ge__", "__getitem__", "__gt__", "__iadd__"),
    *("__imul__", "__iter__", "__le__", "__len__", "__lt__", "__mul__", "__ne__", "__repr__"),
    *("__reversed__", "__rmul__", "__setitem__", "__add__", "copy", "count", "index", "insert"),
    *("pop", "remove", "reverse", "sort"),
):
    setattr(EventsOnDemand, _name, _reading(_name))


class QueueOrder:
    """What the next command of a queue has to wait for. Its methods need the lock.

    Attributes
    ----------
    is_in_order : bool
        Whether the queue's commands run one after the other.
    omits_events : bool
        Whether commands may do without an event: the queue is in order, and it does not record
        times, which users would read from the events.
    is_uncertain : bool
        Whether calls were interrupted or nested, so that there may be commands after the last event
        that is known.
    """

    def __init__(self, queue: cl.CommandQueue, lock: threading.RLock) -> None:
        self.queue, self._lock = queue, lock
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        is_profiled = bool(cast("int", queue.properties) & profiling)
        self.is_in_order = is_in_order(queue)
        self.omits_events = self.is_in_order and not is_profiled and has_direct_calls()
        self.is_uncertain = False
        self._last: cl.Event | None = None
        self._unmarked: Unmarked | None = None
        # For an in-order queue, by id: the events of its own commands and those that it has waited
        # for. It need not wait for them again, which would take time in NVIDIA's driver.
        self._past: dict[int, cl.Event] = {}

    def ahead(self, events: Sequence[cl.Event]) -> list[cl.Event] | None:
        """Return those events that the next command has to wait for, or None."""
        if not self.is_in_order:
            return [*events, *self._all_before()]
        self.unmarked()
        return [each for each in events if id(each) not in self._past] or None

    def has_passed(self, events: Iterable[cl.Event]) -> bool:
        """Return whether commands of an in-order queue have waited for all of these events."""
        past = self._past
        for event in events:  # noqa: SIM110 - mostly none or one, for which a generator is slow
            if id(event) not in past:
                return False
        return True

    def before(self, lists: Iterable[Sequence[cl.Event]]) -> list[cl.Event]:
        """Return all events of several lists but those of the queue's own commands without event.

        Call it without the lock: other queues may have to make their events.
        """
        return [
            event
            for events in lists
            for event in (events.beside(self) if type(events) is EventsOnDemand else events)
        ]

    def commands(self) -> Unmarked:
        """Return the commands without event up to now, among which the next one will be."""
        commands = self.unmarked()
        if commands is None:
            commands = self._unmarked = Unmarked(self.queue, self._lock)
        return commands

    def unmarked(self) -> Unmarked | None:
        """Return the commands without event up to now, if there are any."""
        commands = self._unmarked
        if commands is None or commands.event is None:
            return commands
        with self._lock:
            if commands is self._unmarked:  # no other thread was here meanwhile
                self._past[id(commands.event)] = self._last = commands.event
                self._unmarked = None
            return self._unmarked

    def ended(self, ahead: list[cl.Event] | None, event: cl.Event | None) -> None:
        """Record the events that commands waited for, and that of the last command, if any."""
        if self.is_in_order:  # later commands run after these events
            past = self._past
            if len(past) > MOST_PAST:
                past.clear()
            past.update((id(each), each) for each in ahead or ())
            if event is not None:
                past[id(event)] = event
        if event is not None:
            self._last = event

    def pending(self) -> Sequence[cl.Event]:
        """Return the events after which another queue may write to memory allocated so far."""
        complete = cl.command_execution_status.COMPLETE
        return tuple(e for e in self._all_before() if e.command_execution_status > complete)

    def _all_before(self) -> Sequence[cl.Event]:
        """Return events that are complete only after all commands of this queue up to now."""
        if self.is_uncertain:
            with self._lock:
                return (flushed_marker(self.queue),)
        if (commands := self.unmarked()) is not None:
            return (commands.mark(),)
        return () if self._last is None else (self._last,)


def own_events(array: Any) -> EventsOnDemand | None:
    """Return an array's events as `EventsOnDemand`, which replace an ordinary list.

    Returns
    -------
    EventsOnDemand or None
        None if others hold the ordinary list, such as views of the array.
    """
    events = array.events
    if type(events) is EventsOnDemand:
        return events
    if type(events) is not list or sys.getrefcount(events) != _references:
        return None
    array.events = events = EventsOnDemand(events)
    return events


def _count_references() -> int:
    """Return the references to a list that only its array holds, as `own_events` counts them.

    Interpreters that leave out references, which compile to machine code or run threads without a
    global lock, count none: there `own_events` replaces no list.
    """
    global _references

    compiler = getattr(sys, "_jit", None)
    is_locked = getattr(sys, "_is_gil_enabled", lambda: True)
    if (compiler is not None and compiler.is_enabled()) or not is_locked():
        return 0

    class Holder:
        def __init__(self) -> None:
            self.events: list[cl.Event] = []

    for _references in range(1, 9):
        if own_events(Holder()) is not None:
            return _references
    return 0


_references = 0
_references = _count_references()
