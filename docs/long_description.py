"""README.md as PyPI's description: there, links and pictures need whole addresses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "https://github.com/clgemm/clgemm"
RELATIVE = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)]+)\)")


class LongDescription(MetadataHookInterface):
    """Hatch's hook for the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": RELATIVE.sub(_whole, text)}


def _whole(link: re.Match[str]) -> str:
    """Return a link with its whole address; a picture's leads to the file itself."""
    picture, text, path = link.groups()
    return f"{picture}{text}({REPOSITORY}/{'raw' if picture else 'blob'}/main/{path})"
