"""What records know a device by."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Identity"]


class Identity(NamedTuple):
    """What records know a device by.

    Attributes
    ----------
    name, kind, vendor, platform, driver : str
        As its driver gives them; `platform` has the runtime's version.
    architecture : str
        What its configs depend on: the vector extension of a CPU, the generation of a GPU.
    """

    name: str
    kind: str
    vendor: str
    platform: str
    driver: str
    architecture: str

    @property
    def runtime(self) -> str:
        """The platform without its version."""
        return self.platform.split(",")[0]
