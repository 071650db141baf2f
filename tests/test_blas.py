"""Tests of sgemm against float64, over whole problems, on every device."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
import scipy.linalg.blas
from hypothesis import given
from hypothesis import strategies as st
from strategies import Problem, buffers, integers, problems, reals

import clgemm
from clgemm.testing import gemm_problems

RNG = np.random.default_rng(2014)


def check(problem: Problem, result: np.ndarray) -> None:
    """Check what holds for every call: the returned array, values, guards, unmodified operands."""
    problem.check(result, "strict")
    if problem.c is not None and problem.overwrite_c:
        assert result is problem.c.view
    elif result.size:
        assert result.flags.f_contiguous


@given(problem=problems(overlap=True, zero_strides=True))
def test_is_exact_on_small_integers(problem, device):
    """Sums of integers below 2**24 are exact in float32, in any order."""
    expected = problem.expected()
    result = clgemm.sgemm(*problem.arguments)
    np.testing.assert_array_equal(result, expected)
    check(problem, result)


@given(
    problem=problems(
        values=reals, scalars=st.floats(-8, 8, width=32), overlap=True, zero_strides=True
    )
)
def test_keeps_the_forward_error_bound(problem, device):
    """Every element is within gamma(k + 2) (|alpha| |A| |B| + |beta| |C|) of the exact result."""
    check(problem, clgemm.sgemm(*problem.arguments))


@given(problem=gemm_problems(overlap=True, zero_strides=True, special=True))
def test_special_values_go_where_ieee_sends_them_in_every_layout(problem, device):
    """NaN and infinities in views, transposes and overlaps spread as in IEEE arithmetic."""
    check(problem, clgemm.sgemm(*problem.arguments))


@pytest.mark.parametrize("storage", ["F", "C"])
@given(data=st.data())
def test_flat_mode_is_a_blas(data, storage, device):
    """Leading dimensions, offsets and guards: only the window of C changes."""
    problem = data.draw(gemm_problems(storage=storage, special=True))
    p = problem.blas
    result = clgemm.sgemm(
        p.alpha, p.a, p.b, p.beta, p.c, p.trans_a, p.trans_b, 1,
        m=p.m, n=p.n, k=p.k, lda=p.lda, ldb=p.ldb, ldc=p.ldc, order=storage,
    )  # fmt: skip
    assert result is p.c
    problem.check(problem.c.view, "strict")


@given(data=st.data(), m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(1, 70))
def test_nan_and_inf_go_where_ieee_sends_them(data, m, n, k, device):
    """NaN and Inf spread along their own row and column only, with and without padding."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    a, b, c = integers(rng, (m, k)), integers(rng, (k, n)), integers(rng, (m, n))
    for x in (a, b, c):
        for _ in range(data.draw(st.integers(0, 2))):
            special = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
            x[rng.integers(x.shape[0]), rng.integers(x.shape[1])] = special
    beta = data.draw(st.sampled_from([0.0, 1.0]))
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b + (c if beta else 0)
    for order in "CF":
        result = clgemm.sgemm(1.0, a, b, beta, np.array(c, order=order), overwrite_c=1)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("shape", [(3, 4, 5), (33, 65, 40), (70, 1, 9)])
def test_beta_zero_never_reads_c(shape, device):
    """NaN in C does not spread when beta is 0."""
    m, n, k = shape
    a, b = integers(RNG, (m, k)), integers(RNG, (k, n))
    c = np.full((m, n), np.nan, np.float32)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1), a @ b)
    np.testing.assert_array_equal(clgemm.sgemm(0.0, a, b, 0.0, c * np.nan, overwrite_c=1), 0)


@pytest.mark.parametrize("beta", [0.0, 1.0, -2.0])
@pytest.mark.parametrize("k", [0, 7])
def test_alpha_zero_scales_c_and_never_reads_a_and_b(beta, k, device):
    """If alpha or k is 0, C is scaled, and NaN in A and B does not spread."""
    c = integers(RNG, (9, 6))
    nan = np.full((9, k), np.nan, np.float32)
    result = clgemm.sgemm(0.0 if k else 1.0, nan, nan[:6], beta, c, trans_b=1)
    np.testing.assert_array_equal(result, beta * c)


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_takes_zero_dimensions(shape, device):
    """An empty product is empty, and a sum over no elements is zero."""
    m, n, k = shape
    result = clgemm.sgemm(1.0, np.ones((m, k)), np.ones((k, n)))
    assert result.shape == (m, n)
    assert not result.any()


@pytest.mark.parametrize("which", ["a", "b", "both"])
@pytest.mark.parametrize("n", [6, 70])
def test_result_may_overlap_operands(which, n, device):
    """The result may be written to A, to B, or to memory that overlaps them."""
    base = integers(RNG, (2 * n, 2 * n))
    a, b, c = base[:n, :n], base[n:, n:], base[n // 2 : n // 2 + n, n // 3 : n // 3 + n]
    if which == "a":
        b = integers(RNG, (n, n))
    if which == "b":
        a = integers(RNG, (n, n))
    expected = 2 * (a @ b) - c
    clgemm.sgemm(2.0, a, b, -1.0, c, overwrite_c=1)
    np.testing.assert_array_equal(c, expected)
    expected = c @ c
    np.testing.assert_array_equal(clgemm.sgemm(1.0, c, c, 0.0, c, overwrite_c=1), expected)


def test_interleaved_views_of_one_array(device):
    """Operands and result may be interleaved views of one array."""
    base = integers(RNG, (40, 60))
    before = base.copy()
    a, b, c = base[::2, 0::3], base[1::2, 1::3], base[::2, 2::3]
    expected = a @ b.T
    clgemm.sgemm(1.0, a, b, 0.0, c, trans_b=1, overwrite_c=1)
    np.testing.assert_array_equal(c, expected)
    before[::2, 2::3] = expected
    np.testing.assert_array_equal(base, before)


@given(
    data=st.data(),
    m=st.integers(0, 40),
    n=st.integers(0, 40),
    k=st.integers(0, 40),
    trans=st.tuples(st.booleans(), st.booleans()),
    order=st.sampled_from("CF"),
    overwrite=st.booleans(),
)
def test_flat_mode_updates_the_window_and_nothing_else(
    data, m, n, k, trans, order, overwrite, device
):
    """Flat mode updates the window and nothing else in BLAS storage of any stride."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))

    def stored(rows, columns):
        inner, outer = (rows, columns) if order == "F" else (columns, rows)
        leading = max(1, inner) + data.draw(st.integers(0, 3))
        length = leading * outer + data.draw(st.integers(0, 5))
        buffer = data.draw(buffers(integers(rng, (length,)), guard=777.0))
        i, j = np.arange(rows)[:, None], np.arange(columns)
        return buffer, leading, i + j * leading if order == "F" else i * leading + j

    a, lda, at_a = stored(*((k, m) if trans[0] else (m, k)))
    b, ldb, at_b = stored(*((n, k) if trans[1] else (k, n)))
    c, ldc, at_c = stored(m, n)
    op_a, op_b = a.view[at_a], b.view[at_b]
    after = c.view.copy()
    after[at_c] = 2 * (op_a.T if trans[0] else op_a) @ (op_b.T if trans[1] else op_b) - after[at_c]
    result = clgemm.sgemm(
        2.0, a.view, b.view, -1.0, c.view, *trans, overwrite,
        m=m, n=n, k=k, lda=lda, ldb=ldb, ldc=ldc, order=order,
    )  # fmt: skip
    np.testing.assert_array_equal(result, after)
    assert a.untouched()
    assert b.untouched()
    assert (result is c.view and c.untouched_outside(c.view)) if overwrite else c.untouched()


def test_flat_mode_takes_two_dimensional_storage_and_defaults(device):
    """Flat mode takes two-dimensional storage, and leading dimensions and C have defaults."""
    a, b = integers(RNG, (5, 3)), integers(RNG, (3, 4))
    result = clgemm.sgemm(1.0, a, b, m=5, n=4, k=3, ldc=6, order="C")
    assert result.shape == (30,)
    np.testing.assert_array_equal(result.reshape(5, 6)[:, :4], a @ b)
    assert not result.reshape(5, 6)[:, 4:].any()
    # Column-major storage: the same memory is A', and C comes out as its transpose.
    result = clgemm.sgemm(1.0, b, a, m=4, n=5, k=3, lda=4, order="F")
    np.testing.assert_array_equal(result.reshape(5, 4), a @ b)
    c = np.ones((5, 6), np.float32)
    result = clgemm.sgemm(1.0, a, b, 1.0, c, m=5, n=4, k=3, ldc=6, order="C")
    assert result.shape == c.shape
    np.testing.assert_array_equal(result[:, :4], a @ b + 1)
    np.testing.assert_array_equal(result[:, 4:], 1)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float16, np.float64, ">f4", object])
def test_converts_other_dtypes(dtype, device):
    """Operands of other dtypes are converted to float32, as in SciPy."""
    a = RNG.integers(0, 2, (5, 7)).astype(dtype)
    result = clgemm.sgemm(1.0, a, a, trans_b=1)
    np.testing.assert_array_equal(result, a.astype(np.float32) @ a.astype(np.float32).T)


def test_agrees_with_scipy(device):
    """The same calls, positional and by keyword, give SciPy's results and memory order."""
    a, b, c = integers(RNG, (6, 4)), integers(RNG, (4, 5)), integers(RNG, (6, 5))
    calls = [
        ((1.0, a, b), {}),
        ((2.0, a, b, -1.0, c), {}),
        ((2.0, a, b.T), {"trans_b": 1}),
        ((2.0, a, a, 0.0, None, 1), {}),
        ((1.0, a[:, 0], b[0]), {"trans_b": 1}),
        ((1.0, 3.0, [[2.0]]), {}),
    ]
    for arguments, keywords in calls:
        ours = clgemm.sgemm(*arguments, **keywords)
        theirs = scipy.linalg.blas.sgemm(*arguments, **keywords)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.flags.f_contiguous == theirs.flags.f_contiguous
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    overwritten = np.asfortranarray(c)
    assert clgemm.sgemm(1.0, a, b, 1.0, overwritten, overwrite_c=1) is overwritten


def test_ssyrk_agrees_with_scipy(device):
    """The same calls give SciPy's results, other triangles and memory order."""
    a, c = integers(RNG, (6, 4)), integers(RNG, (6, 6))
    calls = [
        ((1.0, a), {}),
        ((2.0, a, -1.0, c), {}),
        ((2.0, a, 0.0, c, 0, 1), {}),
        ((1.0, a.T, 1.0, c, 1, 1), {}),
        ((1.0, a.T), {"trans": 2, "lower": 1}),
        ((1.0, a, 1.0), {}),
        ((1.0, a[:, 0]), {}),
        ((1.0, a[:, 0], 0.5, [[3]]), {"trans": 1}),
    ]
    for arguments, keywords in calls:
        ours = clgemm.ssyrk(*arguments, **keywords)
        theirs = scipy.linalg.blas.ssyrk(*arguments, **keywords)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.flags.f_contiguous == theirs.flags.f_contiguous
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    overwritten = np.asfortranarray(c)
    assert clgemm.ssyrk(1.0, a, 1.0, overwritten, overwrite_c=1) is overwritten
    assert clgemm.ssyrk(1.0, a, order="C").flags.c_contiguous
    assert clgemm.ssyrk(1.0, a[:0]).shape == (0, 0)


def test_c_that_cannot_be_overwritten_is_copied(device):
    """A C of another dtype, read-only or overlapping itself is copied, not overwritten."""
    a, b = integers(RNG, (6, 4)), integers(RNG, (4, 5))
    readonly = np.ones((6, 5), np.float32)
    readonly.flags.writeable = False
    ones = np.ones(10, np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(ones, 5, writeable=True)
    repeated = np.broadcast_to(np.float32(1), (6, 5))
    for c in (np.ones((6, 5)), readonly, repeated, windows, [[1] * 5] * 6):
        result = clgemm.sgemm(1.0, a, b, 1.0, c, overwrite_c=1)
        assert result is not c
        np.testing.assert_array_equal(result, a @ b + 1)
        np.testing.assert_array_equal(c, 1)


def test_unusual_arrays(device, tmp_path):
    """Pickled, Fortran-ordered, read-only, memory-mapped, unaligned and subclassed arrays work."""
    a = integers(RNG, (40, 50))
    mapped = np.memmap(tmp_path / "a", np.float32, "w+", shape=a.shape)
    mapped[...] = a
    readonly = a.copy()
    readonly.flags.writeable = False
    unaligned = np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(a.shape)
    odd = np.zeros((40, 50), [("x", "u1"), ("value", "f4")])["value"]
    odd[...] = a

    class Subclass(np.ndarray):
        pass

    kinds = {
        "pickled": pickle.loads(pickle.dumps(a)),
        "Fortran": np.asfortranarray(a),
        "read-only": readonly,
        "mapped": np.memmap(tmp_path / "a", np.float32, "r", shape=a.shape),
        "unaligned": unaligned,
        "strides no multiple of four": odd,
        "subclass": a.view(Subclass),
        "big-endian": a.astype(">f4"),
    }
    expected = a @ a.T
    for name, x in kinds.items():
        np.testing.assert_array_equal(clgemm.sgemm(1.0, x, x, trans_b=1), expected, name)
    c = np.memmap(tmp_path / "c", np.float32, "w+", shape=(40, 40))
    assert clgemm.sgemm(1.0, a, a, 0.0, c, trans_b=1, overwrite_c=1) is c
    np.testing.assert_array_equal(np.fromfile(tmp_path / "c", np.float32).reshape(40, 40), expected)


def test_sixteen_threads_at_once(device):
    """Sixteen threads that call sgemm at once get right results."""
    problems = [
        (integers(rng, (n, n + 3)), integers(rng, (n + 3, n + 1)))
        for n in range(20, 100, 5)
        for rng in [np.random.default_rng(n)]
    ]

    def work(index: int) -> bool:
        a, b = problems[index]
        for _ in range(4):
            c = np.full((a.shape[0], b.shape[1]), np.nan, np.float32)
            clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1)
            if not np.array_equal(c, a @ b):
                return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def test_threads_may_fill_tiles_of_one_matrix(device):
    """Threads may write neighbouring windows of one matrix at the same time."""
    c = np.zeros((64, 96), np.float32)
    a, b = integers(RNG, (64, 30)), integers(RNG, (30, 96))
    windows = [(i, j) for i in range(4) for j in range(6)]

    def work(window: tuple[int, int]) -> None:
        rows, columns = (slice(16 * w, 16 * w + 16) for w in window)
        clgemm.sgemm(1.0, a[rows], b[:, columns], 0.0, c[rows, columns], overwrite_c=1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, windows))
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("k", [10**6, 10**7])
@pytest.mark.parametrize(("m", "n"), [(6, 6), (1, 1), (3, 40), (30, 30), (60, 2)])
def test_the_error_of_long_sums_grows_like_that_of_a_blas(device, m, n, k):
    """Of numbers of one sign, whose partial sums are large; in float64 for comparison."""
    if (m + n) * k > (2**24 if "Oclgrind" in device.name or "llvmpipe" in device.name else 2**26):
        pytest.skip("this takes much memory or time")
    rng = np.random.default_rng(m * n)
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    some = slice(0, 64)
    exact = a[some].astype(np.float64) @ b
    allowed = 4 * max(abs((a[some] @ b) / exact - 1).max(), 3e-7)
    for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        found = clgemm.sgemm(1.0, x, y)
        assert abs(found[some] / exact - 1).max() <= allowed


def test_scalars_are_rounded_to_float32(device):
    """alpha and beta are rounded to float32, as in BLAS."""
    a = np.full((2, 2), np.nan, np.float32)
    np.testing.assert_array_equal(clgemm.sgemm(1e-60, a, a), 0)  # zero in float32
    assert np.isposinf(clgemm.sgemm(1e300, np.eye(2), np.eye(2))[0, 0])
    assert clgemm.sgemm(np.float64(0.1), [[1.0]], [[1.0]])[0, 0] == np.float32(0.1)


ONE = np.ones((3, 4), np.float32)
FLAT = {"m": 3, "n": 3, "k": 4}


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "words"),
    [
        ((1, ONE, ONE), {}, ValueError, "op\\(a\\) is 3x4 but op\\(b\\) is 3x4.* 4 and 3 differ"),
        ((1, ONE, ONE), {"trans_a": 1, "trans_b": 1}, ValueError, "4x3 .* 4x3.* 3 and 4 differ"),
        ((1, ONE, ONE.T, 1, ONE), {}, ValueError, "c is 3x4 but op\\(a\\) op\\(b\\) is 3x3"),
        ((1, ONE, ONE.T), {"m": 5}, ValueError, "m=5 but op\\(a\\) is 3x4"),
        ((1, ONE[None], ONE), {}, ValueError, "a has shape \\(1, 3, 4\\): .* not 3"),
        ((1, ONE, ONE), {"trans_b": 3}, ValueError, "trans_b=3 is not one of 0, 1 and 2"),
        ((1, ONE, ONE), {"trans_a": "T"}, ValueError, "trans_a='T' is not one of"),
        ((1, ONE, ONE.T), {"order": "A"}, ValueError, "order='A' is neither 'F' nor 'C'"),
        ((1, ONE, ONE.T), {"precision": "double"}, ValueError, "precision='double' is not one of"),
        ((1, ONE, ONE), {"lda": 3}, ValueError, "m=None: .* m, n and k must be given"),
        ((1, ONE, ONE), {"lda": 3, "m": 3, "n": -1, "k": 4}, ValueError, "n=-1"),
        ((1, ONE, ONE), {"lda": 2} | FLAT, ValueError, "lda=2 is less than the 3 rows of a"),
        ((1, ONE, ONE), {"lda": 2, "order": "C"} | FLAT, ValueError, "lda=2 .* 4 columns of a"),
        ((1, ONE, ONE), {"ldc": 2} | FLAT, ValueError, "ldc=2 is less than the 3 rows of c"),
        ((1, ONE, ONE), {"ldb": 5} | FLAT, ValueError, "b has 12 elements, but 4 x 3 .* needs 14"),
        ((1, ONE, ONE), {"ldb": 4, "order": "C"} | FLAT, ValueError, "b has 12 .* needs 15"),
        ((1, ONE, ONE, 0, ONE), {"ldc": 5} | FLAT, ValueError, "c has 12 elements.* needs 13"),
        ((1, ONE[:, ::2], ONE), {"lda": 3} | FLAT, ValueError, "a must be BLAS storage: contig"),
        ((1, ONE, ONE), {"lda": 2.5} | FLAT, TypeError, "lda=2.5 is not a whole number"),
        ((1, [["x"]], ONE), {}, TypeError, "a has dtype <U1"),
        ((1, ONE, np.array(["2020"], "M8[D]")), {}, TypeError, "b has dtype datetime64"),
        ((1, ONE, [[object()]]), {}, TypeError, "b of dtype object is not numeric"),
        ((1, None, ONE), {}, TypeError, "a is None"),
        (("x", ONE, ONE.T), {}, TypeError, "alpha='x' is not a real number"),
        (("2", ONE, ONE.T), {}, TypeError, "alpha='2' is not a real number"),
        ((None, ONE, ONE.T), {}, TypeError, "alpha=None is not a real number"),
        ((1, ONE, ONE.T, 1j), {}, TypeError, "beta=1j is not a real number"),
        ((1, ONE, ONE.T), {"queue": 5}, TypeError, "queue=5 is not a pyopencl.CommandQueue"),
        ((1, ONE, ONE.T), {"wait_for": 5}, TypeError, "wait_for=5 is not a sequence"),
        ((1, ONE, ONE.T), {"wait_for": [5]}, TypeError, "wait_for=\\[5\\] is not a sequence"),
    ],
)  # fmt: skip
def test_errors_name_both_values(arguments, keywords, error, words, device):
    """The error for wrong input names the argument and its value."""
    with pytest.raises(error, match=words):
        clgemm.sgemm(*arguments, **keywords)


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "words"),
    [
        ((1, ONE, 1, ONE), {}, ValueError, "c has shape \\(3, 4\\) but op\\(a\\) is 3x4"),
        ((1, ONE), {"trans": 3}, ValueError, "trans=3 is not one of 0, 1 and 2"),
        ((1, ONE), {"lower": 2}, ValueError, "lower=2 is neither 0 nor 1"),
        ((1, ONE), {"order": "A"}, ValueError, "order='A' is neither 'F' nor 'C'"),
        ((1, ONE), {"precision": "double"}, ValueError, "precision='double' is not one of"),
        ((1, None), {}, TypeError, "a is None"),
        ((1, ONE, 1j), {}, TypeError, "beta=1j is not a real number"),
        ((1, ONE), {"queue": 5}, TypeError, "queue=5 is not a pyopencl.CommandQueue"),
    ],
)  # fmt: skip
def test_errors_of_ssyrk_name_the_value(arguments, keywords, error, words, device):
    """As those of sgemm."""
    with pytest.raises(error, match=words):
        clgemm.ssyrk(*arguments, **keywords)


def test_an_error_leaves_c_alone(device):
    """A call that is refused writes nothing to C."""
    c = integers(RNG, (3, 3))
    before = c.copy()
    with pytest.raises(ValueError, match="differ"):
        clgemm.sgemm(1.0, ONE, ONE, 0.0, c, overwrite_c=1)
    np.testing.assert_array_equal(c, before)


def test_complex_operands_lose_their_imaginary_part_with_numpys_warning(device):
    """Complex operands lose their imaginary part with NumPy's warning, as in SciPy."""
    with pytest.warns(np.exceptions.ComplexWarning):
        result = clgemm.sgemm(1.0, np.full((2, 2), 1 + 1j), np.eye(2))
    np.testing.assert_array_equal(result, 1)


@given(problem=problems(largest=70))
def test_device_operands(problem, device):
    """pyopencl arrays of any layout give a pyopencl array and are not modified."""
    queue = device.queue

    def on_device(buffer):
        base = cl.array.to_device(queue, buffer.base)
        first = buffer.view.__array_interface__["data"][0]
        offset = first - buffer.base.__array_interface__["data"][0]
        view = buffer.view
        return base, cl.array.Array(
            queue, view.shape, np.float32, strides=view.strides, data=base.base_data, offset=offset
        )

    expected = problem.expected()
    base_a, a = on_device(problem.a)
    base_b, b = on_device(problem.b)
    base_c, c = on_device(problem.c) if problem.c else (None, None)
    result = clgemm.sgemm(problem.alpha, a, b, problem.beta, c, *problem.arguments[5:])
    assert isinstance(result, cl.array.Array)
    if problem.c and problem.overwrite_c:
        assert result is c
        problem.c.base[...] = base_c.get()
        assert problem.c.untouched_outside(problem.c.view)
        got = problem.c.view
    else:
        got = result.get() if result.size else np.empty(result.shape, np.float32)
        if base_c is not None:
            np.testing.assert_array_equal(base_c.get(), problem.c.before)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(base_a.get(), problem.a.before)
    np.testing.assert_array_equal(base_b.get(), problem.b.before)


def test_device_operands_in_flat_mode(device):
    """Flat mode works with storage on the device as with storage on the host."""
    a, b = integers(RNG, (5, 3)), integers(RNG, (3, 4))
    on_device = [cl.array.to_device(device.queue, x) for x in (a, b)]
    result = clgemm.sgemm(1.0, *on_device, m=5, n=4, k=3, ldc=6, order="C")
    np.testing.assert_array_equal(result.get().reshape(5, 6)[:, :4], a @ b)


@pytest.mark.parametrize("out_of_order", [False, True])
def test_device_calls_chain_on_any_queue(out_of_order, device):
    """Ten dependent products without waits are right on in-order and out-of-order queues."""
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE if out_of_order else 0
    queue = cl.CommandQueue(device.context, device.cl_device, properties)
    a = np.roll(np.eye(64, dtype=np.float32), 1, axis=0)
    x = cl.array.to_device(queue, a)
    step = x
    for _ in range(9):
        step = clgemm.sgemm(1.0, step, x)
    np.testing.assert_array_equal(step.get(queue), np.linalg.matrix_power(a, 10))


@pytest.mark.parametrize("out_of_order", [False, True])
def test_device_calls_wait_for_events(out_of_order, device):
    """A product waits for the events of its operands, and its own event comes after them."""
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE if out_of_order else 0
    queue = cl.CommandQueue(device.context, device.cl_device, properties)
    other = cl.CommandQueue(device.context, device.cl_device)
    host = integers(RNG, (70, 70))
    a = cl.array.to_device(queue, np.zeros_like(host))
    queue.finish()
    gate = cl.UserEvent(device.context)
    filled = cl.enqueue_copy(other, a.base_data, host, is_blocking=False, wait_for=[gate])
    other.flush()
    c = clgemm.sgemm(1.0, a, a, wait_for=[filled])
    d = clgemm.matmul(c, c)  # the events of c are enough
    queue.flush()
    gate.set_status(cl.command_execution_status.COMPLETE)
    np.testing.assert_array_equal(d.get(queue), (host @ host) @ (host @ host))
    assert filled.command_execution_status == cl.command_execution_status.COMPLETE


def test_events_do_not_pile_up(device):
    """A result that is written again and again keeps only its last event."""
    a = cl.array.to_device(device.queue, np.eye(20, dtype=np.float32))
    c = cl.array.zeros_like(a)
    for _ in range(20):
        clgemm.matmul(a, a, out=c)
    assert len(c.events) == 1
    np.testing.assert_array_equal(c.get(), np.eye(20))


def test_threads_with_queues_of_their_own(device):
    """Eight threads on four queues may share operands on the device."""
    flags = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queues = [cl.CommandQueue(device.context, device.cl_device, (i % 2) * flags) for i in range(4)]
    host = [integers(RNG, (n, n)) for n in (33, 64, 150)]
    shared = [cl.array.to_device(device.queue, x) for x in host]
    device.queue.finish()

    def work(index: int) -> bool:
        queue = queues[index % 4]
        for _ in range(3):
            for x, expected in zip(shared, (x @ x for x in host), strict=True):
                c = clgemm.sgemm(1.0, x, x, queue=queue)
                if not np.array_equal(c.get(queue), expected):
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_mixed_operands_are_refused(device):
    """The error for a host and a device operand says which operand is which."""
    on_device = cl.array.to_device(device.queue, ONE)
    with pytest.raises(TypeError, match="mixed: a is a device array, b is a host array"):
        clgemm.sgemm(1.0, on_device, ONE)
    with pytest.raises(TypeError, match="c is a host array"):
        clgemm.sgemm(1.0, on_device, on_device, 1.0, ONE, trans_b=1)
    whole = cl.array.zeros(device.queue, (3, 4), np.int32)
    with pytest.raises(TypeError, match="int32: only float32"):
        clgemm.sgemm(1.0, whole, on_device)


def test_operands_of_two_contexts_are_refused(device):
    """Device operands of two contexts are refused."""
    context = cl.Context([device.cl_device])
    other = cl.CommandQueue(context)
    a, b = cl.array.to_device(device.queue, ONE), cl.array.to_device(other, ONE)
    with pytest.raises(ValueError, match="share a context"):
        clgemm.sgemm(1.0, a, b, trans_b=1)


def test_several_contexts_in_one_process(device):
    """One device may be used in several contexts of a process."""
    for _ in range(3):
        context = cl.Context([device.cl_device])
        queue = cl.CommandQueue(context)
        a = integers(RNG, (70, 70))
        x = cl.array.to_device(queue, a)
        np.testing.assert_array_equal(clgemm.sgemm(1.0, x, x).get(), a @ a)
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, a, queue=queue), a @ a)


DTYPES = ["f8", "c8", "c16", "i1", "u4", "i8", "f2"]
OTHERS = {"f8": "dgemm", "c8": "cgemm", "c16": "zgemm"}


def numbers(dtype, *shape):
    """Small whole numbers, complex ones with both parts."""
    values = RNG.integers(-3 if dtype[0] != "u" else 0, 4, shape)
    return (values + 1j * values[::-1] if dtype[0] == "c" else values).astype(dtype)


def require_dtype(device, dtype):
    if dtype in ("f8", "c16") and not device.cl_device.double_fp_config:
        pytest.skip("it has no float64")


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gemm_of_any_dtype_is_a_blas(dtype, on_device, device):
    """Transposes, conjugates, scalars and a C that is overwritten, as SciPy has them."""
    require_dtype(device, dtype)
    function = getattr(clgemm, OTHERS.get(dtype, "gemm"))
    a, b, c = numbers(dtype, 9, 7), numbers(dtype, 7, 5), numbers(dtype, 9, 5)
    alpha, beta = (3, 2) if dtype[0] != "c" else (1 + 2j, 2 - 1j)
    with np.errstate(over="ignore"):
        product = a @ b
        wanted = a.dtype.type(alpha) * product + a.dtype.type(beta) * c

    def put(x):
        return cl.array.to_device(device.queue, x) if on_device else x

    def get(x):
        return x.get() if on_device else x

    np.testing.assert_array_equal(get(function(1, put(a), put(b))), product)
    for trans in (1, 2):
        x, y = (z.T if trans == 1 else z.conj().T for z in (a, b))
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        found = function(1, put(x), put(y), trans_a=trans, trans_b=trans, order="C")
        np.testing.assert_array_equal(get(found), product)
    kept = put(c)
    if on_device and dtype == "f2":
        with pytest.raises(TypeError, match="not scaled"):
            function(alpha, put(a), put(b))
        return
    found = function(alpha, put(a), put(b), beta, kept, order="C")
    np.testing.assert_array_equal(get(found), wanted)
    np.testing.assert_array_equal(get(kept), c)
    assert function(alpha, put(a), put(b), beta, kept, overwrite_c=1) is kept
    np.testing.assert_array_equal(get(kept), wanted)
    assert function(1, put(a), put(b), c=kept, overwrite_c=1) is kept
    np.testing.assert_array_equal(get(kept), product)
    np.testing.assert_array_equal(get(function(0, put(a), put(b))), np.zeros_like(c))


def test_gemm_converts_and_promotes(device):
    """As NumPy promotes, or to the dtype that is asked for; float32 is sgemm."""
    a, b = numbers("i1", 4, 5), numbers("i1", 5, 3)
    found = clgemm.gemm(-1, a * 40, b * 40, dtype=np.int32)
    np.testing.assert_array_equal(found, -1600 * (a.astype(np.int32) @ b))
    assert found.dtype == np.int32
    assert found.flags.f_contiguous
    assert clgemm.gemm(1, a, b.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(
        clgemm.gemm(300, a, b), (300 * (a @ b).astype(int)).astype(np.int8)
    )


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        ((1.5, [[1]], [[1]]), {}, "alpha=1.5 is not a number of dtype int64"),
        ((1j, [[1.0]], [[1.0]]), {"dtype": "f8"}, "alpha=1j is not a number of dtype float64"),
        ((np.complex64(1j), [[1.0]], [[1.0]]), {"dtype": "f8"}, "1j.* is not a number of dtype f"),
        ((1, [["x"]], [["x"]]), {}, "needs numbers"),
        ((1, [[1]], [[1]]), {"dtype": "M8[s]"}, "devices do not multiply|not a number of dtype"),
    ],
)
def test_gemm_refuses_clearly(device, arguments, keywords, words):
    """A TypeError names what is not a number, or no device's."""
    with pytest.raises(TypeError, match=words):
        clgemm.gemm(*arguments, **keywords)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "c8", "i4"])
def test_gemm_adds_to_a_device_array_of_either_order(device, dtype, order):
    """Where no order is given; one row, too, whose strides tell nothing, and one of many rows."""
    require_dtype(device, dtype)
    for m in (6, 1):
        a, b, c = numbers(dtype, m, 7), numbers(dtype, 7, 5), numbers(dtype, m, 5)
        x, y = (cl.array.to_device(device.queue, each) for each in (a, b))
        kept = cl.array.to_device(device.queue, np.array(c, order=order))
        wanted = 3 * (a @ b) + 2 * c
        np.testing.assert_array_equal(clgemm.gemm(3, x, y, 2, kept).get(), wanted)
        assert clgemm.gemm(3, x, y, 2, kept, overwrite_c=1) is kept
        np.testing.assert_array_equal(kept.get(), wanted)
    row = cl.array.to_device(device.queue, numbers(dtype, 3, 5))[1:2]
    old = row.get()
    clgemm.gemm(3, x, y, 2, row, overwrite_c=1)
    np.testing.assert_array_equal(row.get(), 3 * (a @ b) + 2 * old)


def test_gemm_names_the_strides_that_it_refuses(device):
    """Those of C, whether it or the product is scaled."""
    x = cl.array.to_device(device.queue, numbers("i4", 4, 4))
    whole = cl.array.zeros(device.queue, (4, 8), np.int32)
    for alpha, beta in ((1, 1), (2, 0)):
        with pytest.raises(ValueError, match=r"c has strides \(32, 8\)"):
            clgemm.gemm(alpha, x, x, beta, whole[:, ::2], overwrite_c=1)


def test_gemm_conjugates_what_is_not_contiguous(device):
    whole, b = numbers("c8", 12, 9), numbers("c8", 4, 3)
    x, y = (cl.array.to_device(device.queue, each) for each in (whole, b))
    found = clgemm.cgemm(1, x[1::3, 2:], y, trans_a=2)
    np.testing.assert_array_equal(found.get(), whole[1::3, 2:].conj().T @ b)


def test_gemm_of_device_arrays_without_a_queue(device):
    """All of them, and `queue` is given."""
    a, c = numbers("i4", 5, 5), numbers("i4", 5, 5)
    x, z = (cl.array.to_device(device.queue, each).with_queue(None) for each in (a, c))
    found = clgemm.gemm(2, x, x, 3, z, queue=device.queue)
    np.testing.assert_array_equal(found.get(), 2 * (a @ a) + 3 * c)
    for alpha, beta in ((2, 3), (1, 0)):
        wanted = alpha * (a @ a) + beta * c
        assert clgemm.gemm(alpha, x, x, beta, z, overwrite_c=1, queue=device.queue) is z
        np.testing.assert_array_equal(z.with_queue(device.queue).get(), wanted)


@pytest.mark.parametrize("dtype", ["f8", "f2", "i4"])
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_gemm_of_empty_sums(device, dtype, on_device):
    """They are 0, whatever alpha is; a C is kept as beta has it."""
    require_dtype(device, dtype)
    a, b, c = (np.ones(shape, dtype) for shape in ((4, 0), (0, 3), (4, 3)))
    if on_device:
        a, b, c = (cl.array.to_device(device.queue, x) for x in (a, b, c))
    alpha = np.inf if dtype == "f8" else 5 if dtype == "i4" else 1
    for scalars, keywords, value in (((alpha,), {}, 0), ((1,), {"c": c, "overwrite_c": 1}, 0)):
        found = clgemm.gemm(*scalars, a, b, **keywords)
        np.testing.assert_array_equal(found.get() if on_device else found, np.full((4, 3), value))
    if dtype != "f2":
        c = clgemm.gemm(alpha, a, b, 2, clgemm.gemm(1, a, b))
        np.testing.assert_array_equal(c.get() if on_device else c, np.zeros((4, 3)))


def test_threads_scale_and_conjugate_on_the_device(device):
    """Each with its own numbers: pyopencl's kernels are shared by all threads."""
    a = numbers("c8", 40, 40)
    x = cl.array.to_device(device.queue, a)
    wrong = []

    def compute(scalar):
        y = x.with_queue(device.queue)
        y.events = list(x.events)
        wanted = scalar * (a.conj().T @ a) + 2 * a
        for _ in range(30):
            found = clgemm.gemm(scalar, y, y, 2, y, trans_a=2).get()
            if not np.array_equal(found, wanted):
                wrong.append(scalar)

    compute(1)  # builds
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(compute, range(2, 8)))
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_gemm_warns_of_no_scalar(device):
    """Infinities and NaN come out as from BLAS; pytest makes an error of each warning."""
    x = np.zeros((2, 2), np.complex64)
    assert np.isnan(clgemm.cgemm(1e300, x, x)).all()
    assert np.isnan(clgemm.gemm(1, x.real, x.real, np.inf, x.real, dtype="f2")).all()


@pytest.mark.parametrize("x", [None, [["1"]], np.zeros((1, 1), "M8[s]")])
def test_gemm_multiplies_numbers(device, x):
    """As sgemm: text is not read, and None is no NaN."""
    for function in (clgemm.sgemm, clgemm.dgemm):
        for a, b in ((x, [[1.0]]), ([[1.0]], x)):
            with pytest.raises(TypeError, match="needs numbers"):
                function(1, a, b)
