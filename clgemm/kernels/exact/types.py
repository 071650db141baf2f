"""The dtypes of products other than float32, by the numbers of kernels/exact/types.cl. Pure."""

from __future__ import annotations

from typing import NamedTuple

# What is loaded, by NumPy's kind and size.
NAMES = "b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"
DTYPES = {name: number for number, name in enumerate(NAMES)}
# What is multiplied, and its bytes.
BITS, SHORT, INT, LONG, FLOAT, DOUBLE, BYTES, HALF_PAIRS, COMPLEX_FLOAT, COMPLEX_DOUBLE = range(10)
LANE_BYTES = (4, 2, 4, 8, 4, 8, 4, 4, 8, 16)
WORDS = {BITS: 32, BYTES: 4, HALF_PAIRS: 2}  # steps of k in a word; one in the others
# For each result: its lanes, and the number of what is stored; the bytes of that.
RESULTS = {
    "b1": (BITS, 0),
    **dict.fromkeys(("i1", "u1"), (SHORT, 1)),
    **dict.fromkeys(("i2", "u2"), (SHORT, 2)),
    **dict.fromkeys(("i4", "u4"), (INT, 3)),
    **dict.fromkeys(("i8", "u8"), (LONG, 4)),
    "f2": (FLOAT, 5),
    "f8": (DOUBLE, 6),
    "c8": (FLOAT, 7),
    "c16": (DOUBLE, 8),
}
# Kinds of results by NumPy's name: unsigned numbers are made as signed ones are.
OTHER_NAMES = "bool int8 int16 int32 int64 float16 float64 complex64 complex128"
RESULTS_NAMED = dict(zip(OTHER_NAMES.split(), (x for x in RESULTS if x[0] != "u"), strict=True))
COMPLEX_STORED = {"c8": 10, "c16": 11}  # the same, of complex lanes
STORED_BYTES = (1, 1, 2, 4, 8, 2, 8, 4, 8, 4)
# What tensor cores make: kinds of results, and dtypes.
INTEGERS, HALVES, COMPLEX = "biu", ("f2", "f2", "f2"), ("c8", "c8", "c8")
IN_BYTES, SIGNED = ("b1", "i1", "u1"), "i1"

# Registers of a work-item from which on all steps in local memory are unrolled: then the compiler
# loads for several at once. With fewer, each step loads for itself. AMD's compiler takes two for
# the product of two integers.
MANY_REGISTERS = 256


class Types(NamedTuple):
    """The dtypes of a product, by NumPy's kind and size: ``"i4"`` is int32."""

    a: str
    b: str
    c: str
    precision: str = "strict"  # of the sums of float16 and complex64

    @property
    def are_in_bytes(self) -> bool:
        """Whether the bytes of integers tell their product: modulo 256, or all of them."""
        is_of_bytes = self.a in IN_BYTES and self.b in IN_BYTES
        return RESULTS[self.c][0] in (SHORT, INT) and (self.c in IN_BYTES or is_of_bytes)

    @property
    def signs(self) -> int:
        """Of bytes: 1 if those of A are signed, and 2 if those of B are; modulo 256, none are."""
        return 0 if self.c in IN_BYTES else (self.a == SIGNED) + 2 * (self.b == SIGNED)
