"""The random products of a survey, and the statistics of their ratios. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from clgemm.bench.cases import FLOAT_BYTES, Case
from clgemm.bench.contenders import HOST
from clgemm.bench.figures import Outcome

__all__ = [
    "KINDS",
    "STORAGE_BYTES",
    "Bounds",
    "Draw",
    "Summary",
    "groupings",
    "percentile",
    "possible_kinds",
    "random_cases",
    "range_text",
    "regret",
    "regret_of_choice",
    "summary",
]

SHARES = {"N": 0.5, "T": 0.35, "S": 0.1, "D": 0.05}  # of the layouts of each operand
STORED = {"N": 1, "T": 1, "S": 2, "D": 4}  # elements stored for each element of an operand
STORAGE_BYTES = 2**30  # the most for A, B and C
DRAWS = 2000  # tries to find a product of a kind
REPEATS = 300  # draws in all that find no product, or one that the survey has already
SIDE_BANDS = ((1, 7), (8, 63), (64, 383), (384, 10**9))

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


def _any(draw: Draw) -> Sides:
    return draw.side(), draw.side(), draw.side()


def _square(draw: Draw) -> Sides:
    n = draw.side()
    return n, n, n


def _multiples(of: int) -> Callable[[Draw], Sides]:
    def sides(draw: Draw) -> Sides:
        m, n, k = (of * round(draw.side() / of) for _ in range(3))
        return m, n, k

    return sides


def _one_off(draw: Draw) -> Sides:
    near = (side + (1 if draw.random() < 0.5 else -1) for side in _multiples(64)(draw))
    m, n, k = (side if side > 1 else 0 for side in near)  # 1 is no multiple's neighbour
    return m, n, k


def _short_k(draw: Draw) -> Sides:
    return draw.side(64), draw.side(64), draw.side(1, 32)


def _long_k(draw: Draw) -> Sides:
    return draw.side(1, 128), draw.side(1, 128), draw.side(1000)


def _few(draw: Draw) -> Sides:
    few, many, k = draw.side(1, 64), draw.side(128), draw.side(128)
    return (few, many, k) if draw.random() < 0.5 else (many, few, k)


def _small(draw: Draw) -> Sides:
    return draw.side(1, 512), draw.side(1, 512), draw.side(1, 512)


class Kind(NamedTuple):
    """A kind of product: how often it is drawn, and its sides."""

    weight: float
    sides: Callable[[Draw], Sides]
    most_matrices: int = 1


KINDS = {
    "any sizes": Kind(4, _any),
    "square": Kind(2, _square),
    "multiples of 8": Kind(1.5, _multiples(8)),
    "multiples of 64": Kind(1.5, _multiples(64)),
    "one off multiples of 64": Kind(2, _one_off),
    "short k": Kind(2, _short_k),
    "long k": Kind(2, _long_k),
    "few rows or columns": Kind(2, _few),
    "batch": Kind(1.5, _small, most_matrices=1000),
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


# Statistics


@dataclass(frozen=True)
class Summary:
    """Statistics of the ratios of some products.

    Attributes
    ----------
    count : int
    mean : float
        The geometric mean.
    low, median, high : float
        The 5th, 50th and 95th percentiles.
    least, greatest : float
    """

    count: int
    mean: float
    low: float
    median: float
    high: float
    least: float
    greatest: float


def summary(ratios: Sequence[float]) -> Summary:
    """Return the statistics of ratios.

    Raises
    ------
    ValueError
        If there are none.
    """
    if not ratios:
        raise ValueError("there are no ratios to summarise")
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    low, median, high = (percentile(ratios, percent) for percent in (5, 50, 95))
    return Summary(len(ratios), mean, low, median, high, min(ratios), max(ratios))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, by linear interpolation between the two nearest values."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def groupings(cases: Iterable[Case]) -> dict[str, dict[str, list[Case]]]:
    """Return the products all together, and by work, kind, smallest side and layout."""
    found: dict[str, dict[str, list[Case]]] = {
        name: {} for name in ("all", "multiply-adds", "kind", "smallest side", "layout")
    }
    for case in sorted(cases, key=lambda case: case.work):
        found["all"].setdefault("all", []).append(case)
        found["multiply-adds"].setdefault(_decade(case.work), []).append(case)
    orders = {
        "kind": (_kind, list(KINDS)),
        "smallest side": (_band, [_band_name(*band) for band in SIDE_BANDS]),
        "layout": (_layout, ["row-major", "transposed", "sliced"]),
    }
    every = found["all"].get("all", [])
    for name, (key, order) in orders.items():
        for value in order:
            if chosen := [case for case in every if key(case) == value]:
                found[name][value] = chosen
    return found


def _decade(work: int) -> str:
    power = len(str(work)) - 1
    return f"1e{power} to 1e{power + 1}"


def _kind(case: Case) -> str:
    return case.group


def _band(case: Case) -> str:
    side = min(case.m, case.n, case.k)
    return next(_band_name(low, high) for low, high in SIDE_BANDS if low <= side <= high)


def _band_name(low: int, high: int) -> str:
    return f"{low} to {high}" if high < 10**9 else f"{low} or more"


def _layout(case: Case) -> str:
    layouts = case.layout_a + case.layout_b
    if layouts == "NN":
        return "row-major"
    return "transposed" if set(layouts) <= set("NT") else "sliced"


def regret(routed: Outcome, host: Outcome, device: Outcome) -> float | None:
    """Return the time of a product over that on the better side; None unless all three are right.

    The better side is the one with the lesser median. The ratio is the median of the rounds'
    ratios.

    Parameters
    ----------
    routed : Outcome
        clgemm's choice of the side.
    host, device : Outcome
        The same product on either side.
    """
    if not (routed.ok and host.ok and device.ok):
        return None
    better = min(host, device, key=lambda outcome: outcome.time_s.median)
    ratio = better.ratio_to(routed)
    return ratio.median if ratio else None


def regret_of_choice(routed: Outcome, host: Outcome, device: Outcome) -> float | None:
    """Return what `regret` would be if a product took as long as the side that it has chosen.

    So it is 1 where the better side was chosen. Three processes never take the same time, even for
    the same product on the same side. This figure leaves that difference out, and what it takes to
    choose. The parameters are those of `regret`.
    """
    if not routed.ok:
        return None
    return regret(host if routed.side == HOST else device, host, device)
