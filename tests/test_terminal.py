"""Tests of what commands share: their output files, and what they print to a terminal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from clgemm import terminal
from clgemm.__main__ import main
from clgemm.bench import command as bench
from clgemm.ladder import command as ladder

FILES = [
    *((name, "--plot", extra) for name, extra in (("bench", "bench"), ("ladder", "ladder"))),
    ("tune", "--show", "tune"),
]


@pytest.fixture
def unmeasured(monkeypatch):
    """Fail the test if a command measures anything."""

    def measured(*_):
        pytest.fail("something was measured before the arguments were checked")

    monkeypatch.setattr(bench, "_run", measured)
    monkeypatch.setattr(ladder, "_climb", measured)


@pytest.mark.parametrize("command", ["bench", "ladder"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json", "nowhere/b.json"], "--json nowhere/b.json cannot be written: there is no fol"),
        (["--json", "."], "--json . cannot be written: it is a folder"),
        (["--json", "/proc/b.json"], "--json /proc/b.json cannot be written: permission denied"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(
    command, arguments, said, unmeasured, capsys, monkeypatch
):
    """A file that cannot be written is refused before the measurement, in one line."""
    allowed = terminal.os.access
    monkeypatch.setattr(terminal.os, "access", lambda p, m: "/proc" not in str(p) and allowed(p, m))
    assert main([command, *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith(said)
    assert err.count("\n") == 1


@pytest.mark.parametrize(("command", "option", "extra"), FILES)
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("nowhere/p.png", "nowhere/p.png cannot be written: there is no folder nowhere"),
        ("p.xyz", "p.xyz cannot be drawn: unknown format .xyz (known: "),
        ("p", "p cannot be drawn: it has no suffix (known: "),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused(
    command, option, extra, file, said, unmeasured, capsys
):
    """A picture that cannot be drawn is refused before the measurement, in one line."""
    pytest.importorskip("matplotlib")
    assert main([command, option, file]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{option} {said}")
    assert err.count("\n") == 1
    assert "png" in err


@pytest.mark.parametrize(("command", "option", "extra"), FILES)
def test_a_picture_needs_matplotlib(command, option, extra, unmeasured, monkeypatch, capsys):
    """Without matplotlib the command ends before the measurement and says what to install."""
    monkeypatch.setattr(terminal, "find_spec", lambda _: None)
    assert main([command, option, "p.png"]) == 2
    expected = f"{option} needs matplotlib: 'pip install clgemm[{extra}]'\n"
    assert capsys.readouterr().err == expected


def test_a_file_that_fails_at_the_end_is_said(unmeasured, monkeypatch, capsys, tmp_path):
    """If a file cannot be written at the end, the tables are printed and the command returns 1."""
    report = SimpleNamespace(ok=True)
    monkeypatch.setattr(bench, "_run", lambda *_: report)
    monkeypatch.setattr(bench, "print_report", lambda _: print("tables"))
    monkeypatch.setattr(bench, "as_json", lambda _: "{}")
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setattr(bench, "_peers", lambda _: [])
    file = folder / "b.json"
    checked = terminal.require_writable

    def removed(*arguments):
        checked(*arguments)
        folder.rmdir()

    monkeypatch.setattr(bench, "require_writable", removed)
    assert main(["bench", "--json", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == "tables\n"
    assert err == f"{file} was not written: No such file or directory\n"


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
