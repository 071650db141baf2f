"""Tests of docs/offline_compile.py, and of what it has written: no compiler is needed."""

from __future__ import annotations

import pytest
from docs_scripts import docs_script


@pytest.fixture(scope="module")
def script():
    """Return the script, which imports one beside it."""
    return docs_script("offline_compile")


@pytest.fixture(scope="module")
def found(script):
    """Return what the script has written, target by target, beside the default kernels."""
    known = script.loaded()["targets"]
    return [(target, script.kernels(target), known[target.name]) for target in script.TARGETS]


def test_the_file_holds_every_default_kernel(found):
    """Whoever changes a kernel or a default compiles anew: python docs/offline_compile.py."""
    assert [target.name for target, kernels, known in found if kernels.keys() != known.keys()] == []


def test_default_kernels_stay_in_registers(script, found):
    """No default kernel spills, keeps sums in memory or has a compute unit to itself."""
    for target, kernels, known in found:
        for key, kernel in kernels.items():
            facts = script.Facts(*known[key])
            faults = list(script.faults(kernel, facts, target.unit))
            assert not faults or target.name in script.EXCEPTIONS, (target.name, kernel, faults)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, None),
        ({"spilled_bytes": 8}, "spills 8 bytes"),
        ({"private_bytes": 400}, "keeps 400 bytes in memory"),
        ({"registers": 256}, "leaves room for 1 work-group on a compute unit"),
        ({"local_bytes": 40_000}, "leaves room for 1 work-group on a compute unit"),
    ],
)
def test_what_is_wrong_with_a_kernel(script, changed, fault):
    """Spills, memory for private variables, and work-groups that fill a compute unit are faults."""
    target = script.TARGETS[0]
    kernel = max(script.kernels(target).values(), key=lambda each: each.config.items)
    assert kernel.config.items == 256
    facts = script.Facts(100, 64, 0, 0, 16_384)._replace(**changed)
    assert list(script.faults(kernel, facts, target.unit)) == [fault] * bool(fault)
