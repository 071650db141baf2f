"""A pytest plugin that writes the outcome of each test to a file, one JSON object a line.

Each line is written at once, so that a crash loses only the outcome of the current test. The last
line has the counts of products by side, if NumPy was accelerated.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

LONGEST_MESSAGE = 4000  # characters
ADDRESS = re.compile(r"\b0x[0-9a-f]+")  # an address in a test's name differs from run to run


def pytest_addoption(parser: Any) -> None:
    """Add --outcomes FILE."""
    parser.addoption("--outcomes", metavar="FILE", help="write the outcome of each test")


def pytest_configure(config: Any) -> None:
    """Write outcomes if a file is named."""
    if path := config.getoption("outcomes"):
        config.pluginmanager.register(_Writer(Path(path)))


class _Writer:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)  # buffered by lines

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write(test=_name(report), outcome="failed", message=_message(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(started=ADDRESS.sub("0x", nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._write(test=_name(report), outcome="failed", message=_message(report))
        elif report.skipped:
            expected = hasattr(report, "wasxfail")
            self._write(test=_name(report), outcome="xfailed" if expected else "skipped")
        elif report.when == "call":
            self._write(test=_name(report), outcome="passed")

    def pytest_sessionfinish(self) -> None:
        self._write(products=_products())

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")


def _name(report: Any) -> str:
    return ADDRESS.sub("0x", report.nodeid)


def _message(report: Any) -> str:
    return report.longreprtext[-LONGEST_MESSAGE:]


def _products() -> dict[str, Any] | None:
    """Return the counts of float32 products by side; None if NumPy was not accelerated."""
    accel = sys.modules.get("clgemm.accel")
    if accel is None:
        return None
    found = accel.report()
    return {"offloaded": found.offloaded, "stayed": dict(found.stayed)}
