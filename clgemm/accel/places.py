"""Where NumPy keeps what is exchanged: the sole writer of NumPy's functions, slots and loops.

Three kinds of place, none of which changes the identity of a public object: what a function of
NEP 18 calls once nobody overrides it, an attribute of ndarray, and a loop of a generalised ufunc.
Each is checked before it is first written, and refused where it does not look as expected.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from ctypes import POINTER, PYFUNCTYPE, c_char_p, c_int, c_ulong, c_void_p, py_object, sizeof
from typing import Any, Protocol

import numpy as np
from pyopencl.array import Array

__all__ = [
    "Attribute",
    "DeviceOperator",
    "Implementation",
    "Loop",
    "Place",
    "UnsupportedError",
    "require_support",
]

TESTED = "NumPy 1.26 to 2.5 on CPython 3.10 to 3.13"

# numpy/core/code_generators/numpy_api.py: the positions of the ufunc API are part of NumPy's ABI.
REPLACE_LOOP, NEW_UFUNC = 30, 42
IDENTITY_NONE = -1  # of a ufunc without a reduction
MATMUL = "(n?,k),(k,m?)->(n?,m?)"
# NumPy's PyUFuncObject on 64 bits: nin, nout and nargs; its loops; and what each loop is handed.
UFUNC_COUNTS_OFFSET, UFUNC_LOOPS_OFFSET, UFUNC_DATA_OFFSET = 16, 32, 40

# CPython's PyTypeObject on 64 bits, and its flag for types whose attributes cannot be assigned.
TYPE_FLAGS_OFFSET = 168
IMMUTABLE = 1 << 8

# void loop(char **args, const npy_intp *dimensions, const npy_intp *steps, void *data). Called by
# the first type it runs without the GIL, as from NumPy; by the second, for small products, with it.
LoopType = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_void_p)
HeldLoopType = PYFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_void_p)


class UnsupportedError(RuntimeError):
    """Neither this Python nor this NumPy was foreseen: nothing has been changed."""


class Place(Protocol):
    """Where something of NumPy's can be exchanged and put back."""

    def put(self, replacement: Any) -> None:
        """Exchange what is there."""

    def restore(self) -> None:
        """Put back what was there, the same object; harmless if it is there."""


def require_support() -> None:
    """Raise UnsupportedError where writing to NumPy's memory is not known to be safe."""
    if sys.implementation.name != "cpython" or sizeof(c_void_p) != 8:
        raise UnsupportedError(
            f"clgemm.accel is for 64-bit CPython ({TESTED}), not {sys.implementation.name}"
        )
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise UnsupportedError("clgemm.accel does not support the free-threaded build of Python")
    current, main = (
        PYFUNCTYPE(c_void_p)((f"PyInterpreterState_{name}", ctypes.pythonapi))()
        for name in ("Get", "Main")
    )
    if current != main:
        raise UnsupportedError("clgemm.accel does not support sub-interpreters")


class Implementation:
    """What a function such as `np.dot` calls once no operand overrides it by NEP 18.

    Parameters
    ----------
    function : callable
        One that NumPy dispatches in C; it stays the same object, wherever it was imported to.

    Attributes
    ----------
    original : callable
        NumPy's implementation.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self.original: Any = getattr(function, "_implementation", None)
        size = type(function).__basicsize__
        first = object.__basicsize__
        self._slots = [
            id(function) + offset
            for offset in range(first, size - sizeof(c_void_p) + 1, sizeof(c_void_p))
            if c_void_p.from_address(id(function) + offset).value == id(self.original)
        ]
        if self.original is None or len(self._slots) != 1:
            raise UnsupportedError(
                f"{function!r} does not keep its implementation as expected ({TESTED}), but NumPy "
                f"is {np.__version__}"
            )

    def put(self, replacement: Callable[..., Any]) -> None:
        ctypes.pythonapi.Py_IncRef(py_object(replacement))  # the function owns what it holds
        self._write(replacement)

    def restore(self) -> None:
        if (replacement := self._function._implementation) is not self.original:
            self._write(self.original)  # whose reference was never given up
            ctypes.pythonapi.Py_DecRef(py_object(replacement))

    def _write(self, value: Callable[..., Any]) -> None:
        c_void_p.from_address(self._slots[0]).value = id(value)
        if self._function._implementation is not value:
            raise UnsupportedError(f"{self._function!r} did not take another implementation")


class Attribute:
    """A method of ndarray. Operators' slots in C, subclasses' too, are CPython's to update.

    Attributes
    ----------
    original : descriptor
        NumPy's method.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.original = np.ndarray.__dict__[name]
        self._flags = c_ulong.from_address(id(np.ndarray) + TYPE_FLAGS_OFFSET)
        if self._flags.value != np.ndarray.__flags__ or not np.ndarray.__flags__ & IMMUTABLE:
            raise UnsupportedError(f"this Python's types are not laid out as expected ({TESTED})")

    def put(self, replacement: Any) -> None:
        self._flags.value &= ~IMMUTABLE
        try:
            setattr(np.ndarray, self._name, replacement)
        finally:
            self._flags.value |= IMMUTABLE

    def restore(self) -> None:
        if np.ndarray.__dict__[self._name] is not self.original:
            self.put(self.original)


class Loop:
    """The inner loop of a ufunc for one dtype, exchanged through NumPy's C-API.

    Parameters
    ----------
    ufunc : numpy.ufunc
        With operands and result of one dtype.
    dtype : numpy.dtype

    Attributes
    ----------
    original, original_held : callable
        NumPy's loop, called without and with the GIL: (args, dimensions, steps, data), addresses
        all.
    """

    def __init__(self, ufunc: np.ufunc, dtype: Any) -> None:
        self._ufunc, self._number = ufunc, np.dtype(dtype).num
        self._signature = (c_int * ufunc.nargs)(*[self._number] * ufunc.nargs)
        table = _ufunc_api()
        self._replace = PYFUNCTYPE(c_int, py_object, c_void_p, c_void_p, POINTER(c_void_p))(
            table[REPLACE_LOOP]
        )
        char = np.dtype(dtype).char
        loops = [i for i, types in enumerate(ufunc.types) if types == f"{char * 2}->{char}"]
        counts = (c_int * 3).from_address(id(ufunc) + UFUNC_COUNTS_OFFSET)
        if (
            ufunc.signature != MATMUL
            or len(loops) != 1
            or tuple(counts) != (ufunc.nin, ufunc.nout, ufunc.nargs)
        ):
            raise UnsupportedError(
                f"{ufunc} of NumPy {np.__version__} is not made as expected ({TESTED})"
            )
        self.address, self._data = (
            _element(id(ufunc) + offset, loops[0])
            for offset in (UFUNC_LOOPS_OFFSET, UFUNC_DATA_OFFSET)
        )
        # Exchanged for itself, it shows what there was.
        found = self._exchange(self.address) if self.address else None
        if found is None or found != self.address:
            if found:
                self._exchange(found)
            raise UnsupportedError(f"{ufunc} has another loop for {np.dtype(dtype)} than it says")
        self.original = LoopType(self.address or 0)
        self.original_held = HeldLoopType(self.address or 0)
        self._kept: list[Any] = []

    def callback(self, function: Callable[[int, int, int, int], None]) -> Any:
        """Return what `put` takes: a loop in Python. It lives on, as a thread may be in it."""
        made = LoopType(function)
        self._kept.append(made)
        return made

    def put(self, replacement: Any) -> None:
        self._exchange(ctypes.cast(replacement, c_void_p).value)

    def restore(self) -> None:
        self._exchange(self.address)

    def alone(self) -> Callable[..., Any]:
        """Return a ufunc of the same name, rules and errors with NumPy's loop alone."""
        types = bytes([self._number] * self._ufunc.nargs)
        loops, data = (c_void_p * 1)(self.address), (c_void_p * 1)(self._data)
        name, signature = (str(x).encode() for x in (self._ufunc.__name__, self._ufunc.signature))
        self._kept += [types, loops, data, name, signature]  # NumPy keeps their addresses
        new = PYFUNCTYPE(
            *(py_object, c_void_p, c_void_p, c_char_p),
            *(c_int, c_int, c_int, c_int, c_char_p, c_char_p, c_int, c_char_p, c_void_p),
        )(_ufunc_api()[NEW_UFUNC])
        made: Callable[..., Any] = new(
            *(ctypes.addressof(loops), ctypes.addressof(data), types),
            *(1, self._ufunc.nin, self._ufunc.nout, IDENTITY_NONE, name, None, 0, signature, None),
        )
        return made

    def _exchange(self, loop: int | None) -> int | None:
        old = c_void_p()
        if self._replace(self._ufunc, loop, self._signature, ctypes.byref(old)) != 0:
            raise UnsupportedError(f"{self._ufunc} did not let its loop be exchanged")
        return old.value


def _element(place: int, index: int) -> int | None:
    """Return an element of the array of pointers whose address is kept at a place."""
    array = c_void_p.from_address(place).value
    return c_void_p.from_address(array + index * sizeof(c_void_p)).value if array else None


def _ufunc_api() -> Any:
    """Return NumPy's table of ufunc functions."""
    # NumPy 2 has it at another place than 1.26.
    module = sys.modules.get("numpy._core._multiarray_umath") or sys.modules.get(
        "numpy.core._multiarray_umath"
    )
    capsule = getattr(module, "_UFUNC_API", None)
    pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    if capsule is None or not (address := pointer(capsule, None)):
        raise UnsupportedError(f"NumPy {np.__version__} has no ufunc API where it is expected")
    return (c_void_p * (NEW_UFUNC + 1)).from_address(address)


class DeviceOperator:
    """The operator ``@`` of pyopencl's arrays, which have none of their own."""

    def put(self, replacement: Callable[..., Any]) -> None:
        if not hasattr(Array, "__matmul__"):
            type.__setattr__(Array, "__matmul__", replacement)
            self._put = replacement

    def restore(self) -> None:
        if "_put" in self.__dict__ and Array.__dict__.get("__matmul__") is self._put:
            type.__delattr__(Array, "__matmul__")
