"""Protection of host arrays: they are read-only while a copy of their memory is in use.

This module knows who owns an array's memory, and who else NumPy lets write to it.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from clgemm.core.threads import ForkableLock
from clgemm.runtime.kept_memory import ResultMemory

Array: TypeAlias = npt.NDArray[Any]


class Guard:
    """The arrays of one owner of memory that are read-only now.

    They become what they were when the last holder releases the guard: an array that became
    writable earlier could write to memory that another holder relies on.

    Attributes
    ----------
    owner : object
        What owns the memory: an array, or bytes.
    """

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.holders = 0
        # Each array, and whether it was writable.
        self._arrays: dict[int, tuple[Array, bool]] = {}

    def holds(self) -> bool:
        """Return whether all its arrays are still read-only: a program may set the flag back."""
        return not any(array.flags.writeable for array, _ in list(self._arrays.values()))

    def is_immutable(self) -> bool:
        """Return whether nothing can write to the memory."""
        return not isinstance(self.owner, np.ndarray)

    def add(self, chain: list[Array]) -> None:
        """Hold the guard, and protect an array and its bases."""
        self.holders += 1
        for array in chain:
            self._arrays.setdefault(id(array), (array, array.flags.writeable))
            array.flags.writeable = False

    def release(self) -> None:
        """End one holder's protection, and with the last one's restore all flags."""
        with _lock:
            self.holders -= 1
            if self.holders:
                return
            _guards.pop(id(self.owner), None)
            arrays, self._arrays, owner = self._arrays, {}, self.owner
            if isinstance(owner, np.ndarray) and any(was for _, was in arrays.values()):
                owner.flags.writeable = True  # or NumPy would refuse that of its views
            # The owner, which is the last of each chain, comes after its views.
            for array, was_writeable in sorted(arrays.values(), key=lambda x: x[0] is owner):
                array.flags.writeable = was_writeable


_lock = ForkableLock()  # reentrant: a finalizer may release
_guards: dict[int, Guard] = {}  # by the id of the owner, which its guard keeps alive


def protect(array: Array, name: str) -> Guard:
    """Make an array read-only until the guard that is returned is released.

    Raises
    ------
    ValueError
        If someone else could write to the array's memory, as far as NumPy knows. They could
        through a writable base, or as the owner of memory that is not NumPy's.
    """
    with _lock:
        guard = _guards.get(id(_owner(array)))
        if guard is None:
            _require_protectable(array, name)
            owner = _owner(array)
            guard = _guards[id(owner)] = Guard(owner)
        guard.add(_chain(array))
        return guard


def is_protected(array: Array) -> bool:
    """Return whether `protect` has made memory read-only that is NumPy's own."""
    if not _guards:
        return False
    owner = _owner(array)
    return isinstance(owner, np.ndarray) and id(owner) in _guards


def _chain(array: Array) -> list[Array]:
    """Return an array, its base, the base's base and so on, as far as they are arrays."""
    chain = [array]
    while isinstance(chain[-1].base, np.ndarray):
        chain.append(chain[-1].base)
    return chain


def _owner(array: Array) -> object:
    """Return what owns an array's memory."""
    last = _chain(array)[-1]
    return last if last.base is None or isinstance(last.base, ResultMemory) else last.base


def _require_protectable(array: Array, name: str) -> None:
    shared = _shared_bases(array)
    owner = _owner(array)
    if isinstance(owner, np.ndarray):
        if owner.base is None and not owner.flags.owndata:
            raise ValueError(
                f"{name} cannot be protected: nobody says who owns its memory; pass a copy"
            )
    elif not _is_immutable(owner):
        raise ValueError(
            f"{name} cannot be protected: its memory belongs to an object of type "
            f"{type(owner).__name__}, which others may write to; pass a copy"
        )
    if shared:
        raise ValueError(
            f"{name} cannot be protected: it is a view of a writable array of shape "
            f"{shared[0]}, which others hold; pass that array, or a copy"
        )


def _is_immutable(owner: object) -> bool:
    return isinstance(owner, bytes) or (
        isinstance(owner, memoryview) and owner.readonly and isinstance(owner.obj, bytes)
    )


def _shared_bases(array: Array) -> list[tuple[int, ...]]:
    """Return the shapes of an array's bases that are writable and that others hold, too."""
    chain = _chain(array)
    bases = range(1, len(chain))
    return [
        chain[i].shape for i in bases if chain[i].flags.writeable and _count(chain, i) > _PRIVATE
    ]


def _count(chain: list[Array], i: int) -> int:
    return sys.getrefcount(chain[i])


# References to a base that nobody holds but its one view, as this version of Python counts them.
_PRIVATE = _count(_chain(np.empty(1)[:]), 1)
