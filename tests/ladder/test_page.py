"""Tests of the interactive page: its text, and its behaviour in headless Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clgemm.__main__ import main
from clgemm.ladder.explain import page, shipped, step, story, wgsl_names
from clgemm.ladder.measure import kernel_text
from clgemm.ladder.rungs import RUNGS

PATIENCE_MS = 120_000  # for SwiftShader beside other test processes
SMALL = "64"  # a multiple of every tile
IN_BROWSER = sorted(int(name[5:7]) for name in wgsl_names() if name[5:7].isdecimal())


@dataclass
class Opened:
    """A page in a tab, with what the browser complained about and what it fetched."""

    tab: Any
    complaints: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def run(self, n: str) -> dict[int, list[str]]:
        """Press the button, and return the cells of each step's row of results."""
        self.tab.select_option("#size", n)
        self.tab.click("#run")
        caption = self.tab.locator("#results caption", has_text=f"n = {n},")
        caption.wait_for(timeout=PATIENCE_MS)
        self.tab.get_by_text("Done: ").wait_for(timeout=PATIENCE_MS)
        rows = self.tab.locator("#results tbody tr").all()
        cells = [row.locator("th, td").all_inner_texts() for row in rows]
        return {int(first.split()[0]): rest for first, *rest in cells}


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """The page of the measurements that come with clgemm."""
    path = tmp_path_factory.mktemp("page") / "ladder.html"
    path.write_text(page(shipped()), encoding="utf-8")
    return path


@pytest.fixture
def opened(chromium, file) -> Iterator[Any]:
    """A function that opens the page, offline; at the end the browser may not have complained."""
    found = []

    def open_page(width=1000, scheme="light", before="", at="", path=file) -> Opened:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        context.set_default_timeout(PATIENCE_MS)
        one = Opened(context.new_page())
        found.append((context, one))
        one.tab.on("console", lambda message: one.complaints.append(message.text))
        one.tab.on("pageerror", lambda error: one.complaints.append(str(error)))
        one.tab.on("request", lambda request: one.fetched.append(request.url))
        if before:
            one.tab.add_init_script(before)
        one.tab.goto(path.as_uri() + at)
        return one

    yield open_page
    for context, one in found:
        assert one.complaints == []
        assert {url.partition(":")[0] for url in one.fetched} <= {"file", "data"}
        context.close()


@pytest.fixture(scope="module")
def gpu(chromium, file) -> None:
    """Skip where Chromium has no WebGPU adapter."""
    context = chromium.new_context()
    tab = context.new_page()
    tab.goto(file.as_uri())
    there = tab.evaluate("async () => !!(navigator.gpu && await navigator.gpu.requestAdapter())")
    context.close()
    if not there:
        pytest.skip("this Chromium has no WebGPU adapter")


def title(tab: Any) -> str:
    """The step that the page shows."""
    return tab.inner_text("#step-title")


def picture(tab: Any) -> str:
    """The pixels of the picture."""
    return tab.evaluate("document.getElementById('picture').toDataURL()")


def slide(tab: Any, name: str, key: str = "ArrowRight") -> str:
    """Move a slider by one position with the keyboard, and return the value beside it."""
    slider = tab.locator(f"#sliders [name={name}]")
    slider.press(key)
    return slider.locator("xpath=following-sibling::output").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_the_page_fits_and_is_readable(opened, width, scheme):
    """No step is wider than the window, and text and paper contrast in both colour schemes."""
    tab = opened(width, scheme).tab
    for number in (1, len(RUNGS)):
        tab.locator(f".stair[data-rung='{number}']").click()
        assert title(tab) == f"Step {number}: {RUNGS[number - 1].label()}"
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    colours = tab.evaluate(
        "['color', 'backgroundColor'].map(name => getComputedStyle(document.body)[name])"
    )
    ink, paper = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert (paper < 150 and ink > 600) if scheme == "dark" else (paper > 600 and ink < 150)


def test_the_stairs_are_those_of_the_device(opened):
    """Choosing a device changes the stairs, and the figures of the step."""
    tab = opened().tab
    (measured,) = shipped()
    shown = tab.locator(".stair .figure").all_inner_texts()
    assert shown[0] == f"{measured['rungs'][0]['gflops']:,.0f}"
    tab.select_option("#device", label="Tesla K40m, n = 4096")
    shown = tab.locator(".stair .figure").all_inner_texts()
    expected = [f"{kind.kepler_gflops:,}" if kind.kepler_gflops else "-" for kind in RUNGS]
    assert shown == expected
    figures = tab.inner_text("#figures")
    assert "139 GFLOP/s" in figures
    assert re.search(r"Flops per byte, global\s+0\.250", figures)


def test_the_code_marks_the_step(opened):
    """Marked lines are those that differ, and removed ones are shown on demand."""
    tab = opened(at="#step-6").tab
    lines = step(RUNGS[5])
    marked = tab.locator("#code .added").all_text_contents()
    assert marked == [f"+ {line.text}" for line in lines if line.mark == "+"]
    assert tab.locator("#code .removed").count() == 0
    tab.check("#removed")
    removed = tab.locator("#code .removed").all_text_contents()
    assert removed == [f"- {line.text}" for line in lines if line.mark == "-"] != []
    tab.select_option("#language", "wgsl")
    assert "@compute" in tab.inner_text("#code")


def test_the_sliders_change_the_picture(opened):
    """A slider changes the picture and what is said about it."""
    tab = opened(at="#step-6").tab
    before = picture(tab)
    assert "2 floats of A and 2 floats of B from global" in tab.inner_text("#reading")
    tab.click("#forward")
    assert "for 4 multiply-adds: 1.00 reads for each" in tab.inner_text("#reading")
    assert picture(tab) != before
    assert slide(tab, "work_m") == "4"
    tab.click("#forward")
    assert "for 8 multiply-adds: 0.75 reads for each" in tab.inner_text("#reading")
    assert slide(tab, "tile_m") == "16"
    assert tab.locator("#sliders [name=tile_n] + output").inner_text() == "16"
    before = picture(tab)
    assert slide(tab, "item") == "1"
    assert picture(tab) != before


def test_sizes_that_a_kernel_refuses_are_called_so(opened):
    """The picture says so where the work-items cannot share the loads evenly."""
    tab = opened(at="#step-6").tab
    assert slide(tab, "tile_k", "ArrowLeft") == "2"
    assert slide(tab, "work_m", "ArrowLeft") == "1"
    assert "The kernel refuses these sizes: 32 work-items" in tab.inner_text("#reading")


def test_every_picture_is_drawn(opened):
    """Each step has a picture of its own sizes, in every frame; tensor cores have none."""
    tab = opened().tab
    said = tab.evaluate(
        """DATA.rungs.map(rung => {
             choose(rung.number);
             if ($('reads').hidden) return null;
             return now.frames.map(() => (advance(), $('reading').textContent));
           })"""
    )
    for kind, texts in zip(RUNGS, said, strict=True):
        if kind.number in {17, 18, 19, 20, 21}:
            assert texts is None
            continue
        has_local = kind(**kind.presets[0]).local_memory_bytes > 0
        assert len(set(texts)) == 1 + has_local, texts
        assert all(text.startswith("Work-item (0, 0) of ") for text in texts)


def test_the_picture_plays(opened):
    """The button plays the picture and stops it."""
    tab = opened().tab
    before = tab.evaluate("state.frame")
    tab.click("#play")
    tab.wait_for_timeout(900)
    assert tab.evaluate("state.frame") != before
    tab.click("#play")
    assert tab.evaluate("state.timer") is None


def test_the_keyboard_is_enough(opened):
    """Tab reaches all that can be used, and arrows walk the stairs."""
    tab = opened().tab
    reached = set()
    for _ in range(60):
        tab.keyboard.press("Tab")
        reached.add(
            tab.evaluate("document.activeElement.id || document.activeElement.name || "
                         "document.activeElement.dataset.rung || ''")
        )  # fmt: skip
    assert {"device", "1", str(len(RUNGS)), "next", "play", "forward", "tile", "item", "removed",
            "language", "code", "size", "run"} <= reached  # fmt: skip
    tab.locator(".stair[data-rung='1']").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert title(tab).startswith("Step 3:")
    assert tab.evaluate("document.activeElement.dataset.rung") == "3"
    tab.locator("#next").focus()
    tab.keyboard.press("Enter")
    assert title(tab).startswith("Step 4:")


def test_every_step_passes_its_check_on_webgpu(opened, gpu):
    """Each step in WGSL agrees with float64 and gets a stair; only step 10 takes n = 100."""
    one = opened(400)
    results = one.run(SMALL)
    assert sorted(results) == IN_BROWSER
    assert {cells[0] for cells in results.values()} == {"passed"}
    assert one.tab.locator("#device option:checked").inner_text().startswith("Your GPU: ")
    shown = one.tab.locator(".stair .figure").all_inner_texts()
    assert [number for number, text in enumerate(shown, 1) if text != "-"] == IN_BROWSER
    results = one.run("100")
    assert results.pop(10)[0] == "passed"
    refusal = re.compile(r"n = 100 is not a multiple of the tile's \d+")
    assert sorted(results) == IN_BROWSER[:-1]
    assert all(refusal.match(first) for first, *_ in results.values())


def test_a_wrong_kernel_fails_its_check(opened, gpu, file, tmp_path):
    """A kernel that leaves out a product fails, and one that does not compile says so."""
    text = file.read_text(encoding="utf-8")
    right, wrong = "p < size.z; p++) { sum += a[", "p < size.z - 1; p++) { sum += a["
    assert right in text
    text = text.replace(right, wrong).replace("SIDE * TILE_K / ITEMS;", "SIDE * TILE_K / NOTHING;")
    path = tmp_path / "wrong.html"
    path.write_text(text, encoding="utf-8")
    one = opened(path=path)
    one.tab.evaluate("for (const r of DATA.rungs) if (![1, 7].includes(r.number)) r.wgsl = null")
    results = one.run(SMALL)
    one.complaints[:] = [text for text in one.complaints if "NOTHING" not in text]
    assert results[1][0] == "FAILED"
    assert "NOTHING" in results[7][0]
    assert "1 failed" in one.tab.inner_text("#webgpu")


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("Object.defineProperty(navigator, 'gpu', {value: undefined})", "has no WebGPU"),
        ("navigator.gpu && (navigator.gpu.requestAdapter = async () => null)", "found no GPU"),
    ],
)
def test_a_browser_without_webgpu_is_told(opened, before, message):
    """Without WebGPU, or without a GPU, the page says so in words."""
    tab = opened(before=before).tab
    if tab.locator("#run").is_enabled():
        tab.click("#run")
    tab.locator("#webgpu", has_text=message).wait_for()
    assert tab.locator("#results").is_hidden()


def test_the_page_stands_alone():
    """The page names no other file and no address, and has no unfilled place."""
    text = page(shipped())
    assert not re.search(r"https?://|\{\{|@import|<link[^>]*href=\"(?!data:)|<script[^>]*src", text)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert [rung["number"] for rung in json.loads(data[1])["rungs"]] == [k.number for k in RUNGS]


def test_wgsl_files_belong_to_rungs():
    """The WGSL files are those of rungs 1 to 7 and 10, and two supporting ones."""
    assert IN_BROWSER == [1, 2, 3, 4, 5, 6, 7, 10]
    files = {f"wgsl/{RUNGS[n - 1].file.removesuffix('.cl')}.wgsl" for n in IN_BROWSER}
    assert files | {"wgsl/transpose.wgsl", "wgsl/pad.wgsl"} == wgsl_names()
    assert all(kernel_text(name).startswith("// ") for name in wgsl_names())


@pytest.mark.parametrize("kind", RUNGS, ids=lambda kind: kind.file)
def test_every_header_tells_the_step(kind):
    """Each file's header says what is new and why, and the code begins after it."""
    said = story(kind)
    assert {"New", "Why", "Work-group"} <= set(said.sections)
    assert said.layout.lstrip().startswith("a[")
    assert any("void multiply" in line for line in said.code)
    assert not any(line.startswith("// Rung") for line in said.code)
    after = [line.text for line in step(kind) if line.mark != "-"]
    assert after == said.code
    if kind.before():
        before = [line.text for line in step(kind) if line.mark != "+"]
        assert before == story(RUNGS[kind.before() - 1]).code


def test_command_writes_the_page(tmp_path, capsys):
    """``--html`` shows this run, those of ``--also``, which is checked, and the shipped ones."""
    html, other = tmp_path / "page.html", tmp_path / "other.json"
    run = ["ladder", "--size", "16", "--rung", "1", "--repeat", "1", "--set", "TS=8"]
    assert main([*run, "--json", str(other), "--html", str(html)]) == 0
    measured = json.loads(other.read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", measured[0]["date"])
    other.write_text(json.dumps([{**measured[0], "device": "another device"}]))
    assert main([*run, "--html", str(html), "--also", str(other)]) == 0
    data = re.search(r'id="data">(.*?)</script>', html.read_text(encoding="utf-8"))
    climbs = json.loads(data[1])["climbs"]
    names = [measured[0]["device"], "another device", "NVIDIA H200", "Tesla K40m"]
    assert [climb["name"] for climb in climbs] == names
    assert climbs[0]["rungs"]["1"]["counts"]["flops"] == 2 * 16**3
    capsys.readouterr()
    for wrong in ("{", '[{"n": 1}]'):
        other.write_text(wrong)
        assert main([*run, "--html", str(html), "--also", str(other)]) == 2
        assert "is not what ladder --json writes" in capsys.readouterr().err
