"""What the configs of all families share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from clgemm.core.config import KernelConfig, multiple, positive, variant_of, vector, vector_block_of
from clgemm.core.traits import Limits

LIMITS = Limits(
    local_memory_bytes=1000,
    work_group_size=64,
    allocation_bytes=2**20,
    compute_units=2,
    vector_width=1,
)


@dataclass(frozen=True)
class Toy(KernelConfig):
    """A config with one constraint."""

    tile: int
    width: int
    in_place: bool = False

    planned: ClassVar[frozenset[str]] = frozenset({"IN_PLACE"})

    @property
    def items(self) -> int:
        return self.tile

    @property
    def local_memory_bytes(self) -> int:
        return 10 * self.tile

    def problems(self) -> Iterator[str]:
        yield from positive(self)
        yield from vector(self, "width")
        if self.width:
            yield from multiple(self, "tile", of="width")


@dataclass(frozen=True)
class ToyVariant(Toy):
    """The config of one launch."""

    fused_split_k: bool = False


def test_limits_count_where_the_config_itself_is_right():
    """Sizes that are derived from a broken config are not compared with the device's."""
    assert not list(Toy(64, 4).problems_on(LIMITS))
    assert list(Toy(128, 4).problems_on(LIMITS)) == [
        "128 work-items per work-group exceed the device's 64",
        "1280 bytes of local memory exceed the device's 1000",
    ]
    assert list(Toy(129, 4).problems_on(LIMITS)) == ["tile=129 is not a multiple of width=4"]


def test_all_broken_constraints_are_in_one_error():
    """The error begins with the config."""
    Toy(4, 4).require(LIMITS)
    with pytest.raises(ValueError, match=r"Toy\(tile=0, .*: tile=0 is less than 1; width=3 is not"):
        Toy(0, 3).require(LIMITS)


def test_flags_may_be_false_and_optional_fields_zero():
    """All other fields are at least 1."""
    assert not list(positive(Toy(1, 1)))
    assert list(positive(Toy(0, 0), "width")) == ["tile=0 is less than 1"]


def test_fields_for_the_planner_are_no_macros():
    """Configs that differ only in them share a program."""
    assert Toy(8, 4).macros() == Toy(8, 4, in_place=True).macros() == (("TILE", 8), ("WIDTH", 4))


def test_a_variant_has_the_fields_of_its_config():
    """A launch's config is the tunable one, and what the planner sets."""
    made = variant_of(ToyVariant, Toy(8, 4, in_place=True), fused_split_k=True)
    assert made == ToyVariant(8, 4, in_place=True, fused_split_k=True)
    assert (made.standard, Toy(8, 4).standard) == ("CL3.0", "CL1.2")


@pytest.mark.parametrize(
    ("panel", "block"),
    [(8, (8, 16)), (16, (16, 16)), (48, (16, 16)), (6, (2, 2)), (2, (2, 16)), (9, (1, 1))],
)
def test_blocks_of_vectors_divide_panels(panel, block):
    """A panel of 2, 4, 8 or 16 rows is one vector high; others are cut into squares."""
    assert vector_block_of(panel) == block
