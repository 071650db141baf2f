"""Tests of a session: its tasks, its time, what it keeps."""

from __future__ import annotations

import pytest

from clgemm.core.child import trial_child
from clgemm.core.shapes import Shape
from clgemm.hardware.identity import identify, identity
from clgemm.planning import planner
from clgemm.tuning import task
from clgemm.tuning.session import Session, tasks_for
from clgemm.tuning.task import Task
from clgemm.tuning.trials import Trials

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
        monkeypatch.setattr(task.Tuning, "_measured", lambda *_: pytest.fail("was timed again"))
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
