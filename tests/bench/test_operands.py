"""Tests of the operands of a benchmark and of how its results are checked."""

from __future__ import annotations

import numpy as np
import pytest

from clgemm.bench import operands
from clgemm.bench.cases import DATA, LAYOUTS, Case


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_lie_as_their_layouts_say(layout):
    """Operands are the same each time and have the strides of their layouts."""
    case = Case("", 6, 8, 7, layout, layout, batch=3)
    (a, b), (again, _) = operands.operands(case), operands.operands(case)
    np.testing.assert_array_equal(a, again)
    assert (a.shape, b.shape) == ((3, 6, 7), (3, 7, 8))
    assert a.dtype == np.float32
    assert abs(a).max() <= 1
    strides = {
        "N": (28, 4),
        "T": (4, 24),
        "S": (2 * 4 * (7 + operands.COLUMNS_IN_FRONT), 4),
        "D": (112, 8),
    }
    assert a.strides[1:] == strides[layout]
    assert operands.reference(case).shape == (3, 6, 8)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_wrong_element_is_found(batch, monkeypatch):
    """judge accepts rounding errors and finds a wrong element, a NaN and a wrong shape."""
    monkeypatch.setattr(operands, "BLOCK", 50)  # several blocks, the last one short
    case = Case("", 17, 11, 40, batch=batch, shared_b=batch > 1)
    expected = operands.reference(case)
    c = np.matmul(*operands.operands(case))
    error, worst = operands.judge(case, c, expected)
    assert error == pytest.approx(np.linalg.norm(c - expected) / np.linalg.norm(expected))
    assert worst <= 1
    off = c.copy()
    off[..., -1, -1] += 0.01
    assert operands.judge(case, off, expected)[1] > 1
    off[..., 0, 0] = np.nan
    assert np.isnan(operands.judge(case, off, expected)[1])
    with pytest.raises(ValueError, match="shape"):
        operands.judge(case, c[..., 1:], expected)


@pytest.mark.parametrize("data", DATA)
def test_data_have_their_distribution(data):
    """Uniform data are within 1, normal data have deviation 1, wide data a wide range."""
    a, _ = operands.operands(Case("", 300, 5, 300, data=data))
    again, _ = operands.operands(Case("", 300, 5, 300, data=data))
    np.testing.assert_array_equal(a, again)
    assert (a.dtype, a.shape) == (np.float32, (300, 300))
    sizes = np.log(np.abs(a[a != 0]).astype(np.float64))
    if data == "uniform":
        assert abs(a).max() <= 1
    elif data == "normal":
        assert abs(a.std() - 1) < 0.05
    else:
        # The logarithm of a normal number's size has a variance of pi^2 / 8.
        assert abs(sizes.std() - np.hypot(4, np.pi / np.sqrt(8))) < 0.1
    with pytest.raises(ValueError, match="data='odd' is not one of"):
        Case("", 1, 1, 1, data="odd")


def test_each_mode_is_held_to_its_promise():
    """An error is judged by the mode's bound: "fast" by the largest element of each piece."""
    case = Case("", 1, 1, 128, "N", "T", data="wide")
    a, b = (np.abs(x.astype(np.float64)) for x in operands.operands(case))
    expected = operands.reference(case)

    def gamma(n: int) -> float:
        return n * 2.0**-24 / (1 - n * 2.0**-24)

    euclid = np.linalg.norm(a) * np.linalg.norm(b)
    pieces = [np.linalg.norm([x.flat[:64].max(), x.flat[64:].max()]) for x in (a, b)]
    bounds = {
        "strict": gamma(130) * euclid,
        "float32": gamma(192) * euclid,
        "fast": gamma(256) * 64 * pieces[0] * pieces[1],
    }
    assert bounds["strict"] < bounds["float32"] < bounds["fast"]
    for mode, bound in bounds.items():
        for factor in (0.9, 1.1):
            off = expected + factor * bound
            worst = operands.judge(case, off, expected, mode)[1]
            assert worst == pytest.approx(factor, rel=1e-6), mode
