"""einsum and NumPy's other contractions against NumPy's own."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clgemm
from clgemm import contraction

RNG = np.random.default_rng(3)
DTYPES = ["f4", "i1", "i4", "u8", "b1", "f2"]


@pytest.fixture
def every_contraction(every_size, monkeypatch):
    """Contractions of any size may go to the device."""
    monkeypatch.setattr(contraction, "LEAST_FLOATS", 0)


def numbers(shape, dtype):
    """Whole numbers whose sums are exact in every dtype."""
    return RNG.integers(0, 3, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "subscripts",
    [
        *("ij,jk->ik", "ij,jk", "ij,kj->ik", "ji,jk->ki", "bij,bjk->bik", "ijk,jkl->il"),
        *("ij,jk,kl->il", "ij,kj,kl,lm->im", "abij,bjk->aikb", "i,i->", "ij,j->i", "ij,ij->ij"),
        *("ij,jk->", "ii,ij->j", "ij->ji", " i j , j k -> k i ", "bij,bkj->ikb", "i,j->ij"),
    ],
)
def test_einsum_is_numpys(device, every_contraction, subscripts, dtype):
    """Contractions of one to four operands, views and sums of all kinds."""
    sizes = dict(zip("abijklm", (2, 3, 8, 9, 10, 4, 5), strict=True))
    terms = subscripts.replace(" ", "").partition("->")[0].split(",")
    operands = [numbers([sizes[x] for x in term], dtype) for term in terms]
    wanted, found = np.einsum(subscripts, *operands), clgemm.einsum(subscripts, *operands)
    np.testing.assert_array_equal(found, wanted)
    assert (type(found), found.dtype) == (type(wanted), wanted.dtype)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_contractions(device, every_contraction, data):
    """Indices in any order, in operands of any order in memory."""
    letters = "abcde"
    sizes = {x: data.draw(st.integers(1, 7)) for x in letters}
    dtype = data.draw(st.sampled_from(["f4", "i2"]))
    count = data.draw(st.integers(2, 3))
    terms = [
        "".join(data.draw(st.permutations(letters))[: data.draw(st.integers(1, 4))])
        for _ in range(count)
    ]
    used = sorted(set("".join(terms)))
    result = "".join(data.draw(st.permutations(used))[: data.draw(st.integers(0, len(used)))])
    operands = []
    for term in terms:
        x = numbers([sizes[i] for i in term], dtype)
        operands.append(np.asfortranarray(x) if data.draw(st.booleans()) else x)
    subscripts = ",".join(terms) + "->" + result
    np.testing.assert_array_equal(
        clgemm.einsum(subscripts, *operands), np.einsum(subscripts, *operands), err_msg=subscripts
    )


def test_einsum_uses_the_device(device, every_contraction, monkeypatch):
    """A pair is one product; of integers, NumPy's share is its own einsum."""
    made = []

    def recorded(request, on_host, deliver=None):
        made.append((request.sizes, request.dtypes))
        np.testing.assert_array_equal(on_host(), wanted)
        return deliver(request.compute())

    monkeypatch.setattr(contraction, "from_either", recorded)
    a, b = numbers((3, 20, 6, 7), "i4"), numbers((6, 7, 30), "i4")
    wanted = np.einsum("bijk,jkl->lib", a, b)
    np.testing.assert_array_equal(clgemm.einsum("bijk,jkl->lib", a, b), wanted)
    assert made == [((60, 30, 42, 1), ("i4", "i4", "i4"))]


def test_einsum_leaves_the_rest_to_numpy(device, every_contraction):
    """Ellipses, lists of indices, `out`, repeated axes, wrong subscripts and other arrays."""
    a, b = numbers((4, 5), "f4"), numbers((5, 6), "f4")
    np.testing.assert_array_equal(clgemm.einsum("...j,jk", a, b), a @ b)
    np.testing.assert_array_equal(clgemm.einsum(a, [0, 1], b, [1, 2]), a @ b)
    np.testing.assert_array_equal(clgemm.einsum("ij,jk", a.tolist(), b), a @ b)
    np.testing.assert_array_equal(
        clgemm.einsum("ij,jk", a[:, :1], b), np.einsum("ij,jk", a[:, :1], b)
    )
    out = np.zeros((4, 6), np.float32)
    assert clgemm.einsum("ij,jk", a, b, out=out) is out
    for wrong in ("ij,jk->iz", "ij", "ij,kl,m", "ij,ij"):
        with pytest.raises(ValueError, match=r".+"):
            clgemm.einsum(wrong, a, b)
    with pytest.raises(TypeError, match="host memory"):
        clgemm.einsum("ij,jk", cl_array.to_device(device.queue, a), b)


@pytest.mark.parametrize("dtype", ["f4", "i4", "c8"])
def test_products_with_vectors(device, dtype):
    """vecdot, matvec and vecmat of batches, in host memory and on the device."""
    a, v, w = numbers((3, 4, 5), dtype), numbers((3, 5), dtype), numbers((4,), dtype)
    if dtype == "c8":
        v, w = v * (1 + 2j), w * (1 - 1j)
    v, w = v.astype(dtype), w.astype(dtype)
    cases = [
        (clgemm.matvec, (a, v), (a @ v[..., None])[..., 0]),
        (clgemm.vecmat, (w, a), (w.conj() @ a)),
        (clgemm.vecdot, (v, v[0]), (v.conj() * v[0]).sum(-1).astype(dtype)),
    ]
    for function, operands, wanted in cases:
        np.testing.assert_array_equal(function(*operands), wanted)
        there = [cl_array.to_device(device.queue, np.ascontiguousarray(x)) for x in operands]
        np.testing.assert_array_equal(function(*there).get(), wanted)
    with pytest.raises(ValueError, match="scalar"):
        clgemm.matvec(a, np.float32(1))


@pytest.mark.parametrize("n", [-1, 0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_matrix_power_is_numpys(device, n, dtype):
    """Every power; negative ones are NumPy's."""
    a = np.array([[1, 1], [0, 1]], dtype)
    wanted = np.linalg.matrix_power(a, n)
    found = clgemm.matrix_power(a, n)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype
    stack = np.stack([a, a.T])
    np.testing.assert_array_equal(clgemm.matrix_power(stack, n), np.linalg.matrix_power(stack, n))
    with pytest.raises(np.linalg.LinAlgError):
        clgemm.matrix_power(np.ones((2, 3)), n)


def test_einsum_adds_up_in_the_dtype_of_the_result(device):
    """Two of several operands may have a narrower one, which their sums overflow."""
    a, b, c = np.full((3, 4), 100, np.int8), np.full((4, 5), 100, np.int8), np.ones((5, 2), int)
    yes = np.ones((4, 5), np.bool_)
    for operands in ((a, b, c), (yes.T, yes, c)):
        np.testing.assert_array_equal(
            clgemm.einsum("ij,jk,kl->il", *operands), np.einsum("ij,jk,kl->il", *operands)
        )


@pytest.mark.parametrize("optimize", [[], 3, ["einsum_path", (0, 5)]])
def test_einsum_refuses_a_wrong_order_as_numpy_does(device, optimize):
    """Of two operands as of three."""
    a, b = numbers((4, 5), "f4"), numbers((5, 6), "f4")
    for subscripts, operands in (("ij,jk", (a, b)), ("ij,jk,lk", (a, b, b))):
        errors = []
        for function in (np.einsum, clgemm.einsum):
            with pytest.raises((TypeError, IndexError)) as raised:
                function(subscripts, *operands, optimize=optimize)
            errors.append(raised.type)
        assert errors[0] is errors[1]


def test_products_with_vectors_refuse_other_shapes(device):
    """A vector in place of a matrix is an error, as in NumPy, on either side."""
    v, m = numbers((3,), "i4"), numbers((3, 3), "i4")
    for put in (np.asarray, lambda x: cl_array.to_device(device.queue, x)):
        with pytest.raises(ValueError, match=r"matrix is expected, not an array of shape \(3,\)"):
            clgemm.matvec(put(v), put(m))
        with pytest.raises(ValueError, match=r"matrix is expected, not an array of shape \(3,\)"):
            clgemm.vecmat(put(m), put(v))


def test_products_of_subclasses_with_vectors(device):
    """A matrix has always two axes: it is an ordinary array there."""
    m = numbers((4, 3), "i4").view(np.matrix)
    for function in (clgemm.matvec, clgemm.vecdot):
        np.testing.assert_array_equal(function(m, m), function(np.asarray(m), np.asarray(m)))
    np.testing.assert_array_equal(clgemm.vecmat(m, m.T), m @ m.T)


@pytest.mark.parametrize("dtype", ["c8", "O"])
def test_vectors_are_conjugated_wherever_they_lie(device, dtype):
    """Objects, too, and vectors whose elements are no neighbours on the device."""
    whole = (numbers((4, 6), "i4") + 1j * numbers((4, 6), "i4")).astype(dtype)
    v, b = whole[1:, ::2], numbers((3, 3), dtype)
    wanted = v.conj()
    np.testing.assert_array_equal(clgemm.vecmat(v, b), wanted @ b)
    np.testing.assert_array_equal(clgemm.vecdot(v, v), (wanted * v).sum(-1))
    if dtype == "c8":
        there = cl_array.to_device(device.queue, whole)[1:, ::2]
        found = clgemm.vecmat(there, cl_array.to_device(device.queue, b)).get()
        np.testing.assert_array_equal(found, wanted @ b)
        np.testing.assert_array_equal(clgemm.vecdot(there, there).get(), (wanted * v).sum(-1))


def test_matrix_power_leaves_its_arguments_alone(device):
    """The power may be an array of one number; stacks of objects are NumPy's to refuse."""
    n = np.array(5)
    clgemm.matrix_power(np.eye(2), n)
    assert n == 5
    with pytest.raises(NotImplementedError):
        clgemm.matrix_power(np.ones((2, 2, 2), object), 3)
    with pytest.raises(TypeError, match="host memory"):
        clgemm.matrix_power(cl_array.zeros(device.queue, (2, 2), np.float32), 3)
