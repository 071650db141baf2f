"""The fixture `chromium`: the system's browser, by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
# WebGPU computes on the processor. A container has no sandbox for root.
FLAGS = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser of the system, started once."""
    api = pytest.importorskip("playwright.sync_api", reason="the extra browser is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
