"""A blocked Cholesky factorisation in place, its updates `clgemm.sgemm` on views of one matrix.

Fits a Gaussian process to photographs of handwritten digits: the kernel matrix of all of them is
factored in its own memory, block by block, as LAPACK's spotrf does, and the factor checked against
the matrix. Then the fit says which digits the held-out photographs show.

    python examples/cholesky_in_place.py
"""

from __future__ import annotations

import sys

import numpy as np
import scipy.linalg
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import clgemm

BLOCK = 256
LENGTH_SCALE = 25.0  # of the kernel, in the units of the 64 pixels
NOISE = 1e-2  # variance, on the kernel's diagonal


def cholesky(a: np.ndarray, block: int = BLOCK) -> None:
    """Overwrite the lower triangle of a symmetric positive definite matrix with its factor L.

    Right-looking: factor a diagonal block, solve for the panel below it, and subtract the panel's
    products from what is left. The products are views of `a`, read and written where they lie.
    """
    n = len(a)
    for first in range(0, n, block):
        last = min(first + block, n)
        a[first:last, first:last] = np.linalg.cholesky(a[first:last, first:last])
        panel = a[last:, first:last]
        panel[...] = scipy.linalg.solve_triangular(
            a[first:last, first:last], panel.T, lower=True, check_finite=False
        ).T
        for row in range(last, n, block):
            # Only the lower triangle: each block row up to its diagonal block.
            below = slice(row, min(row + block, n))
            clgemm.sgemm(
                -1.0,
                a[below, first:last],
                a[last : below.stop, first:last],
                beta=1.0,
                c=a[below, last : below.stop],
                trans_b=1,
                overwrite_c=1,
            )


def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squared-exponential kernel of the rows of two matrices."""
    squares = (x**2).sum(1)[:, None] + (y**2).sum(1)
    return np.exp((2 * clgemm.matmul(x, y.T) - squares) / np.float32(2 * LENGTH_SCALE**2))


def main() -> None:
    """Factor, check, fit, classify."""
    try:
        device = clgemm.get_device()
    except RuntimeError as error:  # there is none that works
        sys.exit(f"{error}")

    digits = load_digits()
    pixels = digits.data.astype(np.float32)
    x, x_new, label, label_new = train_test_split(pixels, digits.target, random_state=0)
    matrix = kernel(x, x) + np.float32(NOISE) * np.eye(len(x), dtype=np.float32)
    factor = matrix.copy()
    cholesky(factor)
    lower = np.tril(factor)

    print(f"{len(x)} photographs, {len(x)} x {len(x)} kernel matrix, on {device}")
    exact = lower.astype(np.float64)
    residual = np.linalg.norm(exact @ exact.T - matrix) / np.linalg.norm(matrix)
    print(f"|L L' - A| / |A| = {residual:.1e}")
    untouched = np.array_equal(np.triu(factor, BLOCK), np.triu(matrix, BLOCK))
    print(f"above the diagonal blocks the matrix is as it was: {untouched}")

    targets = np.eye(10, dtype=np.float32)[label] - np.float32(0.1)
    weights = scipy.linalg.cho_solve((lower, True), targets)
    guess = clgemm.matmul(kernel(x_new, x), weights).argmax(1)
    accuracy = (guess == label_new).mean()
    print(f"digits recognised: {accuracy:.1%} of {len(x_new)} held out")
    if not (residual < 1e-6 and untouched and accuracy > 0.97):
        raise SystemExit("the factorisation is wrong")


if __name__ == "__main__":
    main()
