"""Tests of what commands print to a terminal."""

from __future__ import annotations

import sys

import pytest

from clgemm import terminal


def test_the_bar_begins_anew_with_each_product(capsys):
    """The bar shows rising shares and ends with a product; another product gets another bar."""
    pytest.importorskip("rich")
    show = terminal.product_bar()
    for total in (100, 200):
        for done in (10, 50, total):
            show(done, total)
    assert capsys.readouterr().out == ""


def test_without_rich_a_line_is_rewritten(capsys, monkeypatch):
    """The line has the share in per cent and ends with the product."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    show = terminal.product_bar()
    show(10**9, 4 * 10**9)
    show(4 * 10**9, 4 * 10**9)
    lines = capsys.readouterr().err
    assert lines == "\r 25% of 4 billion multiply-adds\r100% of 4 billion multiply-adds\n"


def test_progress_is_lines_where_the_stream_is_no_terminal(capsys, monkeypatch):
    """A log or a pipe gets a line for each step; of the time spent, one in ten seconds."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with terminal.progress(2) as step:
        step("one")
        step("two")
    with terminal.steps() as part:
        part(0, 1, "kernels")
        part(1, 1, "")
    with terminal.meter(60) as spent:
        spent(0, "first")
        spent(1, "second")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["one ...", "two ...", "0 of 1 done: kernels", "1 of 1 done", "   0 s: first"]
