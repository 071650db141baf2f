"""Tests of claims: files that processes lock to reserve devices."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")


from clgemm.dask.claims import claim_first


def test_claims_go_to_those_that_fewest_hold(tmp_path):
    """A claim is for the first free candidate, or else for one that the fewest processes hold."""
    candidates = [("a",), ("b1", "b2"), ("b2", "b3")]
    claims = [claim_first(candidates, tmp_path) for _ in range(4)]
    # The third candidate shares b2 with the second.
    assert [(c.position, c.others) for c in claims] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    claims[1].release()
    again = claim_first(candidates[2:], tmp_path)
    assert again.others == 0
    for claim in (*claims, again):
        claim.release()


HOLDS = """
import pathlib, sys
from clgemm.dask.claims import claim_first
held = claim_first([("a",)], pathlib.Path(sys.argv[1]))
print(held.others, flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_holds_nothing(tmp_path):
    """After a process is killed, its claim is free."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "0\n"
        with_child = claim_first([("a",)], tmp_path)
        assert with_child.others == 1
        child.kill()
    without = claim_first([("a",)], tmp_path)
    assert without.others == 0
    with_child.release()
    without.release()


def test_claims_need_no_folder_that_can_be_written(tmp_path):
    """If no claim can be written, each process gets the first candidate."""
    (tmp_path / "file").write_text("no folder")
    assert claim_first([("a",)], tmp_path / "file").position == 0
