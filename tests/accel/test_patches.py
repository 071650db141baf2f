"""Tests of the places in NumPy that are patched, and of their replacements."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import numpy.testing  # at once: it may not be imported by a Python that a test has broken
import pytest
from accelerated import EXACT, OTHER, SQUARE, SQUARE_EXACT, A, B

from clgemm.accel import enabled, patches, report, session


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"sys.implementation": type("Other", (), {"name": "pypy"})}, "64-bit CPython"),
        ({"sysconfig.get_config_var": lambda _: 1}, "free-threaded"),
        ({"UFUNC_COUNTS_OFFSET": 24}, "not laid out as expected"),
        ({"UFUNC_LOOPS_OFFSET": 40, "UFUNC_DATA_OFFSET": 32}, "an unexpected loop"),
        ({"MATMUL": "(m,n),(n,p)->(m,p)"}, "not laid out as expected"),
        ({"TYPE_FLAGS_OFFSET": 176}, "does not lay out types as expected"),
    ],
)
def test_unknown_pythons_and_numpys_are_refused(broken, message, monkeypatch):
    """An unsupported Python or NumPy is refused before anything is patched."""
    for name, value in broken.items():
        owner, _, attribute = name.rpartition(".")
        monkeypatch.setattr(getattr(patches, owner) if owner else patches, attribute, value)
    with pytest.raises(RuntimeError, match=message):
        session._Patches()
    np.testing.assert_array_equal(A @ B, EXACT)


def test_a_function_of_another_make_is_refused():
    """A function that does not store its implementation as NumPy's do is refused."""
    with pytest.raises(RuntimeError, match="does not store its implementation"):
        patches.Implementation(len)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("path", ["ndarray.dot", "ndarray.__matmul__", "dot", "inner", "matmul"])
def test_functions_are_pickled_by_name(path, protocol, device):
    """SQUARE function is pickled by NumPy's name, so that it can be loaded without clgemm."""

    def named():
        found = np
        for part in path.split("."):
            found = getattr(found, part)
        return found

    with enabled(threshold=0):
        pickled = pickle.dumps(named(), protocol)
        assert pickle.loads(pickled) == named()
    assert pickle.loads(pickled) == named()
    assert b"clgemm" not in pickled


@pytest.mark.parametrize("name", ["dot", "__matmul__"])
def test_methods_keep_their_documentation(name, device):
    """Replaced methods have NumPy's name, docstring and signature."""

    def described():
        method = getattr(np.ndarray, name)
        try:
            signature = str(inspect.signature(method))
        except ValueError:
            signature = None
        return (
            *(method.__name__, method.__qualname__, method.__doc__, signature),
            getattr(method, "__text_signature__", None),
        )

    plain = described()
    with enabled(threshold=0):
        ours = described()
    if plain[3] is None:  # NumPy before 2.4
        plain, ours = ((*x[:3], x[4]) for x in (plain, ours))
    assert ours == plain


WRONG_COUNTS = [
    lambda: np.ndarray.__matmul__(),
    lambda: SQUARE.__matmul__(value=SQUARE),
    lambda: np.ndarray.__matmul__(SQUARE, SQUARE, SQUARE),
]


@pytest.mark.parametrize("call", WRONG_COUNTS)
def test_the_operators_method_by_wrong_arguments_is_a_type_error(call, device):
    """Its message is Python's: to have NumPy's would cost each product 0.1 us."""
    with enabled(threshold=0), pytest.raises(TypeError, match=r"^ndarray\.__matmul__\(\) "):
        call()


def test_other_ufuncs_are_as_they_were(device):
    """Only the call of np.matmul is patched, and ``np.ufunc.__call__`` looks the same."""
    with enabled(threshold=0):
        assert np.ufunc.__call__.__objclass__ is np.ufunc
        np.testing.assert_array_equal(np.add.__call__(SQUARE, OTHER), SQUARE + OTHER)
        np.testing.assert_array_equal(np.matmul.__call__(SQUARE, OTHER), SQUARE_EXACT)
    assert report().offloaded == 1
