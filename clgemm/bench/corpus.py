"""Whole programs in plain NumPy, as people write them with float32.

Run as a script, ``python corpus.py NAME``: it times itself after the import of NumPy and
prints a line of JSON, with a figure of the result. It imports nothing of this package.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

PROGRAMS: dict[str, Callable[[], float]] = {}


def program(function: Callable[[], float]) -> Callable[[], float]:
    """Register a program, which returns a figure of its result."""
    PROGRAMS[function.__name__] = function
    return function


def normal(rng: Any, *shape: int) -> Any:
    """Return normal float32 numbers."""
    return rng.standard_normal(shape, dtype=np.float32)


def softmax(x: Any) -> Any:
    """Return the softmax along the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x: Any) -> Any:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


@program
def mlp_training() -> float:
    """Train a network of three layers by momentum, on classes of noisy prototypes."""
    rng = np.random.default_rng(1)
    prototypes = normal(rng, 10, 784)
    labels = rng.integers(0, 10, 12800)
    images = prototypes[labels] + 2 * normal(rng, 12800, 784)
    sizes = (784, 512, 512, 10)
    weights = [normal(rng, m, n) / np.float32(m**0.5) for m, n in pairwise(sizes)]
    speeds = [np.zeros_like(w) for w in weights]
    loss = 0.0
    for step in range(150):
        rows = slice(step % 50 * 256, step % 50 * 256 + 256)
        x, y = images[rows], labels[rows]
        layers = [x]
        for w in weights[:-1]:
            layers.append(np.maximum(layers[-1] @ w, 0))
        p = softmax(layers[-1] @ weights[-1])
        loss = float(-np.log(p[np.arange(256), y] + 1e-9).mean())
        delta = p
        delta[np.arange(256), y] -= 1
        delta /= 256
        for i in reversed(range(3)):
            gradient = layers[i].T @ delta
            if i:
                delta = (delta @ weights[i].T) * (layers[i] > 0)
            speeds[i] = 0.9 * speeds[i] - 0.05 * gradient
            weights[i] = weights[i] + speeds[i]
    return loss


@program
def mlp_inference() -> float:
    """Evaluate a wide network on batches of 1024."""
    rng = np.random.default_rng(2)
    sizes = (512, 2048, 2048, 100)
    weights = [normal(rng, m, n) / np.float32(m**0.5) for m, n in pairwise(sizes)]
    hits = 0
    for _ in range(12):
        x = normal(rng, 1024, 512)
        for w in weights[:-1]:
            x = np.maximum(x @ w, 0)
        hits += int((x @ weights[-1]).argmax(1).sum())
    return float(hits)


@program
def convolution() -> float:
    """Filter images by convolutions as matrix products of their patches (im2col)."""
    rng = np.random.default_rng(3)
    kernels = normal(rng, 64, 32 * 9) / 17
    total = 0.0
    for _ in range(6):
        images = normal(rng, 8, 32, 66, 66)
        patches = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(2, 3))
        columns = patches.transpose(0, 2, 3, 1, 4, 5).reshape(-1, 32 * 9)
        out = np.maximum(columns @ kernels.T, 0)
        gradient = out.T @ columns
        total += float(np.abs(gradient).mean())
    return total


@program
def lstm() -> float:
    """Run an LSTM over sequences."""
    rng = np.random.default_rng(4)
    hidden, batch = 256, 64
    w, u = normal(rng, 128, 4 * hidden) / 12, normal(rng, hidden, 4 * hidden) / 16
    total = 0.0
    for _ in range(4):
        x = normal(rng, 100, batch, 128)
        h, c = np.zeros((batch, hidden), np.float32), np.zeros((batch, hidden), np.float32)
        for t in range(100):
            i, f, o, g = np.split(x[t] @ w + h @ u, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        total += float(np.abs(h).sum())
    return total


@program
def gru() -> float:
    """Run a GRU over sequences, the inputs of all steps at once."""
    rng = np.random.default_rng(5)
    hidden, batch, steps = 384, 96, 60
    w, u = normal(rng, 256, 3 * hidden) / 16, normal(rng, hidden, 3 * hidden) / 20
    total = 0.0
    for _ in range(3):
        x = (normal(rng, steps * batch, 256) @ w).reshape(steps, batch, -1)
        h = np.zeros((batch, hidden), np.float32)
        for t in range(steps):
            gates = h @ u
            z, r = (sigmoid(x[t, :, s] + gates[:, s]) for s in (np.s_[:384], np.s_[384:768]))
            n = np.tanh(x[t, :, 768:] + r * gates[:, 768:])
            h = (1 - z) * n + z * h
        total += float(np.abs(h).sum())
    return total


@program
def attention() -> float:
    """Run the layers of a transformer's encoder."""
    rng = np.random.default_rng(6)
    length, width, heads = 256, 512, 8
    qkv, out = normal(rng, width, 3 * width) / 23, normal(rng, width, width) / 23
    up, down = normal(rng, width, 4 * width) / 23, normal(rng, 4 * width, width) / 45
    x = normal(rng, 4, length, width)
    for _ in range(6):
        q, k, v = np.split(x @ qkv, 3, -1)
        q, k, v = (y.reshape(4, length, heads, -1).transpose(0, 2, 1, 3) for y in (q, k, v))
        mixed = softmax(q @ k.transpose(0, 1, 3, 2) / np.float32(8)) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(4, length, width) @ out
        x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        x = x + np.maximum(x @ up, 0) @ down
        x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    return float(np.abs(x).sum())


@program
def pca() -> float:
    """Find principal components by the covariance of tall data."""
    rng = np.random.default_rng(7)
    x = normal(rng, 20000, 30) @ normal(rng, 30, 400)
    x += 0.1 * normal(rng, *x.shape)
    x -= x.mean(0)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    scores = x @ vectors[:, -20:]
    return float(values[-20:].sum() + scores.std())


@program
def randomised_svd() -> float:
    """Approximate singular values by random projections and power iterations."""
    rng = np.random.default_rng(8)
    n = 3000
    x = normal(rng, n, 60) @ normal(rng, 60, n // 2) + normal(rng, n, n // 2)
    q = np.linalg.qr(x @ normal(rng, n // 2, 80))[0]
    for _ in range(4):
        q = np.linalg.qr(x.T @ q)[0]
        q = np.linalg.qr(x @ q)[0]
    return float(np.linalg.svd(q.T @ x, compute_uv=False)[:60].sum())


@program
def nmf() -> float:
    """Factorise a nonnegative matrix by multiplicative updates."""
    rng = np.random.default_rng(9)
    v = rng.random((1500, 1200), dtype=np.float32) + 0.1
    w, h = rng.random((1500, 40), dtype=np.float32), rng.random((40, 1200), dtype=np.float32)
    for _ in range(60):
        h *= (w.T @ v) / (w.T @ w @ h + 1e-9)
        w *= (v @ h.T) / (w @ (h @ h.T) + 1e-9)
    return float(np.linalg.norm(v - w @ h))


@program
def als() -> float:
    """Factorise ratings by alternating least squares."""
    rng = np.random.default_rng(10)
    ratings = rng.random((2000, 1500), dtype=np.float32)
    mask = ratings > 0.5
    ratings *= mask
    users, items = normal(rng, 2000, 32) / 6, normal(rng, 1500, 32) / 6
    ridge = 0.1 * np.eye(32, dtype=np.float32)
    for _ in range(5):
        users = np.linalg.solve(items.T @ items + ridge, items.T @ ratings.T).T
        items = np.linalg.solve(users.T @ users + ridge, users.T @ ratings).T
        loss = float((((users @ items.T - ratings) * mask) ** 2).mean())
    return loss


@program
def nearest_neighbours() -> float:
    """Find the nearest neighbours of queries by all distances, block by block."""
    rng = np.random.default_rng(11)
    points, queries = normal(rng, 20000, 128), normal(rng, 3000, 128)
    norms = (points**2).sum(1)
    total = 0
    for first in range(0, len(queries), 500):
        block = queries[first : first + 500]
        distances = norms - 2 * (block @ points.T)
        total += int(np.argpartition(distances, 10, 1)[:, :10].min(1).sum())
    return float(total)


@program
def k_means() -> float:
    """Cluster points by Lloyd's iterations."""
    rng = np.random.default_rng(12)
    points = normal(rng, 30000, 64) + 3 * normal(rng, 50, 64)[rng.integers(0, 50, 30000)]
    centres = points[:50].copy()
    for _ in range(12):
        labels = ((centres**2).sum(1) - 2 * points @ centres.T).argmin(1)
        chosen = np.zeros((50, 30000), np.float32)
        chosen[labels, np.arange(30000)] = 1
        centres = (chosen @ points) / np.maximum(chosen.sum(1, keepdims=True), 1)
    return float(np.abs(centres).sum())


@program
def kernel_ridge() -> float:
    """Fit a kernel ridge regression, and predict."""
    rng = np.random.default_rng(13)
    n = 2500
    x, test = normal(rng, n, 40), normal(rng, 1000, 40)
    y = np.sin(x.sum(1))

    def kernel(a: Any, b: Any) -> Any:
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * (a @ b.T)
        return np.exp(-squares / 80)

    k = kernel(x, x) + 0.1 * np.eye(n, dtype=np.float32)
    return float(np.abs(kernel(test, x) @ np.linalg.solve(k, y)).sum())


@program
def conjugate_gradients() -> float:
    """Solve a dense system by conjugate gradients, for 16 right-hand sides."""
    rng = np.random.default_rng(14)
    n = 2000
    root = normal(rng, n, n) / np.float32(n**0.5)
    a = root @ root.T + np.eye(n, dtype=np.float32)
    b = normal(rng, n, 16)
    x, r = np.zeros_like(b), b.copy()
    p, squares = r.copy(), (r**2).sum(0)
    for _ in range(80):
        ap = a @ p
        alpha = squares / (p * ap).sum(0)
        x += alpha * p
        r -= alpha * ap
        new = (r**2).sum(0)
        p = r + new / squares * p
        squares = new
        if float(new.max()) < 1e-8:
            break
    return float(np.abs(x).sum())


@program
def gaussian_process() -> float:
    """Predict means and variances by a Gaussian process."""
    rng = np.random.default_rng(15)
    n = 1800
    x, test = rng.random((n, 8), dtype=np.float32), rng.random((1200, 8), dtype=np.float32)
    y = np.sin(3 * x).sum(1)

    def kernel(a: Any, b: Any) -> Any:
        return np.exp(-2 * ((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T))

    root = np.linalg.inv(np.linalg.cholesky(kernel(x, x) + 0.1 * np.eye(n, dtype=np.float32)))
    cross = kernel(test, x)
    half = root @ cross.T
    mean, variance = half.T @ (root @ y), 1 - (half**2).sum(0)
    return float(mean.sum() + variance.sum())


@program
def newton_schulz() -> float:
    """Orthogonalise matrices by Newton and Schulz's iteration."""
    rng = np.random.default_rng(16)
    total = 0.0
    for _ in range(2):
        x = normal(rng, 1536, 1536)
        x /= np.linalg.norm(x) / 8
        for _ in range(8):
            y = x @ x.T
            x = 1.5 * x - 0.5 * (y @ x) if np.abs(y).max() < 3 else x / 2
        total += float(np.abs(x).mean())
    return total


@program
def kalman_filters() -> float:
    """Track many objects by Kalman filters, as batches of small products."""
    rng = np.random.default_rng(17)
    batch, n = 4000, 8
    f = np.eye(n, dtype=np.float32) + 0.1 * np.eye(n, k=4, dtype=np.float32)
    h = np.eye(4, n, dtype=np.float32)
    x = np.zeros((batch, n, 1), np.float32)
    p = np.tile(np.eye(n, dtype=np.float32), (batch, 1, 1))
    for _ in range(15):
        x, p = f @ x, f @ p @ f.T + 0.01 * np.eye(n, dtype=np.float32)
        s = h @ p @ h.T + np.eye(4, dtype=np.float32)
        gain = p @ h.T @ np.linalg.inv(s)
        x = x + gain @ (normal(rng, batch, 4, 1) - h @ x)
        p = p - gain @ h @ p
    return float(np.abs(x).mean() + np.abs(p).mean())


@program
def markov_chain() -> float:
    """Find distributions of a Markov chain by powers of its matrix."""
    rng = np.random.default_rng(18)
    n = 900
    p = rng.random((n, n), dtype=np.float32)
    p /= p.sum(1, keepdims=True)
    start = np.full(n, 1 / n, np.float32)
    return float(sum((start @ np.linalg.matrix_power(p, e)).max() for e in (5, 17, 64, 255)))


@program
def word_vectors() -> float:
    """Train word vectors by skip-grams with negative samples."""
    rng = np.random.default_rng(19)
    words, width = 8000, 128
    inner, outer = normal(rng, words, width) / 12, np.zeros((words, width), np.float32)
    for _ in range(120):
        centre, noise = rng.integers(0, words, 512), rng.integers(0, words, 256)
        context = (centre + rng.integers(1, 5, 512)) % words
        x, y, z = inner[centre], outer[context], outer[noise]
        good = sigmoid((x * y).sum(1)) - 1
        bad = sigmoid(x @ z.T)
        gradient = good[:, None] * y + bad @ z
        np.add.at(outer, context, -0.005 * good[:, None] * x)
        np.add.at(outer, noise, -0.005 * (bad.T @ x))
        np.add.at(inner, centre, -0.005 * gradient)
    return float(np.abs(outer).sum())


@program
def spectral_clustering() -> float:
    """Embed points by the leading eigenvectors of their affinities, by subspace iteration."""
    rng = np.random.default_rng(20)
    n = 2500
    x = normal(rng, n, 16) + 4 * normal(rng, 8, 16)[rng.integers(0, 8, n)]
    affinity = np.exp(-((x**2).sum(1)[:, None] + (x**2).sum(1) - 2 * x @ x.T) / 16)
    degrees = affinity.sum(1) ** -0.5
    a = degrees[:, None] * affinity * degrees
    q = np.linalg.qr(normal(rng, n, 12))[0]
    for _ in range(25):
        q = np.linalg.qr(a @ q)[0]
    return float(np.abs(np.linalg.eigvalsh(q.T @ a @ q)).sum())


@program
def image_filters() -> float:
    """Blur, sharpen and transform images by matrices along rows and columns."""
    rng = np.random.default_rng(21)
    rows, columns = 720, 1280

    def blur(n: int) -> Any:
        i = np.arange(n)
        weights = np.exp(-((i[:, None] - i) ** 2) / 50).astype(np.float32)
        return weights / weights.sum(1, keepdims=True)

    down, across = blur(rows), blur(columns)
    total = 0.0
    for _ in range(6):
        image = rng.random((3, rows, columns), dtype=np.float32)
        smooth = down @ image @ across.T
        sharp = image + 0.6 * (image - smooth)
        total += float(np.clip(sharp, 0, 1).mean())
    return total


@program
def discrete_cosines() -> float:
    """Compress images block by block with discrete cosines."""
    rng = np.random.default_rng(22)
    i = np.arange(8)
    basis = (np.cos(np.pi * (2 * i + 1) * i[:, None] / 16) / 2).astype(np.float32)
    basis[0] /= np.float32(2**0.5)
    total = 0.0
    for _ in range(8):
        image = rng.random((1024, 1024), dtype=np.float32)
        blocks = image.reshape(128, 8, 128, 8).swapaxes(1, 2)
        kept = np.round((basis @ blocks @ basis.T) * 10) / 10
        total += float(np.abs((basis.T @ kept @ basis) - blocks).mean())
    return total


@program
def tiny_products() -> float:
    """Rotate and project points by many tiny products, in loops."""
    rng = np.random.default_rng(23)
    points, rotation = normal(rng, 20, 3), np.linalg.qr(normal(rng, 3, 3))[0]
    state, transition = normal(rng, 12), normal(rng, 12, 12) / 4
    for _ in range(40000):
        points = points @ rotation
        state = np.tanh(transition @ state)
    return float(np.abs(points).sum() + np.abs(state).sum())


@program
def whitening() -> float:
    """Whiten data by the inverse root of their covariance."""
    rng = np.random.default_rng(24)
    x = normal(rng, 30000, 200) @ normal(rng, 200, 200)
    x -= x.mean(0)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    white = x @ (vectors * values**-0.5) @ vectors.T
    return float(np.abs(white.T @ white / len(x)).sum())


@program
def tensor_network() -> float:
    """Contract a chain of tensors."""
    rng = np.random.default_rng(25)
    bond = 48
    total = 0.0
    for _ in range(6):
        left = normal(rng, 4, bond, bond) / bond
        for _ in range(10):
            site = normal(rng, bond, 4, bond) / 10
            left = np.tensordot(left, site, (2, 0)).reshape(-1, bond, 4, bond)
            left = np.tensordot(left, normal(rng, 4, 4), (2, 0)).sum(3)[:4].transpose(0, 1, 2)
        total += float(np.abs(left).sum())
    return total


@program
def scikit_learn_mlp() -> float:
    """Train scikit-learn's network on float32 data."""
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(26)
    labels = rng.integers(0, 5, 4000)
    x = normal(rng, 5, 64)[labels] + 2 * normal(rng, 4000, 64)
    network = MLPClassifier((256, 256), max_iter=6, random_state=0)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.fit(x, labels)
    return float(network.score(x, labels))


@program
def scikit_learn_pca() -> float:
    """Reduce float32 data by scikit-learn's randomised PCA."""
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(27)
    x = normal(rng, 4000, 50) @ normal(rng, 50, 1000)
    x += normal(rng, *x.shape)
    found = PCA(50, svd_solver="randomized", random_state=0).fit(x)
    return float(found.explained_variance_.sum())


def main() -> None:
    """Run the program that the command line names."""
    begun = time.perf_counter()
    result = PROGRAMS[sys.argv[1]]()
    print(json.dumps({"seconds": time.perf_counter() - begun, "result": result}), flush=True)


if __name__ == "__main__":
    main()
