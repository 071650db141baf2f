"""Random products within bounds, the same on every machine. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from clgemm.bench.cases import FLOAT_BYTES, Case

SHARES = {"N": 0.5, "T": 0.35, "S": 0.1, "D": 0.05}  # of the layouts of each operand
STORED = {"N": 1, "T": 1, "S": 2, "D": 4}  # elements stored for each element of an operand
STORAGE_BYTES = 2**30  # the most for A, B and C
DRAWS = 2000  # tries to find a product of a kind
REPEATS = 300  # draws in all that find no product, or one that the survey has already

Sides = tuple[int, int, int]


@dataclass(frozen=True)
class Bounds:
    """The products that a survey may draw.

    Attributes
    ----------
    sides : (int, int)
        The least and the greatest m, n and k.
    work : (int, int)
        The least and the greatest number of multiply-adds.
    """

    sides: tuple[int, int] = (1, 16384)
    work: tuple[int, int] = (10**5, 4 * 10**11)

    def __post_init__(self) -> None:
        for name in ("sides", "work"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name}={low}:{high} is not a range of whole numbers above 0")

    def holds(self, case: Case) -> bool:
        """Tell whether a product is within the bounds, and its operands fit into memory."""
        sides = case.m, case.n, case.k
        low, high = self.sides
        stored = (
            STORED[case.layout_a] * case.m * case.k * case.batch
            + STORED[case.layout_b] * case.k * case.n * (1 if case.shared_b else case.batch)
            + case.m * case.n * case.batch
        )
        return (
            all(low <= side <= high for side in sides)
            and self.work[0] <= case.work <= self.work[1]
            and FLOAT_BYTES * stored <= STORAGE_BYTES
        )


def range_text(values: Sequence[int], between: str) -> str:
    """Return a range in words, such as ``1e5 to 4e11``."""
    low, high = (str(value) if value < 10**5 else f"{value:.3g}" for value in values)
    return f"{low}{between}{high}".replace("e+0", "e").replace("e+", "e")


class Draw:
    """Random sizes within bounds. All are log-uniform.

    Only `Random.random` is used, which gives the same numbers on every machine and in every
    version of Python.
    """

    def __init__(self, seed: int | str, bounds: Bounds) -> None:
        self.random = Random(seed).random
        self.low, self.high = bounds.sides

    def size(self, low: int, high: int) -> int:
        """Return a whole number between two others, inclusive."""
        value = math.exp(math.log(low) + self.random() * math.log((high + 1) / low))
        return min(int(value), high)

    def side(self, least: int = 1, most: int = 10**9) -> int:
        """Return a side within the bounds and within a range; 0 if there is none."""
        low, high = max(least, self.low), min(most, self.high)
        return self.size(low, high) if low <= high else 0

    def item(self, weights: dict[str, float]) -> str:
        """Return a key by the weights."""
        rest = self.random() * sum(weights.values())
        for key, weight in weights.items():
            rest -= weight
            if rest < 0:
                return key
        return key


def _multiples(of: int) -> Callable[[Draw], Sides]:
    def sides(draw: Draw) -> Sides:
        m, n, k = (of * round(draw.side() / of) for _ in range(3))
        return m, n, k

    return sides


def _one_off(draw: Draw) -> Sides:
    near = (side + (1 if draw.random() < 0.5 else -1) for side in _multiples(64)(draw))
    m, n, k = (side if side > 1 else 0 for side in near)  # 1 is no multiple's neighbour
    return m, n, k


def _few(draw: Draw) -> Sides:
    few, many, k = draw.side(1, 64), draw.side(128), draw.side(128)
    return (few, many, k) if draw.random() < 0.5 else (many, few, k)


class Kind(NamedTuple):
    """A kind of product: how often it is drawn, and its sides."""

    weight: float
    sides: Callable[[Draw], Sides]
    most_matrices: int = 1


KINDS = {
    "any sizes": Kind(4, lambda draw: (draw.side(), draw.side(), draw.side())),
    "square": Kind(2, lambda draw: (draw.side(),) * 3),
    "multiples of 8": Kind(1.5, _multiples(8)),
    "multiples of 64": Kind(1.5, _multiples(64)),
    "one off multiples of 64": Kind(2, _one_off),
    "short k": Kind(2, lambda draw: (draw.side(64), draw.side(64), draw.side(1, 32))),
    "long k": Kind(2, lambda draw: (draw.side(1, 128), draw.side(1, 128), draw.side(1000))),
    "few rows or columns": Kind(2, _few),
    "batch": Kind(
        1.5,
        lambda draw: (draw.side(1, 512), draw.side(1, 512), draw.side(1, 512)),
        most_matrices=1000,
    ),
}


def random_cases(count: int, seed: int, bounds: Bounds, data: str = "normal") -> list[Case]:
    """Return random products, those of less work first.

    The same arguments give the same products on every machine. The first products of a longer
    survey of the same seed are those of a shorter one, in another order.

    Raises
    ------
    ValueError
        If there are too few products within the bounds.
    """
    kinds = {name: KINDS[name].weight for name in possible_kinds(bounds)}
    if not kinds:
        raise ValueError(f"no product found within {bounds}")
    draw, found = Draw(seed, bounds), dict[Case, None]()
    tries = 0
    while len(found) < count:
        case = _drawn(draw, bounds, draw.item(kinds))
        if case is None or case in found:
            tries += 1
            if tries > REPEATS:
                raise ValueError(f"only {len(found)} products of {count} found within {bounds}")
        else:
            found[case] = None
    return sorted((replace(case, data=data) for case in found), key=lambda case: case.work)


def possible_kinds(bounds: Bounds) -> list[str]:
    """Return the kinds of which products within the bounds can be found."""
    draw = Draw(0, bounds)
    return [kind for kind in KINDS if _drawn(draw, bounds, kind) is not None]


def _drawn(draw: Draw, bounds: Bounds, name: str) -> Case | None:
    """Return a product of a kind, None if none is within the bounds."""
    kind = KINDS[name]
    for _ in range(DRAWS):
        m, n, k = kind.sides(draw)
        batch = draw.size(2, kind.most_matrices) if kind.most_matrices > 1 else 1
        layouts = draw.item(SHARES), draw.item(SHARES)
        shared = batch > 1 and draw.random() < 0.25
        if min(m, n, k) > 0 and bounds.holds(
            case := Case(name, m, n, k, *layouts, batch=batch, shared_b=shared)
        ):
            return case
    return None
