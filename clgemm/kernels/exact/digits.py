"""Products on tensor cores: integers from digits in base 256, and float16. The configs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, positive
from clgemm.core.plan import ceil_div

# The same as in kernels/exact/digits.cl.
WIDTH, ROWS_A, ROWS_B = 128, 128, 256  # of a tile: bytes along k, rows of A, and of B
LOCAL_BYTES = 227 * 1024  # of a work-group on compute capability 9.0
MOST_K = 16384  # the sums of four pairs of digits do not overflow then: four times 128^2 each
PANEL_BYTES = 2**30  # of each packed operand
FASTER = 8  # than panels of lanes: for the length of a launch
STEP_US = 0.78  # of a step along k of a tile of C, on an H200
FLOAT = 4  # the lane of float16, by the number of types.cl
# Digits of integers of so many bytes: a signed number near the end of its range needs one more.
DIGITS = {1: 1, 2: 3, 4: 5, 8: 8}


@dataclass(frozen=True)
class DigitsPackConfig(KernelConfig):
    """Packs a matrix into tiles of digits."""

    loaded: int
    lane: int
    rows: int  # of a tile
    digits: int  # of each element
    group: int = 256  # work-items

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/digits_pack.cl"
    entry: ClassVar[str] = "digits_pack"
    includes: ClassVar[tuple[str, ...]] = (
        *("exact/types.cl", "exact/loaded.cl", "exact/digits.cl"),
    )

    @property
    def panel(self) -> int:
        """Rows of a panel."""
        return self.rows

    @property
    def chunk(self) -> int:
        """Tiles along k of a work-group."""
        return 1

    def problems(self) -> Iterator[str]:
        yield from positive(self, "loaded")


@dataclass(frozen=True)
class DigitsProductConfig(KernelConfig):
    """Multiplies tiles of digits with wgmma."""

    lane: int
    stored: int
    digits_a: int
    digits_b: int
    signs: int  # 1 if the digits of A are signed, and 2 if those of B are
    stages: int = 4  # pairs of digits in local memory
    triangle: bool = False  # leave out the tiles left of the diagonal of C

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/digits_product.cl"
    entry: ClassVar[str] = "digits_product"
    includes: ClassVar[tuple[str, ...]] = (
        *("common/swizzle.cl", "tensor_core/barriers.cl"),
        *("exact/types.cl", "exact/stored.cl", "exact/digits.cl"),
    )
    # 384 work-items start with 168 registers each; the kernel then divides the registers anew.
    options: ClassVar[tuple[str, ...]] = ("-cl-nv-maxrregcount=168",)
    tensors: ClassVar[bool] = True
    rows: ClassVar[int] = ROWS_A  # of a panel of A
    columns: ClassVar[int] = ROWS_B  # of a panel of B

    @property
    def items(self) -> int:
        return 384

    @property
    def tile_k(self) -> int:
        """Elements along k of a tile."""
        return WIDTH // (2 if self.lane == FLOAT else 1)

    def depth(self, k: int) -> int:
        """Return the tiles along k."""
        return ceil_div(k, self.tile_k)

    @property
    def pairs(self) -> int:
        """Products of digits, if tiles use all of them."""
        last = min(self.digits_a + self.digits_b - 1, 2 ** max(self.stored - 1, 0))
        return sum(i + j < last for i in range(self.digits_a) for j in range(self.digits_b))

    def tile_bytes(self, operand: int) -> int:
        """Return the bytes of a packed tile of A or B: operand 0 or 1."""
        rows, count = ((ROWS_A, self.digits_a), (ROWS_B, self.digits_b))[operand]
        return rows * WIDTH * count + 4

    def problems(self) -> Iterator[str]:
        yield from positive(self, "stored", "signs")
        needed = 128 + self.stages * (ROWS_A + ROWS_B) * WIDTH  # static: limits do not tell
        if needed > LOCAL_BYTES:
            yield f"{needed} bytes of local memory exceed {LOCAL_BYTES}"


def digits_of(element_bytes: int, result_bytes: int) -> int:
    """Return the digits of an operand's elements, as far as a result needs them."""
    return min(DIGITS[element_bytes], result_bytes)
