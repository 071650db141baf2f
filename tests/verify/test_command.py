"""Tests of ``python -m clgemm verify``."""

from __future__ import annotations

import json

import pytest

import clgemm
from clgemm.__main__ import main
from clgemm.hardware.device import identify
from clgemm.planning.planner import families
from clgemm.records.tuned import kernels_hash
from clgemm.records.verified import all_verified, file_name, read
from clgemm.verify import command
from clgemm.verify.checks import Tally


@pytest.fixture
def small(monkeypatch):
    """A verification of a second: what the command does with a tally."""

    def verified(device, seconds, seed):
        tally = Tally()
        tally.add(tally.of_family("direct", "strict"), "direct", 6, 0.25, "")
        tally.configs["direct"] = []
        tally.add(tally.of_part("threads"), "threads", 6, 0.5, "wrong" if seed == 13 else "")
        return tally

    monkeypatch.setattr(command, "verify", verified)


def test_the_command_writes_a_file_that_info_reads(device, small, tmp_path, monkeypatch, capsys):
    """The file names device, kernels, counts, date and seed, and info says what is verified."""
    assert main(["verify", "--minutes", "0.1", "--seed", "7", "--folder", str(tmp_path)]) == 0
    who = identify(device)
    file = tmp_path / file_name(who)
    assert str(file) in capsys.readouterr().out
    whole = json.loads(file.read_text(encoding="utf-8"))
    assert (whole["seed"], whole["clgemm"]) == (7, clgemm.__version__)
    assert whole["contract"]["threads"]["worst"] == 0.5
    (record,) = read(file.read_text(encoding="utf-8"))
    assert (record.device, record.kernels) == (who, kernels_hash("direct"))
    monkeypatch.setattr(clgemm.info, "all_verified", lambda: all_verified(tmp_path))
    shown = clgemm.show_config("dicts")["Verification"]
    assert shown["direct"].startswith("verified on this device, ")
    others = {family.name for family in families(device)} - {"direct"}
    assert {shown[name] for name in others} == {"not verified"}
    assert "python -m clgemm verify" in shown["what helps"]


def test_a_failure_is_the_exit_code(device, small, tmp_path, capsys):
    """With a wrong product the command returns 1, and its file does not count as verified."""
    assert main(["verify", "--seed", "13", "--folder", str(tmp_path)]) == 1
    assert "threads: wrong" in capsys.readouterr().err


def test_what_cannot_be_done_is_one_line(device, small, tmp_path, monkeypatch, capsys):
    """A device of another name gives 2, a folder that cannot be written 1, Ctrl-C 130."""
    assert main(["verify", "--device", "nothing at all"]) == 2
    assert "names no OpenCL device" in capsys.readouterr().err
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["verify", "--folder", str(tmp_path / "file")]) == 1
    assert "was not written" in capsys.readouterr().err

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "verify", interrupted)
    assert main(["verify", "--folder", str(tmp_path / "none")]) == 130
    assert not (tmp_path / "none").exists()


def test_the_file_goes_to_the_cache_folder_by_default(device, small, tmp_path, monkeypatch, capsys):
    """The working directory stays as it is, and info knows what this user has verified."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    arguments = ["verify", "--device", str(clgemm.devices().index(device)), "--minutes", "0.05"]
    assert main(arguments) == 0
    file = tmp_path / "cache" / "verified" / file_name(identify(device))
    assert str(file) in capsys.readouterr().out
    assert sorted(x.name for x in tmp_path.iterdir()) == ["cache"]
    assert any(record.device == identify(device) for record in all_verified())
    all_verified.cache_clear()
