"""Tests of the cache folder."""

from __future__ import annotations

import logging
from pathlib import Path

from made_records import DIRECT, GPU, LIMITS

import clgemm
from clgemm.__main__ import main
from clgemm.core import cache
from clgemm.core.cache import cache_folder, program_cache_folder, rewrite
from clgemm.kernels.common.choice import Choice
from clgemm.planning import crossovers
from clgemm.records import lookup
from clgemm.tuning.trials import Trial, Trials


def test_rewriting_needs_no_file_to_begin_with(tmp_path):
    """The change is told that there was none."""
    path = tmp_path / "new" / "file"
    rewrite(path, lambda old: f"was {old}")
    rewrite(path, lambda old: f"{old}, then that")
    assert path.read_text() == "was None, then that"


def test_a_cache_folder_that_is_a_file_is_said_once(device, monkeypatch, tmp_path, caplog, capsys):
    """The variable, its value and what happens now; products go on, tuning is refused."""
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(blocked))
    lookup.forget()
    crossovers.forget()
    with caplog.at_level(logging.WARNING, "clgemm"):
        assert not list(lookup.candidates(GPU, LIMITS, "direct", "medium"))
        assert not cache.remember("key", 1)
        crossovers.keep(device, {})
        Trials(GPU).add(Trial("tiny", "8", Choice(DIRECT, None), 1.0, 1.0, ""))
    said = f"CLGEMM_CACHE_DIR={blocked} is a file, not a folder"
    assert caplog.messages == [f"{said}: nothing is kept between runs"]
    assert main(["tune", "--budget", "1"]) == 2
    assert capsys.readouterr().err == f"{said}: no records could be kept\n"
    shown = clgemm.show_config("dicts")["Settings"]["cache folder"]
    assert shown.endswith("it is a file, not a folder; nothing is kept")
    lookup.forget()
    crossovers.forget()


def test_the_cache_folder_can_be_moved(monkeypatch):
    """CLGEMM_CACHE_DIR sets the cache folder."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", "/somewhere")
    assert program_cache_folder() == Path("/somewhere/programs")
    monkeypatch.delenv("CLGEMM_CACHE_DIR")
    assert cache_folder().name == "clgemm"
