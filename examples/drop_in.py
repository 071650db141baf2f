"""An analysis of a photograph's patches, once with NumPy and once with clgemm in its place.

It cuts all 8 x 8 patches of a photograph, finds their principal components, and encodes each patch
sparsely in a dictionary of cosines. It prints both times and the largest difference, and draws the
components and the reconstructions.

    python examples/drop_in.py [--picture FILE]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

# Make all products on the device: by default dot() uses the host's BLAS where that is faster.
os.environ.setdefault("CLGEMM_THRESHOLD", "0")

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_sample_image

import clgemm

SIDE = 8  # pixels of a patch's side
ATOMS_ACROSS = 12  # cosines in each direction
COMPONENTS = 24
PENALTY = 0.03  # on the absolute value of each coefficient, for pixels between 0 and 1
ITERATIONS = 12
ROWS = 2**15  # patches that are encoded at a time


class Analysis(NamedTuple):
    """The results of an analysis."""

    components: np.ndarray
    projected: np.ndarray
    encoded: np.ndarray
    nonzero: float


def cut(image: np.ndarray) -> np.ndarray:
    """Return all patches of an image as rows."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE))
    return windows.reshape(-1, SIDE * SIDE).copy()


def average(patches: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the image of these overlapping patches, averaged at each pixel."""
    total, count = np.zeros(shape), np.zeros(shape)
    rows, columns = shape[0] - SIDE + 1, shape[1] - SIDE + 1
    stack = patches.reshape(rows, columns, SIDE, SIDE)
    for i in range(SIDE):
        for j in range(SIDE):
            total[i : i + rows, j : j + columns] += stack[:, :, i, j]
            count[i : i + rows, j : j + columns] += 1
    return total / count


def cosines() -> np.ndarray:
    """Return the dictionary: products of two cosines as rows, without the constant."""
    waves = np.cos(np.outer(np.arange(ATOMS_ACROSS), np.arange(SIDE)) * np.pi / ATOMS_ACROSS)
    waves[1:] -= waves[1:].mean(axis=1, keepdims=True)
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    return np.kron(waves, waves)[1:].astype(np.float32)


def analyse(xp: ModuleType, patches: np.ndarray) -> Analysis:
    """Find principal components and sparse codes; the module `xp` makes all matrix products."""
    # Remove each patch's mean brightness, which would dominate both analyses.
    means = patches.mean(axis=1, keepdims=True)
    details = patches - means

    covariance = xp.dot(details.T, details) / np.float32(len(details))
    _, vectors = np.linalg.eigh(covariance.astype(np.float64))
    components = vectors[:, ::-1].T.astype(np.float32)
    # The sign of a component is arbitrary: choose it by a fixed direction.
    components = components[:COMPONENTS]
    components *= np.sign(components @ np.random.default_rng(0).normal(size=SIDE**2))[:, None]
    scores = xp.dot(details, components.T)
    projected = xp.matmul(scores, components) + means

    # Iterative soft thresholding with momentum (Beck and Teboulle, 2009), one block at a time.
    dictionary = cosines()
    gram = xp.inner(dictionary, dictionary)
    step = np.float32(1 / np.linalg.eigvalsh(gram.astype(np.float64))[-1])
    encoded, nonzero = np.empty_like(patches), 0
    for first in range(0, len(patches), ROWS):
        block = slice(first, first + ROWS)
        wanted = xp.dot(details[block], dictionary.T)
        codes = ahead = np.zeros_like(wanted)
        for iteration in range(ITERATIONS):
            moved = ahead + step * (wanted - xp.dot(ahead, gram))
            before, codes = codes, moved - np.clip(moved, -step * PENALTY, step * PENALTY)
            ahead = codes + np.float32(iteration / (iteration + 3)) * (codes - before)
        encoded[block] = xp.dot(codes, dictionary) + means[block]
        nonzero += np.count_nonzero(codes)
    return Analysis(components, projected, encoded, nonzero / len(patches))


def draw(image: np.ndarray, analysis: Analysis, path: Path) -> None:
    """Draw the image, its two reconstructions and the components."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(13, 6.2), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[5, 3])
    pictures = {
        "photograph": image,
        f"{COMPONENTS} principal components": average(analysis.projected, image.shape),
        f"sparse code, {analysis.nonzero:.1f} of {ATOMS_ACROSS**2 - 1} atoms a patch": average(
            analysis.encoded, image.shape
        ),
    }
    for axes, (title, picture) in zip(above.subplots(1, 3), pictures.items(), strict=True):
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1)
        error = np.sqrt(np.mean((picture - image) ** 2))
        axes.set_title(title if picture is image else f"{title}\nrms error {error:.4f}")
        axes.axis("off")
    below.suptitle(f"The first {COMPONENTS} principal components of its {SIDE} x {SIDE} patches")
    for axes, component in zip(
        below.subplots(2, COMPONENTS // 2).flat, analysis.components, strict=True
    ):
        axes.imshow(component.reshape(SIDE, SIDE), cmap="RdBu")
        axes.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def timed(xp: ModuleType, patches: np.ndarray) -> tuple[Analysis, float]:
    """Return the analysis and its time in seconds."""
    start = time.perf_counter()
    analysis = analyse(xp, patches)
    return analysis, time.perf_counter() - start


def main() -> None:
    """Run both analyses, compare them, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).parent / "output" / "drop_in.png"
    parser.add_argument("--picture", type=Path, default=default, help="file for the picture")
    picture = parser.parse_args().picture

    try:
        device = clgemm.get_device()
    except RuntimeError as error:  # no device works
        sys.exit(f"{error}")

    image = load_sample_image("flower.jpg").mean(axis=2).astype(np.float32) / 255
    patches = cut(image)
    print(f"{len(patches)} patches of {SIDE} x {SIDE} pixels, float32")
    print(f"clgemm computes on {device.label}")

    _, cold = timed(clgemm, patches[:ROWS])  # compiles its kernels
    print(f"first use, with compilation: {cold:.2f} s for {ROWS} patches")
    time.sleep(1)
    ours, our_seconds = timed(clgemm, patches)
    time.sleep(1)
    theirs, their_seconds = timed(np, patches)
    print(f"clgemm: {our_seconds:.2f} s    NumPy: {their_seconds:.2f} s")

    for name in ("components", "projected", "encoded"):
        difference = abs(getattr(ours, name) - getattr(theirs, name)).max()
        print(f"largest difference of {name}: {difference:.1e}")
        if not difference < 1e-3:
            raise SystemExit(f"{name} disagree")
    draw(image, ours, picture)
    print(f"components and reconstructions: {picture}")


if __name__ == "__main__":
    main()
