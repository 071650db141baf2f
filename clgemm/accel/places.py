"""Where NumPy keeps what is exchanged: the sole writer of NumPy's functions and types.

Three kinds of place, none of which changes the identity of a public object: what a function of
NEP 18 calls once nobody overrides it, a method of ndarray, and the call of a ufunc. Each is checked
before it is first written, and refused where it does not look as expected.

No loop of a ufunc is exchanged. A loop in Python cannot raise: where it failed (at the recursion
limit even before its first statement), NumPy would return memory that nobody has written.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import sys
import sysconfig
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    PYFUNCTYPE,
    c_char_p,
    c_int,
    c_ssize_t,
    c_ulong,
    c_void_p,
    py_object,
    sizeof,
)
from typing import Any, Protocol, TypeVar

import numpy as np
from pyopencl.array import Array

__all__ = [
    "Attribute",
    "Call",
    "DeviceOperator",
    "Implementation",
    "Place",
    "UnsupportedError",
    "copied",
    "disguised",
    "require_support",
]

TESTED = "NumPy 1.26 to 2.5 on CPython 3.10 to 3.13"

# numpy/core/code_generators/numpy_api.py: the positions of the ufunc API are part of NumPy's ABI.
REPLACE_LOOP, NEW_UFUNC = 30, 42
IDENTITY_NONE = -1  # of a ufunc without a reduction
MATMUL = "(n?,k),(k,m?)->(n?,m?)"
# NumPy's PyUFuncObject on 64 bits: nin, nout and nargs; its loops; and what each loop is handed.
UFUNC_COUNTS_OFFSET, UFUNC_LOOPS_OFFSET, UFUNC_DATA_OFFSET = 16, 32, 40

# CPython's PyTypeObject on 64 bits: where in an object the pointer to its vectorcall function lies,
# and flags: attributes cannot be assigned, and objects have such a pointer.
TYPE_VECTORCALL_OFFSET, TYPE_FLAGS_OFFSET = 56, 168
IMMUTABLE, HAVE_VECTORCALL = 1 << 8, 1 << 11

# PyObject *vectorcall(PyObject *callable, PyObject **args, size_t count, PyObject *keyword_names)
# Addresses all: ctypes would wrap what it meets in converting others, a RecursionError above all.
Vectorcall = PYFUNCTYPE(py_object, c_void_p, c_void_p, c_void_p, c_void_p)

Function = TypeVar("Function", bound=Callable[..., Any])

_kept: list[Any] = []  # memory whose address NumPy keeps


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
    """A method of one of NumPy's types. Slots in C, subclasses' too, are CPython's to update.

    Attributes
    ----------
    original : descriptor
        NumPy's method.
    """

    def __init__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name
        self.original = owner.__dict__[name]
        self._flags = c_ulong.from_address(id(owner) + TYPE_FLAGS_OFFSET)
        if self._flags.value != owner.__flags__ or not owner.__flags__ & IMMUTABLE:
            raise UnsupportedError(f"this Python's types are not laid out as expected ({TESTED})")

    def put(self, replacement: Any) -> None:
        before = self._flags.value
        self._flags.value &= ~IMMUTABLE
        try:
            setattr(self._owner, self._name, replacement)
        finally:
            # A new __call__ takes the vectorcall functions away from all objects of the type, from
            # Python 3.12 on: `Call` does so for one object.
            self._flags.value |= before & (IMMUTABLE | HAVE_VECTORCALL)

    def restore(self) -> None:
        if self._owner.__dict__[self._name] is not self.original:
            self.put(self.original)


class Call:
    """What a call of a ufunc comes to, from Python or C.

    CPython calls an object through the pointer to its vectorcall function, and through its type's
    ``__call__`` where that pointer is null. So the pointer of one ufunc is made null, and all other
    ufuncs are called as before.
    """

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc
        self._attribute = Attribute(np.ufunc, "__call__")
        offset = c_ssize_t.from_address(id(np.ufunc) + TYPE_VECTORCALL_OFFSET).value
        if (
            not np.ufunc.__flags__ & HAVE_VECTORCALL
            or not object.__basicsize__ <= offset < np.ufunc.__basicsize__
            or offset % sizeof(c_void_p)
        ):
            raise UnsupportedError(f"NumPy {np.__version__} calls ufuncs in another way ({TESTED})")
        self._pointer, other = (
            c_void_p.from_address(id(x) + offset) for x in (ufunc, np.add)
        )  # fmt: skip
        self.address = self._pointer.value
        if not self.address or self.address != other.value:
            raise UnsupportedError(f"{ufunc} is called in another way than np.add ({TESTED})")
        self._call = Vectorcall(self.address)

    def original(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the ufunc as if nothing was exchanged."""
        values = (*arguments, *keywords.values())
        vector, names = (py_object * len(values))(*values), tuple(keywords)
        return self._call(
            id(self._ufunc), ctypes.addressof(vector), len(arguments), id(names) if names else 0
        )

    def put(self, replacement: Callable[..., Any]) -> None:
        self._attribute.put(_CallOfOne(self._ufunc, replacement, self._attribute.original))
        self._pointer.value = None

    def restore(self) -> None:
        self._pointer.value = self.address
        self._attribute.restore()


class _CallOfOne:
    """``__call__`` of all ufuncs: as it was, but for one."""

    def __init__(self, ufunc: np.ufunc, replacement: Callable[..., Any], original: Any) -> None:
        self._ufunc, self._replacement, self._original = ufunc, replacement, original

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is self._ufunc:
            return self._replacement
        return self._original if instance is None else self._original.__get__(instance, owner)


def copied(ufunc: np.ufunc) -> Callable[..., Any]:
    """Return another ufunc of the same name, loops, rules and errors, whose call nobody exchanges.

    It has no loops of dtypes that other packages have added, and must not be given an `out`: NumPy
    tells matmul alone that its result may not overlap an operand.
    """
    counts = (c_int * 3).from_address(id(ufunc) + UFUNC_COUNTS_OFFSET)
    if ufunc.signature != MATMUL or tuple(counts) != (ufunc.nin, ufunc.nout, ufunc.nargs):
        raise UnsupportedError(
            f"{ufunc} of NumPy {np.__version__} is not made as expected ({TESTED})"
        )
    indices = range(ufunc.ntypes)
    loops, data = (
        [_element(id(ufunc) + offset, i) for i in indices]
        for offset in (UFUNC_LOOPS_OFFSET, UFUNC_DATA_OFFSET)
    )
    types = [[np.dtype(char).num for char in each.replace("->", "")] for each in ufunc.types]
    for numbers, loop in zip(types, loops, strict=True):
        if not loop or _loop_of(ufunc, numbers, loop) != loop:
            raise UnsupportedError(f"{ufunc} has another loop for {numbers} than it says")
    count = len(loops)
    name, signature = (str(x).encode() for x in (ufunc.__name__, ufunc.signature))
    memory = (
        (c_void_p * count)(*loops),
        (c_void_p * count)(*data),
        bytes(number for numbers in types for number in numbers),
        *(name, signature),
    )
    _kept.append(memory)
    new = PYFUNCTYPE(
        *(py_object, c_void_p, c_void_p, c_char_p),
        *(c_int, c_int, c_int, c_int, c_char_p, c_char_p, c_int, c_char_p, c_void_p),
    )(_ufunc_api()[NEW_UFUNC])
    made: Callable[..., Any] = new(
        *(ctypes.addressof(memory[0]), ctypes.addressof(memory[1]), memory[2]),
        *(count, ufunc.nin, ufunc.nout, IDENTITY_NONE, name, None, 0, signature, None),
    )
    return made


def _loop_of(ufunc: np.ufunc, types: Sequence[int], loop: int) -> int | None:
    """Return the loop for some types as NumPy's C-API tells it: it is exchanged for itself."""
    replace = PYFUNCTYPE(c_int, py_object, c_void_p, c_void_p, POINTER(c_void_p))(
        _ufunc_api()[REPLACE_LOOP]
    )
    signature, old = (c_int * len(types))(*types), c_void_p()
    if replace(ufunc, loop, signature, ctypes.byref(old)) != 0:
        raise UnsupportedError(f"{ufunc} does not tell its loops")
    if old.value != loop:
        replace(ufunc, old, signature, ctypes.byref(c_void_p()))
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


def disguised(replacement: Function, original: Any) -> Function:
    """Return a replacement that is called, documented and pickled by the name of the original."""
    owner = getattr(original, "__objclass__", None)
    name = original.__name__
    replacement.__name__, replacement.__doc__ = name, original.__doc__
    replacement.__qualname__ = f"{owner.__name__}.{name}" if owner else name
    replacement.__module__ = "numpy"
    vars(replacement).update(_signatures(original))
    return replacement


@functools.cache
def _signatures(original: Any) -> dict[str, Any]:
    """Return the attributes by which a function of NumPy's tells its parameters."""
    try:
        signature = inspect.signature(original)
    except ValueError:  # NumPy 2.3 and older do not tell
        signature = inspect.signature(lambda *args, **kwargs: None)  # noqa: ARG005
    found: dict[str, Any] = {"__signature__": signature}
    if (text := getattr(original, "__text_signature__", None)) is not None:
        found["__text_signature__"] = text
    return found
