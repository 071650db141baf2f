"""The facts about a device that records are matched against."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Identity", "runtime_of", "short_platform"]


def short_platform(platform: str) -> str:
    """Return a platform's name and version, without the options of PoCL's build."""
    return platform.partition("  ")[0]  # two spaces precede the options


def runtime_of(platform: str) -> str:
    """Return a platform's name without its version."""
    return platform.partition(",")[0]


class Identity(NamedTuple):
    """The facts about a device that records are matched against.

    Attributes
    ----------
    name, kind, vendor, platform, driver : str
        As the driver reports them; `platform` includes the runtime's version.
    architecture : str
        The vector extension of a CPU or the generation of a GPU.
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
        return runtime_of(self.platform)
