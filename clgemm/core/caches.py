"""The registry of caches that go out of date, and of caches that keep contexts alive.

A cache that depends on records, measured crossovers or verdicts is registered here by the module
that owns it, so that `forget_plans` clears it too. A cache that holds devices, contexts or queues
and nothing that goes out of date is registered for `release_contexts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ["forget_plans", "forgettable", "holds_contexts", "note", "on_forget", "release_contexts"]


class _Cached(Protocol):
    """A function that `functools.lru_cache` or `functools.cache` has wrapped."""

    def cache_clear(self) -> None: ...


F = TypeVar("F", bound=_Cached)
K = TypeVar("K")
V = TypeVar("V")

# The functions that clear the caches. A module registers its own on import, after the modules that
# it imports. So a cleared cache is never filled again from one that is still out of date.
_clearers: list[Callable[[], object]] = []
_holders: list[Callable[[], object]] = []


def on_forget(clear: Callable[[], object]) -> None:
    """Register a function that clears a cache."""
    _clearers.append(clear)


def forgettable(cached: F) -> F:
    """Register a cached function: a decorator above ``functools.lru_cache``."""
    on_forget(cached.cache_clear)
    return cached


def forget_plans() -> None:
    """Clear all registered caches, so that the next calls are planned anew."""
    for clear in _clearers:
        clear()


def holds_contexts(cached: F) -> F:
    """Register a cached function that keeps contexts alive: a decorator as `forgettable`."""
    _holders.append(cached.cache_clear)
    return cached


def release_contexts() -> None:
    """Clear all caches that keep contexts alive; those still in use are found or made again."""
    forget_plans()
    for clear in _holders:
        clear()


def note(notes: dict[K, V], key: K, value: V, most: int) -> None:
    """Keep a value by its key. With `most` values, all are dropped first: no order is kept."""
    if len(notes) >= most:
        notes.clear()
    notes[key] = value
