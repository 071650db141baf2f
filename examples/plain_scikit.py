"""A scikit-learn program that knows nothing of clgemm or of OpenCL devices.

It factors the patches of a photograph into non-negative parts, and describes another photograph by
these parts. A patch has 16 x 16 pixels, and every third one in each direction is used. The command
decides where the matrix products run:

    python examples/plain_scikit.py [--parts N] [--iterations N]
    python -m clgemm.accel examples/plain_scikit.py [--parts N] [--iterations N]
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

SIDE, STEP = 16, 3


def patches(name: str) -> np.ndarray:
    """Return a photograph's patches as rows of values between 0 and 1."""
    image = load_sample_image(name).mean(axis=2).astype(np.float32) / 255
    windows = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE))[::STEP, ::STEP]
    return windows.reshape(-1, SIDE * SIDE).copy()


def main() -> None:
    """Fit the parts to one photograph, and describe the other one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=int, default=192)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--save", help="file for the result, for a comparison")
    args = parser.parse_args()

    x, other = patches("flower.jpg"), patches("china.jpg")
    print(f"{len(x)} patches of {SIDE} x {SIDE} pixels, {args.parts} parts, {x.dtype}", flush=True)
    model = NMF(
        args.parts, init="random", solver="mu", max_iter=args.iterations, tol=0, random_state=0
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of iterations is fixed
        model.fit(x)
        codes = model.transform(other)
    seconds = time.perf_counter() - start
    described = codes @ model.components_
    error = np.sqrt(np.mean((described - other) ** 2))
    print(f"the other photograph from these parts: rms error {error:.4f}")
    print(f"fitted in {seconds:.2f} s")
    if args.save:
        np.save(args.save, described)


if __name__ == "__main__":
    main()
