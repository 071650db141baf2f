"""Tests of ``python -m clgemm bench --programs`` and of random programs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clgemm.__main__ import main
from clgemm.bench import programs
from clgemm.bench.cases import Case
from clgemm.bench.contenders import ACCELERATED, ROUTED
from clgemm.bench.draws import (
    MOST_PRODUCTS,
    SPREAD,
    STEPS,
    STORAGE_BYTES,
    Bounds,
    random_programs,
)
from clgemm.bench.programs import DEFAULT
from clgemm.bench.rounds import Settings
from clgemm.core.child import Child, ChildDiedError


def test_a_seed_gives_the_same_programs_everywhere():
    """These programs of seed 1 were drawn on one machine; a longer run begins with them."""
    programs = random_programs(3, 1, DEFAULT)
    assert [program.label for program in programs] == SEED_1
    assert random_programs(5, 1, DEFAULT)[:3] == programs
    assert random_programs(3, 2, DEFAULT) != programs


SEED_1 = ["1 of 6.2e7 to 6.2e7", "2 of 7.7e6 to 9.0e6", "3 of 1.4e7 to 4.2e8"]


@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_programs_are_within_the_bounds(seed):
    """Each of their products occurs, and all together fit into memory."""
    bounds = Bounds((8, 512), (10**4, 10**7))
    for program in random_programs(3, seed, bounds):
        products = program.products
        assert 1 <= len(products) <= MOST_PRODUCTS
        assert all(bounds.holds(product) for product in products)
        assert sum(product.size_bytes for product in products) <= STORAGE_BYTES
        works = [product.work for product in products]
        assert max(works) <= 1.1 * SPREAD * min(works)
        assert set(program.steps) == set(range(len(products)))
        assert STEPS[0] <= len(program.steps) <= STEPS[1]
        assert program.flops == 2 * sum(works[step] for step in program.steps)
        assert program.largest == max(works)
        again = [Case.from_dict(each) for each in program.as_dict()["products"]]
        assert tuple(again) == products


def test_products_that_are_too_large_together_are_left_out():
    """At least one is left."""
    bounds = Bounds((6000, 9000), (10**11, 5 * 10**11))
    for program in random_programs(8, 3, bounds):
        stored = sum(product.size_bytes for product in program.products)
        assert stored <= STORAGE_BYTES


ARGUMENTS = ["bench", "--programs", "2", "--seed", "7", "--sides", "8:64", "--work", "1e4:1e5"]


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    """Make the turns short."""
    monkeypatch.setattr(programs, "SETTINGS", Settings(2, 1e-3, 1e9, 0.0))


def test_programs_run_from_end_to_end(tmp_path, capsys):
    """Two programs by NumPy, the device, matmul and accelerated NumPy: timed and checked."""
    file = tmp_path / "p.json"
    assert main([*ARGUMENTS, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "2 of 2 random programs, seed 7: products with sides 8 to 64" in printed
    found = json.loads(file.read_text())
    assert found["seed"] == 7
    assert set(found["summary"]) == {"clgemm", ROUTED, ACCELERATED}
    assert found["summary"][ROUTED]["all"]["count"] == 2
    for each in found["programs"]:
        names = [outcome["contender"] for outcome in each["outcomes"]]
        assert names == ["NumPy", "clgemm", ROUTED, ACCELERATED]
        assert all(len(outcome["rounds_s"]) == 2 for outcome in each["outcomes"])
        assert all(outcome["correct"] for outcome in each["outcomes"])
        assert list(each["ratio"]) == names[1:]
        assert all(ratio > 0 for ratio in each["ratio"].values())
        assert len(each["products"]) == len(set(each["steps"]))


def test_programs_end_when_their_time_is_up(capsys):
    """One at least is measured."""
    assert main([*ARGUMENTS, "--minutes", "1e-6"]) == 0
    assert "1 of 2 random programs" in capsys.readouterr().out


def test_a_wrong_result_is_found_out(monkeypatch, capsys):
    """It is named, and the exit code is 1."""
    original = Child.ask

    def ask(self, request, timeout_s=None, **keywords):
        answer = original(self, request, timeout_s, **keywords)
        return [1.0, float("nan")] if (request, self.name) == ("judge", ROUTED) else answer

    monkeypatch.setattr(Child, "ask", ask)
    assert main(ARGUMENTS) == 1
    assert f"{ROUTED}: WRONG: an element's error is nan" in capsys.readouterr().out


def test_a_worker_that_fails_is_named(monkeypatch, capsys):
    """The exit code is 1, as without --programs."""

    def ask(self, request, timeout_s=None, **keywords):
        raise ChildDiedError(f"{self.name}: planted")

    monkeypatch.setattr(Child, "ask", ask)
    assert main(ARGUMENTS) == 1
    assert "NumPy: planted" in capsys.readouterr().err
