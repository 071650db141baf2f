"""The places in NumPy's memory that clgemm patches; no other module writes to them.

clgemm patches the code behind NumPy's public objects, not the objects. There are three kinds of
place: the implementation behind a function, a method of ndarray, and the call of a ufunc. A
function calls its implementation if no operand overrides it by NEP 18. Each place is checked before
the first write, and refused if it does not look as expected.

The loops of a ufunc are not patched. A loop in Python cannot raise: if it failed, such as at the
recursion limit, NumPy would return uninitialised memory.
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

from clgemm.core.imports import after_import, is_imported

TESTED = "NumPy 1.26 to 2.5 on CPython 3.10 to 3.13"

# numpy/core/code_generators/numpy_api.py: the positions of the ufunc API are part of NumPy's ABI.
REPLACE_LOOP, NEW_UFUNC = 30, 42
IDENTITY_NONE = -1  # the identity of a ufunc without a reduction
MATMUL = "(n?,k),(k,m?)->(n?,m?)"
# NumPy's PyUFuncObject on 64 bits: nin, nout and nargs; the loops; and the data of each loop.
UFUNC_COUNTS_OFFSET, UFUNC_LOOPS_OFFSET, UFUNC_DATA_OFFSET = 16, 32, 40

# CPython's PyTypeObject on 64 bits: the offset of an object's vectorcall pointer, and the flags.
# IMMUTABLE: attributes cannot be assigned. HAVE_VECTORCALL: objects have a vectorcall pointer.
TYPE_VECTORCALL_OFFSET, TYPE_FLAGS_OFFSET = 56, 168
IMMUTABLE, HAVE_VECTORCALL = 1 << 8, 1 << 11

# PyObject *vectorcall(PyObject *callable, PyObject **args, size_t count, PyObject *keyword_names)
# All parameters are addresses: in converting objects, ctypes would wrap an exception, such as a
# RecursionError, in another one.
Vectorcall = PYFUNCTYPE(py_object, c_void_p, c_void_p, c_void_p, c_void_p)

Function = TypeVar("Function", bound=Callable[..., Any])

_referenced: list[Any] = []  # memory that ufuncs refer to by its address


class UnsupportedError(RuntimeError):
    """clgemm.accel does not support this Python or this NumPy; nothing is patched."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} (NumPy {np.__version__}; tested: {TESTED})")


class Patch(Protocol):
    """A place in NumPy that can be patched and restored."""

    def put(self, replacement: Any) -> None:
        """Replace the object at this place."""

    def restore(self) -> None:
        """Restore the original object, unless it is there."""


def require_support() -> None:
    """Raise UnsupportedError unless writing to NumPy's memory is known to be safe."""
    if sys.implementation.name != "cpython" or sizeof(c_void_p) != 8:
        raise UnsupportedError(f"clgemm.accel is for 64-bit CPython, not {sys.implementation.name}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise UnsupportedError("clgemm.accel does not support the free-threaded build of Python")
    current, main = (
        PYFUNCTYPE(c_void_p)((f"PyInterpreterState_{name}", ctypes.pythonapi))()
        for name in ("Get", "Main")
    )
    if current != main:
        raise UnsupportedError("clgemm.accel does not support sub-interpreters")


class Implementation:
    """The implementation that np.dot or np.inner calls if no operand overrides it by NEP 18.

    Parameters
    ----------
    function : callable
        A function that NumPy dispatches in C. It stays the same object, wherever it is imported.

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
            raise UnsupportedError(f"{function!r} does not store its implementation as expected")

    def put(self, replacement: Callable[..., Any]) -> None:
        ctypes.pythonapi.Py_IncRef(py_object(replacement))  # the function owns a reference to it
        self._write(replacement)

    def restore(self) -> None:
        if (replacement := self._function._implementation) is not self.original:
            self._write(self.original)  # the function's reference to it was never given up
            ctypes.pythonapi.Py_DecRef(py_object(replacement))

    def _write(self, value: Callable[..., Any]) -> None:
        c_void_p.from_address(self._slots[0]).value = id(value)
        if self._function._implementation is not value:
            raise UnsupportedError(f"{self._function!r} does not accept another implementation")


class Attribute:
    """A method of one of NumPy's types; CPython updates the type's C slots and its subclasses'.

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
            raise UnsupportedError("this Python does not lay out types as expected")

    def put(self, replacement: Any) -> None:
        before = self._flags.value
        self._flags.value &= ~IMMUTABLE
        try:
            setattr(self._owner, self._name, replacement)
        finally:
            # From Python 3.12 on, a new __call__ clears HAVE_VECTORCALL, and with it the vectorcall
            # functions of all objects of the type. `Call` clears that of one object.
            self._flags.value |= before & (IMMUTABLE | HAVE_VECTORCALL)

    def restore(self) -> None:
        if self._owner.__dict__[self._name] is not self.original:
            self.put(self.original)


class Call:
    """The call of a ufunc, from Python or C.

    CPython calls an object through its vectorcall pointer, or through its type's ``__call__`` if
    that pointer is null. So the pointer of one ufunc is set to null, and the calls of all other
    ufuncs do not change.
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
            raise UnsupportedError("this NumPy does not call ufuncs as expected")
        self._pointer, other = (c_void_p.from_address(id(x) + offset) for x in (ufunc, np.add))
        self.address = self._pointer.value
        if not self.address or self.address != other.value:
            raise UnsupportedError(f"this NumPy calls {ufunc} and np.add by different functions")
        self._call = Vectorcall(self.address)

    def original(self, *arguments: Any, **keywords: Any) -> Any:
        """Call NumPy's own ufunc, whether it is patched or not."""
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
    """A descriptor for ``np.ufunc.__call__`` that replaces the call of one ufunc only."""

    def __init__(self, ufunc: np.ufunc, replacement: Callable[..., Any], original: Any) -> None:
        self._ufunc, self._replacement, self._original = ufunc, replacement, original

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is self._ufunc:
            return self._replacement
        return self._original if instance is None else self._original.__get__(instance, owner)


def copied(ufunc: np.ufunc) -> Callable[..., Any]:
    """Return an unpatched copy of a ufunc, with the same name, loops, rules and errors.

    The copy has no loops for dtypes of other packages. Do not pass it an `out`: NumPy avoids the
    overlap of result and operands only for matmul itself.
    """
    counts = (c_int * 3).from_address(id(ufunc) + UFUNC_COUNTS_OFFSET)
    if ufunc.signature != MATMUL or tuple(counts) != (ufunc.nin, ufunc.nout, ufunc.nargs):
        raise UnsupportedError(f"{ufunc} is not laid out as expected")
    indices = range(ufunc.ntypes)
    loops, data = (
        [_element(id(ufunc) + offset, i) for i in indices]
        for offset in (UFUNC_LOOPS_OFFSET, UFUNC_DATA_OFFSET)
    )
    types = [[np.dtype(char).num for char in each.replace("->", "")] for each in ufunc.types]
    for numbers, loop in zip(types, loops, strict=True):
        if not loop or _loop_of(ufunc, numbers, loop) != loop:
            raise UnsupportedError(f"{ufunc} has an unexpected loop for the types {numbers}")
    count = len(loops)
    name, signature = (str(x).encode() for x in (ufunc.__name__, ufunc.signature))
    memory = (
        (c_void_p * count)(*loops),
        (c_void_p * count)(*data),
        bytes(number for numbers in types for number in numbers),
        *(name, signature),
    )
    _referenced.append(memory)
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
    """Return the loop for some types by NumPy's C-API, which returns it when it replaces it."""
    replace = PYFUNCTYPE(c_int, py_object, c_void_p, c_void_p, POINTER(c_void_p))(
        _ufunc_api()[REPLACE_LOOP]
    )
    signature, old = (c_int * len(types))(*types), c_void_p()
    if replace(ufunc, loop, signature, ctypes.byref(old)) != 0:
        raise UnsupportedError(f"NumPy's C-API does not return the loops of {ufunc}")
    if old.value != loop:
        replace(ufunc, old, signature, ctypes.byref(c_void_p()))
    return old.value


def _element(address: int, index: int) -> int | None:
    """Return an element of an array of pointers, whose address is stored at `address`."""
    array = c_void_p.from_address(address).value
    return c_void_p.from_address(array + index * sizeof(c_void_p)).value if array else None


def _ufunc_api() -> Any:
    """Return NumPy's table of ufunc functions."""
    # The module has another name in NumPy 2 than in 1.26.
    module = sys.modules.get("numpy._core._multiarray_umath") or sys.modules.get(
        "numpy.core._multiarray_umath"
    )
    capsule = getattr(module, "_UFUNC_API", None)
    pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    if capsule is None or not (address := pointer(capsule, None)):
        raise UnsupportedError("this NumPy has no ufunc API")
    return (c_void_p * (NEW_UFUNC + 1)).from_address(address)


class DeviceOperator:
    """The operator ``@`` of pyopencl's arrays, which do not define one.

    A program that has no such arrays need not import pyopencl for it.
    """

    def __init__(self) -> None:
        self._wanted: Callable[..., Any] | None = None
        self._put: Callable[..., Any] | None = None
        self._waits = False

    def put(self, replacement: Callable[..., Any]) -> None:
        self._wanted = replacement
        if not self._waits or is_imported("pyopencl.array"):
            self._waits = True
            after_import("pyopencl.array", self._define)

    def _define(self) -> None:
        array = sys.modules["pyopencl.array"].Array
        if self._wanted is not None and not hasattr(array, "__matmul__"):
            type.__setattr__(array, "__matmul__", self._wanted)
            self._put = self._wanted

    def restore(self) -> None:
        self._wanted = None
        if self._put is None:
            return
        array = sys.modules["pyopencl.array"].Array
        if array.__dict__.get("__matmul__") is self._put:
            type.__delattr__(array, "__matmul__")
        self._put = None


def disguised(replacement: Function, original: Any) -> Function:
    """Give a replacement the name, documentation and signature of the original, and return it."""
    owner = getattr(original, "__objclass__", None)
    name = original.__name__
    replacement.__name__, replacement.__doc__ = name, original.__doc__
    replacement.__qualname__ = f"{owner.__name__}.{name}" if owner else name
    replacement.__module__ = "numpy"
    vars(replacement).update(_signatures(original))
    return replacement


@functools.cache
def _signatures(original: Any) -> dict[str, Any]:
    """Return the attributes that hold the signature of a NumPy function."""
    try:
        signature = inspect.signature(original)
    except ValueError:  # functions of NumPy 2.3 and older have no signature
        kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        signature = inspect.Signature(list(map(inspect.Parameter, ("args", "kwargs"), kinds)))
    found: dict[str, Any] = {"__signature__": signature}
    if (text := getattr(original, "__text_signature__", None)) is not None:
        found["__text_signature__"] = text
    return found
