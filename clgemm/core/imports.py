"""What happens at a module's first import, whoever imports it. Nothing heavy is imported here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

OWN = "clgemm."


def is_imported(name: str) -> bool:
    """Return whether a module is imported completely."""
    module = sys.modules.get(name)
    return module is not None and not getattr(
        getattr(module, "__spec__", None), "_initializing", False
    )


def after_import(name: str, call: Callable[[], object]) -> None:
    """Call a function right after a module is first imported; now if it is.

    Where the module is just being imported, the function is called after that of the next one.
    Where a module of this package imports it, the function is called once that one is complete: it
    may need it.
    """
    if is_imported(name):
        call()
        return
    _finder().calls.setdefault(name, []).append(call)


def set_during_import(name: str, variable: str, value: str) -> None:
    """Set an environment variable while a module is first imported, unless it is set then.

    Processes that the program starts do not see it.
    """
    if not is_imported(name):
        _finder().calls.setdefault(name, [])
        _finder().variables[name] = variable, value


def _finder() -> _Finder:
    found = next((each for each in sys.meta_path if isinstance(each, _Finder)), None)
    if found is None:
        found = _Finder()
        sys.meta_path.insert(0, found)
    return found


class _Finder:
    """A finder whose modules are those of the other finders, with a loader that calls functions.

    Packages that only ask whether a module is installed get a spec too, and throw it away.
    """

    def __init__(self) -> None:
        self.calls: dict[str, list[Callable[[], object]]] = {}
        self.variables: dict[str, tuple[str, str]] = {}
        self.own = 0  # modules of this package that are being imported
        self._late: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.calls:
            self._catch_up()
            if not (self.calls and name.startswith(OWN)):
                return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            if (spec := find(name, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def _catch_up(self) -> None:
        """Call what waits for modules that were being imported when they were asked for."""
        for name in [name for name in self.calls if is_imported(name)]:
            self.done(name)

    def done(self, name: str) -> None:
        """Call what waits for a module, and for those that were imported by this package."""
        self._late.append(name)
        while self._late and not self.own:
            for call in self.calls.pop(self._late.pop(0), ()):
                call()


class _Loader:
    """A loader that imports a module by the module's own loader, and then calls functions."""

    def __init__(self, own: Any, finder: _Finder) -> None:
        self._own, self._finder = own, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: Any) -> Any:
        return self._own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._own
        is_own = module.__name__.startswith(OWN)
        self._finder.own += is_own
        variable, value = self._finder.variables.pop(module.__name__, ("", ""))
        if is_set := bool(variable) and variable not in os.environ:
            os.environ[variable] = value
        try:
            self._own.exec_module(module)
        finally:
            self._finder.own -= is_own
            if is_set and os.environ.get(variable) == value:
                del os.environ[variable]
        self._finder.done(module.__name__)
