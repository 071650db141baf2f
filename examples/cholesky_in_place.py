"""A blocked Cholesky factorisation in place, with updates by `clgemm.sgemm` on views.

It fits a Gaussian process to photographs of handwritten digits. It factors their kernel matrix
block by block in its own memory, as LAPACK's spotrf does, and checks the factor. Then it recognises
the digits of the held-out photographs.

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
LENGTH_SCALE = 25.0  # the kernel's length scale, in units of the 64 pixels
NOISE = 1e-2  # the variance that is added to the kernel's diagonal


def cholesky(a: np.ndarray, block: int = BLOCK) -> None:
    """Overwrite the lower triangle of a symmetric positive definite matrix with its factor L.

    Right-looking: factor a diagonal block, solve for the panel below it, and subtract the panel's
    products from the rest of the matrix. Operands and results are views of `a`, without copies.
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
            # Update only the lower triangle: each block row up to its diagonal block.
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
    """Return the squared-exponential kernel of the rows of two matrices."""
    squares = (x**2).sum(1)[:, None] + (y**2).sum(1)
    return np.exp((2 * clgemm.matmul(x, y.T) - squares) / np.float32(2 * LENGTH_SCALE**2))


def main() -> None:
    """Factor the matrix, check the factor, fit, and classify."""
    try:
        device = clgemm.get_device()
    except RuntimeError as error:  # no device works
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
    print(f"the matrix above the diagonal blocks is unchanged: {untouched}")

    targets = np.eye(10, dtype=np.float32)[label] - np.float32(0.1)
    weights = scipy.linalg.cho_solve((lower, True), targets)
    guess = clgemm.matmul(kernel(x_new, x), weights).argmax(1)
    accuracy = (guess == label_new).mean()
    print(f"digits recognised: {accuracy:.1%} of {len(x_new)} held out")
    if not (residual < 1e-6 and untouched and accuracy > 0.97):
        raise SystemExit("the factorisation is wrong")


if __name__ == "__main__":
    main()
