"""The tuner: its spaces, its search, what it rejects, what it keeps."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from children import child_of
from planted_trial import ABORTS, HANGS, NO_BUILD, WRONG

import clgemm
from clgemm.__main__ import main
from clgemm.core import caches
from clgemm.core.child import Child, ChildTimeoutError, trial_child
from clgemm.core.config import Limits
from clgemm.core.problem import Problem
from clgemm.core.shapes import SHAPE_CLASSES, Shape, fresh, shape_class
from clgemm.core.traits import Traits
from clgemm.hardware.identity import identify, identity
from clgemm.kernels import FAMILIES, family_named
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.direct.defaults import direct_config
from clgemm.kernels.direct.family import DIRECT, Direct
from clgemm.kernels.pack.defaults import pack_config
from clgemm.kernels.tiled.defaults import lane_configs
from clgemm.planning import planner, serving
from clgemm.records import lookup
from clgemm.records.record import findings_from, kernels_hash, problems_of
from clgemm.tuning import command, session, task
from clgemm.tuning.search import search
from clgemm.tuning.session import Session, tasks_for
from clgemm.tuning.space import space_of
from clgemm.tuning.task import Task
from clgemm.tuning.trials import Trial, Trials

TINY = Task("direct", "tiny", (Shape(12, 12, 12),))
BIG = Limits(2**20, 1024, 2**30, 8, 16)


@pytest.fixture
def empty(device, monkeypatch, tmp_path):
    """A cache folder of its own, nothing shipped, and the device."""
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(lookup, "shipped", lambda: findings_from('{"format": 1}'))
    lookup.forget()
    caches.forget_plans()
    yield device
    monkeypatch.undo()
    lookup.forget()
    caches.forget_plans()


# Shapes


@pytest.mark.parametrize("name", SHAPE_CLASSES)
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_samples_stand_for_their_class(name, kind):
    """Each is of its class, and so is what the winner is checked on again."""
    every = [family.samples(kind).get(name, ()) for family in FAMILIES]
    assert any(every)
    for shape in {shape for shapes in every for shape in shapes}:
        assert shape_class(*shape) == shape_class(*fresh(shape)) == name
        assert fresh(shape) != shape


def test_every_shape_has_a_class():
    """Whatever the sizes."""
    for m, n, k, matrices in ((1, 1, 1, 1), (5000, 1, 1, 1), (7, 9, 100_000, 3), (900, 800, 9, 1)):
        assert shape_class(m, n, k, matrices) in SHAPE_CLASSES


# Spaces and search


def test_what_was_made_by_hand_is_in_the_space(device):
    """A choice becomes a point and that point the choice."""
    for family in planner.families(device):
        choices = family.defaults(Shape(1024, 1024, 1024), device.traits)
        space = space_of(family.name, choices[0], device.traits)
        for choice in (*choices, family.plainest(device.traits)):
            if space.values:  # tensor_narrow is not tuned
                assert space.choice(space.point(choice)) == choice


@pytest.mark.parametrize("limits", [BIG, Limits(32 * 1024, 256, 2**28, 8, 4)])
@pytest.mark.parametrize(
    "family", ["tiled", "blocked", "skinny_cpu", "skinny_gpu", "direct", "tensor"]
)
def test_points_keep_the_limits(family, limits, device):
    """In the grid, next to one another, or after a jump; a broken constraint makes no choice."""
    if family == "skinny_gpu":  # whose work-groups are as large as the device lets them be
        limits = replace(limits, vector_width=1)
    if family == "tensor":  # whose work-groups have 384 work-items
        limits = replace(limits, work_group_size=1024)
    traits = Traits(limits, device.kind, is_vector_compiler=True)
    default = family_named(family).plainest(traits)
    space, rng = space_of(family, default, traits), Random(0)
    base = space.point(default)
    grid = space.sketch(base)
    assert len({space.choice(point) for point in grid}) == len(grid) >= 6
    neighbours = 0
    for point in rng.sample(grid, 6):
        choice = space.choice(point)
        assert not problems_of(choice, limits)
        assert space.choice(space.point(choice)) == choice
        jumps = [space.jump(point, steps, rng) for steps in (3, len(point))]
        for other in (*space.neighbours(point), *jumps):
            made = space.choice(other)
            assert made is None or not problems_of(made, limits)
            neighbours += made is not None
    assert neighbours > (5 if family == "tensor" else 15)


def searched(score, seconds=400):
    """What a search finds in the local family within so many trials, from its plainest config."""
    plain = Choice(lane_configs()[-1], tuple(pack_config(BIG, 16) for _ in range(2)))
    space, spent = space_of("tiled", plain, Traits(BIG, "GPU")), []

    def counted(point):
        spent.append(space.choice(point))
        return score(spent[-1].config)

    seed = space.point(plain)
    left = lambda: 1 - len(spent) / seconds  # noqa: E731
    best = search(space, [seed], space.sketch(seed), counted, left, Random(3))
    assert len(set(spent)) == len(spent)
    return best and space.choice(best).config, len(spent)


def test_the_search_climbs():
    """To the top of a hill with a ridge along it, within a small part of the space."""

    def hill(c):
        even = abs(np.log2(c.tile_m / c.tile_n))
        far = abs(np.log2(c.work_m * c.work_n / 64)) + abs(np.log2(c.tile_k / 16))
        return 10 - even - far - abs(np.log2(c.tile_m / 128)) + 0.1 * c.buffers

    best, spent = searched(hill)
    assert (best.tile_m, best.tile_n, best.tile_k, best.buffers) == (128, 128, 16, 2)
    assert best.work_m * best.work_n == 64
    assert spent <= 402


def test_the_search_crosses_valleys():
    """Large tiles are found although every way to them, from small ones, leads down first."""

    def two_hills(c):
        sides = c.tile_m, c.tile_n, 16 * c.work_m, 16 * c.work_n
        small = sum(abs(np.log2(side / 32)) for side in sides)
        large = sum(abs(np.log2(side / 128)) for side in sides)
        return max(1 - small / 10, 1.5 - large / 2, 0.1)

    best, _ = searched(two_hills, seconds=100)
    assert (best.tile_m, best.tile_n, best.work_m, best.work_n) == (128, 128, 8, 8)


def test_values_that_are_always_rejected_are_left_alone():
    """After a few rejections; a space where all is rejected has no best."""
    bad = []

    def score(c):
        bad.append(c.fma and c.tile_m > 16)
        return 0.0 if c.fma else 1.0 + c.tile_k

    best, _ = searched(score)
    assert best.tile_k == 32
    assert sum(bad) <= 3
    assert searched(lambda _: 0.0)[0] is None


# What is rejected


def test_what_is_wrong_hangs_or_aborts_is_rejected_and_tuning_goes_on(empty, monkeypatch):
    """Each with its reason, in the log too; the record that is stored is a right one."""
    device, right = empty, direct_config(empty.limits)
    planted = [
        replace(right, items_m=1, items_n=2, work_m=w, width=2) for w in (WRONG, HANGS, ABORTS)
    ]
    by_hand = tuple(Choice(config) for config in (right, *planted))
    monkeypatch.setattr(Direct, "defaults", lambda *_: by_hand)
    with child_of("planted_trial")(identity(device)) as child:
        made = Session(device, child, 0.0, gate_seconds=4.0)
        (record,) = made.run([TINY])
    reasons = {t.choice.config.work_m: t.reason for t in Trials(identify(device)).all}
    assert reasons[WRONG].startswith("wrong result at ")
    assert "elements were not written" in reasons[WRONG]
    assert "was ended after 4 s" in reasons[HANGS]
    assert "SIGABRT" in reasons[ABORTS]
    assert reasons[right.work_m] == ""
    assert record.choice.config == right
    problem = Problem.of(TINY.shapes[0], "float32")
    assert planner.choose(device, problem)[1].config == right


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


def test_what_does_not_build_is_rejected(empty):
    """The compiler's own words are the reason, and the child is asked again."""
    config = direct_config(empty.limits)
    broken = Choice(replace(config, work_m=NO_BUILD), None)
    with child_of("planted_trial")(identity(empty)) as child:
        made = Session(empty, child, 0.0)
        assert "no such type" in made.rejection(broken)
        assert not made.rejection(Choice(replace(broken.config, work_m=1), None))


def test_a_request_can_be_timed_out():
    """The child is ended, and another one serves the next."""
    with Child("a sleeper", "test_tuner_sleeper", [], {}) as child:
        child.command[1:] = ["-c", "import time; time.sleep(60)"]
        begin = time.monotonic()
        with pytest.raises(ChildTimeoutError, match=r"a sleeper's process was ended after 0.2 s"):
            child.ask("anything", timeout_s=0.2)
        assert time.monotonic() - begin < 30
        assert not child.alive


# What is kept


def test_a_session_goes_on_where_it_ended(empty, monkeypatch):
    """What was tried is neither checked nor timed again; with other kernels it is."""
    device = empty
    with trial_child(identity(device)) as child:
        Session(device, child, 0.0).run([TINY])
        tried = Trials(identify(device)).all
        assert tried
        monkeypatch.setattr(session, "rejection", lambda *_: pytest.fail("was checked again"))
        monkeypatch.setattr(task.Tuning, "_measured", lambda *_: pytest.fail("was timed again"))
        Session(device, child, 0.0).run([TINY])
    assert Trials(identify(device)).all == tried
    assert not Trials(identify(device), resume=False).all
    assert not Trials(identify(device)._replace(driver="another")).all


def test_a_log_cut_short_is_read_as_far_as_it_goes(empty):
    """Every whole line counts."""
    who, choice = identify(empty), Choice(direct_config(empty.limits), None)
    trials = Trials(who)
    for number in range(3):
        trials.add(Trial("tiny", f"{number}", choice, 1.0, 2.0, ""))
    text = trials.path.read_text()
    trials.path.write_text(text[:-30] + "\n{}\nnonsense\n")
    assert [t.shapes for t in Trials(who).all] == ["0", "1"]


def test_ctrl_c_keeps_what_was_found(empty, monkeypatch, capsys):
    """The best so far is checked and stored, and the command's exit code is the shell's."""
    pressed = []

    def say(self, text):
        if "tried" in text and not pressed:
            pressed.append(text)
            raise KeyboardInterrupt

    monkeypatch.setattr(Session, "say", say)
    assert main(["tune", "--shapes", "12x12x12", "--budget", "5"]) == 130
    assert pressed
    stored = lookup._user_records(lookup.user_file(identify(empty)), identify(empty)).records
    assert [r.key for r in stored] == [("direct", "tiny")]
    assert "12" in capsys.readouterr().out


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_there_must_be_some_time(minutes, empty):
    """What is no number above 0 is refused before anything is tried or stored."""
    with pytest.raises(ValueError, match=f"minutes={minutes} is not a number above 0"):
        clgemm.tune(empty, minutes=minutes)


def test_tuning_serves_at_once(empty):
    """tune() returns its records, and products use them, with right results."""
    (record,) = clgemm.tune(empty, shapes=[(3, 12, 12, 12)], minutes=0.03)
    assert record.family == "direct"
    assert record.shape_class == "batched"
    assert record.kernels == kernels_hash("direct")
    assert all(gflops > 0 for gflops in record.gflops)
    assert serving.tuned(empty, "direct", "batched") == record.choice
    assert "this user's" in clgemm.show_config("dicts")["Tuning"]["batched"]["direct"]
    a = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    with clgemm.device(empty):
        np.testing.assert_array_equal(clgemm.matmul(a, a), a @ a)


def test_records_that_cannot_be_stored_are_printed(empty, capsys, caplog, monkeypatch):
    """A full disk loses nothing: the command says so, and its exit code does."""
    assert main(["tune", "--shapes", "12x12x12", "--budget", "0.01"]) == 0

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lookup, "rewrite", full)
    with caplog.at_level(logging.WARNING):
        assert main(["tune", "--shapes", "12x12x12", "--budget", "0.01"]) == 1
    out = capsys.readouterr().out
    assert findings_from(out[out.rindex('{\n "format"') :]).records
    assert "is not stored" in caplog.text


def test_show_draws_the_search(empty, tmp_path, capsys):
    """In a file; where nothing was tried, it says so."""
    assert main(["tune", "--show"]) == 2
    assert "nothing has been tried" in capsys.readouterr().err
    choice = Choice(direct_config(empty.limits), None)
    trials = Trials(identify(empty))
    for number, name in enumerate(("tiny", "tiny", "small", "vector", "deep")):
        trials.add(Trial(name, f"{number}", choice, number / 2, 5.0, "" if number else "wrong"))
    assert main(["tune", "--show", str(tmp_path / "search.png")]) == 0
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("classes", [1, 2, 3, 5])
def test_the_picture_of_a_search_is_full_and_explained(classes, empty):
    """As many columns as there are classes, a legend, and the histograms beside the candidates."""
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from clgemm.tuning import plot

    choice = Choice(direct_config(empty.limits), None)
    trials = Trials(identify(empty))
    for name in SHAPE_CLASSES[:classes]:
        for number in range(classes):
            trials.add(Trial(name, f"{number}", choice, number / 2 + 0.1, 5.0, ""))
        trials.add(Trial(name, "bad", choice, 0.0, 0.0, "wrong"))
    figure = plot.picture(trials, "D")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    panels = figure.axes
    assert len(panels) == classes
    right = max(axis.get_window_extent(renderer).x1 for axis in panels[:3])
    assert right > 0.75 * figure.bbox.width
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("candidate", "rejected", "best so far", "the default"),
    ]
    outlines = [axis.get_window_extent(renderer) for axis in panels]
    for axis in panels:
        (histogram,) = axis.child_axes
        box = histogram.get_window_extent(renderer)
        assert histogram.patches
        assert not any(box.overlaps(outline) for outline in outlines)
        assert box.x1 <= figure.bbox.x1
        labels = [tick.get_text() for tick in axis.get_xticklabels()]
        assert all(label.isdecimal() for label in labels)
    box = legend.get_window_extent(renderer)
    assert not any(box.overlaps(outline) for outline in outlines)


@pytest.mark.parametrize("arguments", [["--shapes", "12x12"], ["--budget", "0"], ["--device", "?"]])
def test_wrong_arguments_are_refused(arguments, capsys):
    """With exit code 2 and a word on what is wrong."""
    try:
        code = main(["tune", *arguments])
    except SystemExit as left:
        code = left.code
    assert code == 2
    assert arguments[1] in capsys.readouterr().err


def test_every_family_and_class_has_its_task(device):
    """Those that the device can run; each of one's own shapes goes to its class."""
    made = tasks_for(device)
    families = {f.name for f in planner.families(device) if not f.instructions}
    assert {t.family for t in made} - {"tensor"} == families  # of some GPUs
    wanted = {"tiny", "small", "medium", "large", "tall", "wide", "deep", "batched"}
    assert wanted <= {t.shape_class for t in made}
    own = tasks_for(device, [Shape(500, 500, 500), Shape(700, 700, 700), Shape(8, 8, 8)])
    plain = [(t.shape_class, len(t.shapes)) for t in own if t.family in families]
    assert plain == [("medium", 2), ("tiny", 1)]


def test_two_tuners_at_once(empty):
    """Both end with their records stored, and every trial of both is in the log."""
    script = "import clgemm; clgemm.tune({}, shapes=[{}], minutes=0.02)"
    number = clgemm.devices().index(empty)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    both = [
        subprocess.Popen([sys.executable, "-c", script.format(number, shape)], env=variables)
        for shape in ((12, 12, 12), (9, 10, 10, 10))
    ]
    assert [process.wait(120) for process in both] == [0, 0]
    lookup.forget()
    stored = lookup._user_records(lookup.user_file(identify(empty)), identify(empty)).records
    assert {r.shape_class for r in stored} == {"tiny", "batched"}
    trials = Trials(identify(empty))
    lines = trials.path.read_text().splitlines()
    assert len(trials.all) == len(lines) == len([json.loads(line) for line in lines])
    assert {t.shape_class for t in trials.all} == {"tiny", "batched"}


# Time


class Clock:
    """A clock that only what is asked of the child moves, so many seconds a request."""

    def __init__(self, seconds):
        self.now, self.seconds, self.alive = 0.0, seconds, True

    def monotonic(self):
        return self.now

    def ask(self, request, **keywords):
        self.now += self.seconds[request]
        if request == "race":
            return [
                [1.0 + number] * keywords["rounds"] for number in range(len(keywords["choices"]))
            ]
        return ""

    def close_process(self):
        pass


@pytest.fixture
def clock(monkeypatch, empty):
    """A child and a clock of this kind, for tasks and sessions."""
    made = Clock({"race": 1.0, "gate": 2.0, "verify": 3.0})
    for module in (session, task):
        monkeypatch.setattr(module, "time", made)
    return made


# Of a task whose time is over: its default on each shape, one candidate checked and timed twice on
# each shape, the finals on each shape, two candidates verified.
LONGEST_TASK = 3 * 1 + 2 + 2 * 3 * 1 + 3 * 1 + 2 * 3


@pytest.mark.parametrize("seconds", [60, 120, 3000])
def test_a_session_ends_in_time(seconds, clock, empty):
    """With the present task: others are not begun, and are named."""
    tasks = tasks_for(empty)
    session = Session(empty, clock, seconds)
    found = session.run(tasks)
    assert found
    assert clock.now <= seconds + LONGEST_TASK
    assert len(found) + len(session.left_out) == len(tasks)
    assert [t.shape_class for t in tasks[len(found) :]] == [t.shape_class for t in session.left_out]
    assert bool(session.left_out) == (seconds < 3000)


def test_what_there_is_no_time_to_try_is_not_replaced(clock, empty):
    """A record that serves stays, if the session ends before it could be tried."""
    second, first = [task for task in tasks_for(empty) if task.family == "direct"][:2]
    (known,) = Session(empty, clock, 100).run([second])
    path = lookup.user_file(identify(empty))
    path.with_suffix(".trials").unlink()
    plain = DIRECT.plainest(empty.traits)
    kept = replace(known, choice=plain)
    lookup.store(identify(empty), kept)
    session = Session(empty, clock, 6 + LONGEST_TASK)
    session.run([first, second])
    assert session.left_out == [second]
    served = next(lookup.candidates(identify(empty), empty.limits, "direct", second.shape_class))
    assert served.record.choice == plain


def test_the_budget_holds_for_the_crossovers_too(clock, monkeypatch, capsys, empty):
    """They get what is left of it; without time they are not measured, and the command says so."""
    given = []

    def measure(_device, _host, seconds):
        given.append(clock.now + seconds)
        raise TimeoutError

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "trial_child", lambda _: contextlib.nullcontext(clock))
    assert main(["tune", "--budget", "1"]) == 0
    assert given == [60.0]
    assert clock.now <= 60.0
    out = capsys.readouterr().out
    assert "1 minutes were too short for" in out
    assert "run 'python -m clgemm.accel --measure'" in out
