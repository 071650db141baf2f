"""Random programs: sequences of products, most of them of several shapes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from clgemm.bench.cases import Case
from clgemm.bench.survey import STORAGE_BYTES, Bounds, Draw, random_cases

__all__ = ["DEFAULT", "Program", "random_programs"]

DEFAULT = Bounds(sides=(8, 4096), work=(10**5, 5 * 10**9))
SPREAD = 300  # how many times the work of a program's smallest product its largest may have
LEAST_TOP = 10  # times the least work: the largest product of the smallest programs
MOST_PRODUCTS = 24  # different ones in a program
STEPS = (40, 400)  # the fewest and the most products of a pass
PASS_WORK = 2 * 10**10  # multiply-adds of a pass, unless it has the fewest steps


@dataclass(frozen=True)
class Program:
    """Products in the order in which a program makes them, again and again.

    Attributes
    ----------
    products : tuple of Case
        The different ones.
    steps : tuple of int
        Positions in `products`. Each product occurs.
    """

    products: tuple[Case, ...]
    steps: tuple[int, ...]

    @property
    def work(self) -> int:
        """Multiply-adds of a pass."""
        return sum(self.products[step].work for step in self.steps)

    @property
    def label(self) -> str:
        """How many products it has, and the range of their work."""
        works = [product.work for product in self.products]
        return f"{len(works)} of {min(works):.1e} to {max(works):.1e}".replace("e+0", "e")

    def as_dict(self) -> dict[str, Any]:
        """Return the products and the steps, for JSON."""
        return {
            "products": [product.as_dict() for product in self.products],
            "steps": list(self.steps),
        }


def random_programs(count: int, seed: int, bounds: Bounds) -> list[Program]:
    """Return random programs, the same on every machine.

    A program has 1 to 24 different products. The work of the largest is log-uniform within the
    bounds, and the others have up to 300 times less. They come in random order.

    Raises
    ------
    ValueError
        If there are no products within the bounds.
    """
    return [_program(f"{seed} {number}", bounds) for number in range(count)]


def _program(seed: str, bounds: Bounds) -> Program:
    random = Random(seed).random
    draw = Draw(seed, bounds)
    low, high = bounds.work
    top = draw.size(min(LEAST_TOP * low, high), high)
    within = Bounds(bounds.sides, (max(low, top // SPREAD), top))
    wanted = draw.size(1, MOST_PRODUCTS)
    products = _that_fit(random_cases(wanted, int(random() * 2**31), within))
    mean = sum(product.work for product in products) / len(products)
    length = int(min(max(PASS_WORK / mean, STEPS[0]), STEPS[1]))
    steps = [*range(len(products))]
    steps += [int(random() * len(products)) for _ in range(length - len(products))]
    order = sorted(range(len(steps)), key=[random() for _ in steps].__getitem__)
    return Program(tuple(products), tuple(steps[place] for place in order))


def _that_fit(products: Sequence[Case]) -> list[Case]:
    """Return the products, the smallest first, whose operands fit into memory together."""
    found: list[Case] = []
    stored = 0
    for product in sorted(products, key=lambda each: each.size_bytes):
        stored += product.size_bytes
        if found and stored > STORAGE_BYTES:
            break
        found.append(product)
    return found
