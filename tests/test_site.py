"""Tests of the site that Sphinx builds: its links, and what a reader meets in headless Chromium."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).resolve().parents[1]
PHONE = 390  # pixels wide
WITHOUT_TITLE = {"search.html"}  # the theme's
# What is wider than its place in the text although nothing around it scrolls.
CUT = """
Array.from(document.querySelectorAll("article pre, article table, article math, article img"))
  .filter(one => one.getBoundingClientRect().right > innerWidth)
  .filter(one => {
    for (let each = one; each.tagName != "ARTICLE"; each = each.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(each).overflowX)) return false;
    return true;
  })
  .map(one => one.textContent.slice(0, 40))
"""
PATIENCE_MS = 60_000  # beside other test processes


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the pages; warnings are errors."""
    for package in ("sphinx", "furo", "myst_parser", "numpydoc", "latex2mathml"):
        pytest.importorskip(package, reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Anchors(HTMLParser):
    """Collects what a page links to and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if value and (tag, name) in {("a", "href"), ("link", "href"), ("img", "src")}:
                self.links.append(value)


def test_the_links_of_the_site_lead_somewhere(site):
    """Every link between its pages leads to a file, and every anchor to an element."""
    pages = {}
    for file in site.glob("*.html"):
        pages[file] = Anchors()
        pages[file].feed(file.read_text(encoding="utf-8"))
    assert len(pages) > 20
    lost = []
    for file, page in pages.items():
        for link in page.links:
            path, anchor = urldefrag(link.partition("?")[0] if "#" not in link else link)
            if "://" in path or path.startswith(("data:", "mailto:")):
                continue
            target = (site / unquote(path.partition("?")[0])) if path else file
            known = pages[target].anchors if target in pages else {anchor}
            if not target.exists() or (anchor and unquote(anchor) not in known):
                lost.append(f"{file.name}: {link}")
    assert lost == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a word for each request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    """The site's address on this machine: a search reads its pages, which files do not allow."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def tab(chromium, address) -> Iterator[Any]:
    """A phone's tab; at the end the browser may not have complained or left this machine."""
    context = chromium.new_context(viewport={"width": PHONE, "height": 844}, base_url=address)
    context.set_default_timeout(PATIENCE_MS)
    found, complaints, fetched = context.new_page(), [], []
    found.on(
        "console", lambda message: complaints.append(f"{message.location['url']}: {message.text}")
    )
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("request", lambda request: fetched.append(request.url))
    yield found
    assert [text for text in complaints if "/favicon.ico: " not in text] == []
    assert [url for url in fetched if not url.startswith((address, "data:"))] == []
    context.close()


def test_the_search_finds_a_function(tab):
    """From the contents, a search for ``ssyrk`` leads to its entry in the API reference."""
    tab.goto("index.html")
    assert "NumPy-compatible matrix products" in tab.inner_text("article")
    tab.goto("search.html?q=ssyrk")
    tab.locator("#search-results a", has_text="ssyrk").first.click()
    tab.wait_for_url("**/reference.html*")
    assert tab.locator("[id='clgemm.ssyrk']").is_visible()


def test_every_page_is_readable_on_a_phone(tab, site):
    """No page scrolls sideways, each has one title, and every picture a text in its place."""
    for file in sorted(site.glob("*.html")):
        tab.goto(file.name)
        width = tab.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE, f"{file.name} is {width} pixels wide"
        hidden = tab.evaluate(CUT)
        assert hidden == [], f"{file.name} cuts {hidden}"
        for picture in tab.locator("img").all():
            assert picture.get_attribute("alt"), f"{file.name}: {picture.get_attribute('src')}"
        assert file.name in WITHOUT_TITLE or tab.locator("h1").count() == 1, file.name
        assert tab.title(), file.name
