"""Tests of what commands print to a terminal."""

from __future__ import annotations

from clgemm import terminal


def test_a_table_has_aligned_columns(capsys):
    """As wide as their longest cell, on the side that is asked for."""
    rows = [("sgemm", "1,234"), ("a long name", "5")]
    terminal.print_table("Title", ("what", "GFLOP/s"), ("left", "right"), rows)
    assert capsys.readouterr().out.splitlines() == [
        "Title",
        "what         GFLOP/s",
        "sgemm          1,234",
        "a long name        5",
        "",
    ]


def test_a_line_is_rewritten_with_the_share_of_a_product(capsys):
    """The line has the share in per cent and ends with the product."""
    terminal.show_share(10**9, 4 * 10**9)
    terminal.show_share(4 * 10**9, 4 * 10**9)
    lines = capsys.readouterr().err
    assert lines == "\r 25% of 4 billion multiply-adds\r100% of 4 billion multiply-adds\n"


def test_progress_is_lines(capsys):
    """A line for each step, with its number; of the time spent, one in ten seconds."""
    with terminal.progress(2) as step:
        step("one")
        step("two")
    terminal.show_done(0, 1, "kernels")
    terminal.show_done(1, 1, "")
    spent = terminal.meter()
    spent(0, "first")
    spent(1, "second")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        *("1 of 2: one ...", "2 of 2: two ..."),
        *("0 of 1 done: kernels", "1 of 1 done", "   0 s: first"),
    ]
