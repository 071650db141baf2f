"""Tests of the rounds in which contenders take turns."""

from __future__ import annotations

import pytest
from bench_results import CUBE

from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST
from clgemm.bench.pipe import WorkerDiedError
from clgemm.bench.rounds import Settings, Tournament


class Scripted:
    """A stand-in for a worker with given times and errors, which may die."""

    def __init__(self, seconds=1.0, worst=0.1, dies_at="", alive=True):
        self.seconds, self.worst, self.dies_at, self.alive = seconds, worst, dies_at, alive
        self.asked: list[str] = []

    def ask(self, request, **_):
        self.asked.append(request)
        if request == self.dies_at:
            raise WorkerDiedError("process died")
        return {"turn": self.seconds, "judge": [1e-7, self.worst]}.get(request)


def tournament(tmp_path, settings=None, **contestants: Scripted) -> Tournament:
    """Return a tournament of stand-ins."""
    settings = settings or Settings(rounds=4)
    peers = [name for name in contestants if name != "clgemm"]
    return Tournament(contestants, peers, settings, tmp_path)


def test_contenders_take_turns(tmp_path):
    """Contenders take turns, and then their results are checked and their operands released."""
    ours, numpy, clblast = Scripted(2), Scripted(3), Scripted(8)
    results = tournament(tmp_path, clgemm=ours, NumPy=numpy, CLBlast=clblast).contest(CUBE)
    assert [o.contender for o in results[HOST]] == ["clgemm", "NumPy"]
    assert [o.contender for o in results[DEVICE]] == ["clgemm", "CLBlast"]
    assert results[HOST][0].ratio_to(results[HOST][1]) == (1.5, 1.5, 1.5)
    assert results[DEVICE][0].ratio_to(results[DEVICE][1]) == (4, 4, 4)
    assert clblast.asked == ["prepare", *4 * ["turn"], "judge", "release"]
    assert numpy.asked == ["reference", *clblast.asked]


@pytest.mark.parametrize("step", ["prepare", "turn", "judge"])
def test_a_death_is_an_outcome(tmp_path, step):
    """A worker's death is an outcome without a ratio, and the other contender goes on."""
    results = tournament(tmp_path, clgemm=Scripted(dies_at=step), NumPy=Scripted()).contest(CUBE)
    ours, numpy = results[HOST]
    assert ours.trouble == "process died"
    assert numpy.ok
    assert ours.ratio_to(numpy) is None


def test_without_a_reference_nothing_is_timed(tmp_path):
    """Without a reference nothing is timed, since no result could be checked."""
    numpy, ours = Scripted(dies_at="reference"), Scripted()
    results = tournament(tmp_path, clgemm=ours, NumPy=numpy).contest(CUBE)
    assert all("no float64 reference" in o.trouble for o in results[HOST] + results[DEVICE])
    assert "turn" not in ours.asked


def test_what_takes_too_long_is_skipped_and_said(tmp_path):
    """A slow peer is skipped by its last case's speed; if clgemm is slow, the case is skipped."""
    settings = Settings(budget_s=10)
    slow = tournament(
        tmp_path, settings, clgemm=Scripted(0.1), NumPy=Scripted(), CLBlast=Scripted(2)
    )
    slow.contest(CUBE)
    twice = slow.contest(Case("square", 8, 8, 16))
    assert twice[HOST][1].ok
    assert twice[DEVICE][1].trouble == (
        "skipped: CLBlast would take 16 s, more than the budget of 10 s"
    )
    huge = slow.contest(Case("square", 80, 80, 80))
    assert all(o.skipped for o in huge[HOST] + huge[DEVICE])


def test_a_reference_that_takes_too_long_is_said(tmp_path):
    """A case is skipped if its reference would take too long, and the outcome says so."""
    slow = tournament(tmp_path, Settings(budget_s=10), clgemm=Scripted(0.001), NumPy=Scripted(2))
    slow.contest(CUBE)
    ours, _ = slow.contest(Case("square", 8, 8, 24))[HOST]
    assert ours.trouble == (
        "skipped: the float64 reference would take 18 s, more than the budget of 10 s"
    )
