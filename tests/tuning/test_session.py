"""Tests of a tuning session and of its tasks: the winner of each family and shape class."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clgemm.core.child import Child, trial_child
from clgemm.core.problem import Shape
from clgemm.hardware.device import identify, identity
from clgemm.kernels.common.family import Choice
from clgemm.kernels.direct.family import DIRECT, Direct, direct_config
from clgemm.planning import planner
from clgemm.records import tuned
from clgemm.tuning.session import Session, Task, Tuning, tasks_for
from clgemm.tuning.trials import Trials

TINY = Task("direct", "tiny", (Shape(12, 12, 12),))


def test_a_winner_that_is_wrong_on_fresh_shapes_is_not_stored(empty, monkeypatch):
    """The next best is; the loser is rejected for good."""
    device = empty
    verdicts = iter(["wrong result at 11", ""])
    asked = Child.ask

    def ask(self, request, *arguments, **keywords):
        return (
            next(verdicts) if request == "verify" else asked(self, request, *arguments, **keywords)
        )

    monkeypatch.setattr(Child, "ask", ask)
    right = direct_config(device.limits)
    both = tuple(Choice(replace(right, work_m=w)) for w in (1, 2))
    monkeypatch.setattr(Direct, "defaults", lambda *_: both)
    with trial_child(identity(device)) as child:
        (record,) = Session(device, child, 0.0).run([TINY])
        rejected = [t for t in Trials(identify(device)).all if t.reason]
        assert [t.reason for t in rejected] == ["on fresh shapes: wrong result at 11"]
        assert {record.choice, rejected[0].choice} == set(both)
        again = Session(device, child, 0.0)
        assert again.rejection(rejected[0].choice)
        assert not again.rejection(record.choice)


@pytest.mark.parametrize(("gain", "wins"), [(1.02, False), (1.1, True)])
def test_a_winner_is_clearly_faster_than_the_default(empty, monkeypatch, gain, wins):
    """What gains less on the samples may lose on other shapes of the class."""
    (default,) = DIRECT.defaults(TINY.shapes[-1], empty.traits)
    other = Choice(replace(default.config, work_m=default.config.work_m + 1), None)
    monkeypatch.setattr(Direct, "defaults", lambda *_: (default, other))
    monkeypatch.setattr(Session, "rejection", lambda *_: "")
    monkeypatch.setattr(Child, "ask", lambda *_, **__: "")  # right on fresh shapes

    def race(_self, choices, _shape, rounds):
        return [[1.0 if choice == default else 1 / gain] * rounds for choice in choices]

    monkeypatch.setattr(Session, "race", race)
    with trial_child(identity(empty)) as child:
        (record,) = Session(empty, child, 0.0).run([TINY])
    assert record.choice == (other if wins else default)


def test_what_there_is_no_time_to_try_is_not_replaced(clock, empty):
    """A record that serves stays, if the session ends before it could be tried."""
    second, first = [task for task in tasks_for(empty) if task.family == "direct"][:2]
    (known,) = Session(empty, clock, 100).run([second])
    path = tuned.user_file(identify(empty))
    path.with_suffix(".trials").unlink()
    plain = DIRECT.plainest(empty.traits)
    kept = replace(known, choice=plain)
    tuned.store(identify(empty), kept)
    session = Session(empty, clock, 6 + clock.LONGEST_TASK)
    session.run([first, second])
    assert session.left_out == [second]
    served = next(tuned.candidates(identify(empty), empty.limits, "direct", second.shape_class))
    assert served.record.choice == plain


TINY = Task("direct", "tiny", (Shape(12, 12, 12),))


def test_a_session_goes_on_where_it_ended(empty, monkeypatch):
    """What was tried is neither checked nor timed again; with other kernels it is."""
    device = empty
    with trial_child(identity(device)) as child:
        Session(device, child, 0.0).run([TINY])
        tried = Trials(identify(device)).all
        assert tried
        asked, ask = [], child.ask
        monkeypatch.setattr(child, "ask", lambda what, **to: asked.append(what) or ask(what, **to))
        monkeypatch.setattr(Tuning, "_measured", lambda *_: pytest.fail("was timed again"))
        Session(device, child, 0.0).run([TINY])
    assert "validate" not in asked
    assert Trials(identify(device)).all == tried
    assert not Trials(identify(device), resume=False).all
    assert not Trials(identify(device)._replace(driver="another")).all


def test_every_family_and_class_has_its_task(device):
    """Those that the device can run; each of one's own shapes goes to its class."""
    made = tasks_for(device)
    families = {
        f.name for f in planner.families(device) if f.samples(device.kind) and not f.instructions
    }
    assert {t.family for t in made} - {"tensor"} == families  # of some GPUs
    wanted = {"tiny", "small", "medium", "large", "tall", "wide", "deep", "batched"}
    assert wanted <= {t.shape_class for t in made}
    own = tasks_for(device, [Shape(500, 500, 500), Shape(700, 700, 700), Shape(8, 8, 8)])
    plain = [(t.shape_class, len(t.shapes)) for t in own if t.family in families]
    assert plain == [("medium", 2), ("tiny", 1)]


@pytest.mark.parametrize("seconds", [60, 120, 3000])
def test_a_session_ends_in_time(seconds, clock, empty):
    """With the present task: others are not begun, and are named."""
    tasks = tasks_for(empty)
    session = Session(empty, clock, seconds)
    found = session.run(tasks)
    assert found
    assert clock.now <= seconds + clock.LONGEST_TASK
    assert len(found) + len(session.left_out) == len(tasks)
    assert [t.shape_class for t in tasks[len(found) :]] == [t.shape_class for t in session.left_out]
    assert bool(session.left_out) == (seconds < 3000)
