"""The timeline of one product: who was busy when, with how many bytes, and what had to wait.

Pure: from spans to sums, the limit and the critical path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "CALLER",
    "COMPUTE",
    "DOWN",
    "UP",
    "WAIT",
    "Contributor",
    "Span",
    "Timeline",
    "busy_ns",
    "contributors",
    "critical_path",
    "median",
]

CALLER, UP, COMPUTE, DOWN = "caller", "link up", "compute", "link down"
WAIT = "wait"  # of the caller, for a copy or a transfer
GAP = "latency and caller"  # between one step of the critical path and the next


@dataclass(frozen=True)
class Span:
    """One activity.

    Attributes
    ----------
    lane : str
        "caller", "link up", "compute", "link down", or a thread's name.
    what : str
        Such as "copy in" or a kernel's name.
    start_ns, end_ns : int
        By the host's clock.
    size_bytes : int
        Bytes that were copied or transferred; 0 for others.
    part : int
        Address of the host array's part that it moves, 0 if none: what a copy fills, a transfer of
        the same part sends.
    enqueued_ns : int
        When the caller enqueued it; 0 for activities of the host.
    faults : int
        Page faults of the thread meanwhile.
    """

    lane: str
    what: str
    start_ns: int
    end_ns: int
    size_bytes: int = 0
    part: int = 0
    enqueued_ns: int = 0
    faults: int = 0

    @property
    def time_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.start_ns


def busy_ns(spans: Iterable[Span]) -> int:
    """Return the time in which at least one of the spans runs."""
    total, until = 0, None
    for span in sorted(spans, key=lambda each: each.start_ns):
        if until is None or span.start_ns > until:
            total += span.time_ns
            until = span.end_ns
        elif span.end_ns > until:
            total += span.end_ns - until
            until = span.end_ns
    return total


class Row(NamedTuple):
    """A line of the table of lanes."""

    lane: str
    what: str
    number: int
    busy_ns: int
    size_bytes: int
    faults: int

    @property
    def gbps(self) -> float:
        """Billions of bytes per second of busy time."""
        return self.size_bytes / self.busy_ns if self.busy_ns else 0.0


@dataclass(frozen=True)
class Timeline:
    """All spans of one product.

    Attributes
    ----------
    start_ns, end_ns : int
        Of the call, the allocation of a new result included.
    flops : int
        Operations of the product.
    """

    spans: tuple[Span, ...]
    start_ns: int
    end_ns: int
    flops: int

    @property
    def time_ns(self) -> int:
        """How long the call took."""
        return self.end_ns - self.start_ns

    def lanes(self) -> list[str]:
        """Return the lanes: the caller, other threads, then the device's."""
        fixed = CALLER, UP, COMPUTE, DOWN
        threads = sorted({span.lane for span in self.spans} - set(fixed))
        return [CALLER, *threads, UP, COMPUTE, DOWN]

    def lane(self, name: str) -> list[Span]:
        """Return a lane's spans in the order of their start."""
        return sorted((s for s in self.spans if s.lane == name), key=lambda s: s.start_ns)

    def rows(self) -> list[Row]:
        """Return the busy time of each lane; of host threads, for each thing that they do."""
        rows = []
        for lane in self.lanes():
            kinds: dict[str, list[Span]] = {}
            for span in self.lane(lane):
                kinds.setdefault("" if lane in (UP, COMPUTE, DOWN) else span.what, []).append(span)
            for what, spans in kinds.items():
                size_bytes = sum(span.size_bytes for span in spans)
                faults = sum(span.faults for span in spans)
                rows.append(Row(lane, what, len(spans), busy_ns(spans), size_bytes, faults))
        return rows

    def limits(self) -> dict[str, int]:
        """Return the busy time of both directions of the link and of the device, in ns."""
        return {lane: busy_ns(self.lane(lane)) for lane in (UP, COMPUTE, DOWN)}

    @property
    def limit_ns(self) -> int:
        """The time of the busiest of them: with perfect overlap, the call would take that long."""
        return max(self.limits().values())

    def as_dict(self) -> dict[str, object]:
        """Return everything for JSON; times count from the start of the call."""
        return {
            "time_ns": self.time_ns,
            "limit_ns": self.limit_ns,
            "limits_ns": self.limits(),
            "ratio_to_limit": self.time_ns / self.limit_ns if self.limit_ns else None,
            "flops": self.flops,
            "lanes": [{**row._asdict(), "gbps": row.gbps} for row in self.rows()],
            "critical_path": [each._asdict() for each in contributors(self)],
            "spans": [
                {
                    "lane": s.lane,
                    "what": s.what,
                    "start_ns": s.start_ns - self.start_ns,
                    "end_ns": s.end_ns - self.start_ns,
                    "bytes": s.size_bytes,
                    "faults": s.faults,
                }
                for s in sorted(self.spans, key=lambda each: each.start_ns)
            ],
        }


class Contributor(NamedTuple):
    """What a part of the critical path was spent on."""

    lane: str
    what: str
    time_ns: int


def critical_path(timeline: Timeline) -> list[Span]:
    """Return the spans, last first, each of which the one before it in this list waited for.

    A span waits for what brings its data and for the span before it in its lane: for the one of
    them that ends last. A copy moves the same part of an array as its transfer. A kernel waits for
    the last transfer that was enqueued before it, a result for the last kernel. Where the caller
    had waited, what it waited for counts.
    """
    work = [s for s in timeline.spans if s.time_ns > 0]
    by_part: dict[int, list[Span]] = {}
    by_lane: dict[str, list[Span]] = {}
    for span in work:
        by_lane.setdefault(span.lane, []).append(span)
        if span.part:
            by_part.setdefault(span.part, []).append(span)
    last = max((s for s in work if s.lane != CALLER or s.part), key=_end, default=None)
    path, seen = [], set()
    while last is not None and last not in seen:
        seen.add(last)
        if last.what != WAIT:
            path.append(last)
        last = _waited_for(last, by_part, by_lane)
    return path


def _waited_for(
    span: Span, by_part: dict[int, list[Span]], by_lane: dict[str, list[Span]]
) -> Span | None:
    """Return what a span waited for: of all candidates, the one that ended last."""
    candidates = [s for s in by_lane[span.lane] if s.end_ns <= span.start_ns]
    candidates += [s for s in by_part.get(span.part, ()) if s.end_ns <= span.start_ns]
    source = {COMPUTE: UP, DOWN: COMPUTE}.get(span.lane)
    if source is not None:
        enqueued = [s for s in by_lane.get(source, ()) if s.enqueued_ns <= span.enqueued_ns]
        last = max(enqueued, key=lambda s: s.enqueued_ns, default=None)
        # Clocks of the host and the device differ by some microseconds.
        if last is not None and last.start_ns < span.start_ns:
            candidates.append(last)
    candidates = [s for s in candidates if s.start_ns < span.start_ns]
    if span.what == WAIT:
        for lane, spans in by_lane.items():
            if lane not in (CALLER, COMPUTE):
                candidates += (s for s in spans if span.start_ns < s.end_ns <= span.end_ns)
    return max(candidates, key=_end, default=None)


def _end(span: Span) -> int:
    return span.end_ns


def contributors(timeline: Timeline) -> list[Contributor]:
    """Return what the critical path was spent on, the greatest first.

    The times add up to the call's: a span counts from the end of what it waited for, and the rest
    is latency or the caller's.
    """
    totals: dict[tuple[str, str], int] = {}

    def add(lane: str, what: str, time_ns: int) -> None:
        if time_ns > 0:
            totals[lane, what] = totals.get((lane, what), 0) + time_ns

    until = timeline.end_ns
    for span in critical_path(timeline):
        threads = span.lane not in (CALLER, UP, COMPUTE, DOWN)
        end = min(span.end_ns, until)
        add("", GAP, until - end)
        start = max(min(span.start_ns, end), timeline.start_ns)
        name = "" if span.lane in (UP, COMPUTE, DOWN) else span.what
        add("copying threads" if threads else span.lane, name, end - start)
        until = start
    add("", GAP, until - timeline.start_ns)
    found = [Contributor(lane, what, time_ns) for (lane, what), time_ns in totals.items()]
    return sorted(found, key=lambda each: -each.time_ns)


def median(timelines: Sequence[Timeline]) -> Timeline:
    """Return the timeline of the median call; of an even number, the faster of both."""
    ordered = sorted(timelines, key=lambda each: each.time_ns)
    return ordered[(len(ordered) - 1) // 2]
