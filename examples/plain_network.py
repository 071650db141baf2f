"""A small neural network in plain NumPy, which knows nothing of clgemm or of OpenCL devices.

It learns to read handwritten digits from photographs of 8 x 8 pixels. The network has two hidden
layers, and its features are the pixels and the products of all pairs of pixels. It is trained with
momentum on all photographs and on copies shifted by a pixel. The command decides where the matrix
products run:

    python examples/plain_network.py [--hidden N] [--epochs N]
    python -m clgemm.accel examples/plain_network.py [--hidden N] [--epochs N]

resident_network.py runs it with its features kept on the device.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

RATE, MOMENTUM = np.float32(0.02), np.float32(0.9)


def shifted(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the photographs and copies that are moved by one pixel in each of 8 directions."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    moved = [padded[:, i : i + 8, j : j + 8] for i in range(3) for j in range(3)]
    return np.concatenate(moved), np.tile(labels, 9)


def features(images: np.ndarray) -> np.ndarray:
    """Return the pixels and the products of all pairs of pixels, one row for each photograph."""
    pixels = images.reshape(len(images), -1).astype(np.float32) / 16
    i, j = np.triu_indices(pixels.shape[1])
    return np.concatenate([pixels, pixels[:, i] * pixels[:, j]], axis=1)


class Layer:
    """A layer x W + b with its gradients and momentum, in memory that is allocated once."""

    def __init__(self, inputs: int, outputs: int, rows: int, random: np.random.Generator) -> None:
        scale = np.float32((2 / inputs) ** 0.5)
        self.weights = random.standard_normal((inputs, outputs), np.float32) * scale
        self.bias = np.zeros(outputs, np.float32)
        self.gradient, self.speed = np.empty_like(self.weights), np.zeros_like(self.weights)
        self.output = np.empty((rows, outputs), np.float32)
        self.back = np.empty((rows, inputs), np.float32)

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return the outputs for a batch."""
        self.x = x
        np.matmul(x, self.weights, out=self.output)
        self.output += self.bias
        return self.output

    def backward(self, error: np.ndarray, first: bool) -> np.ndarray:
        """Step along the gradient, and return the errors of the inputs.

        In the first layer, which does not need them, they are not computed.
        """
        np.matmul(self.x.T, error, out=self.gradient)
        if not first:
            np.matmul(error, self.weights.T, out=self.back)
        self.speed *= MOMENTUM
        self.gradient *= RATE
        self.speed -= self.gradient
        self.weights += self.speed
        self.bias -= RATE * error.sum(axis=0)
        return self.back


def train(x: np.ndarray, labels: np.ndarray, hidden: int, epochs: int) -> list[Layer]:
    """Return the layers of a network, trained on the whole set in each step."""
    random = np.random.default_rng(0)
    sizes = [x.shape[1], hidden, hidden, 10]
    layers = [Layer(m, n, len(x), random) for m, n in pairwise(sizes)]
    wanted = np.eye(10, dtype=np.float32)[labels]
    for epoch in range(epochs):
        start = time.perf_counter()
        scores = forward(layers, x)
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -np.log(chances[np.arange(len(x)), labels] + 1e-9).mean()
        error = (chances - wanted) / np.float32(len(x))
        for i in reversed(range(len(layers))):
            active = layers[i].x > 0 if i else None
            error = layers[i].backward(error, first=i == 0)
            if active is not None:
                error *= active
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {loss:.4f}, {seconds:.2f} s", flush=True)
    return layers


def forward(layers: list[Layer], x: np.ndarray) -> np.ndarray:
    """Return the scores of a batch, with rectifiers between the layers."""
    for layer in layers[:-1]:
        x = layer.forward(x)
        np.maximum(x, 0, out=x)
    return layers[-1].forward(x)


def main(keep: Callable[[np.ndarray], AbstractContextManager] = nullcontext) -> None:
    """Train the network and test it on held-out photographs.

    Parameters
    ----------
    keep : callable
        Returns a context in which the features, which do not change, are used.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=1024, help="width of the hidden layers")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--save", help="file for the scores, for a comparison")
    args = parser.parse_args()

    digits = load_digits()
    images, held_out, labels, truth = train_test_split(
        digits.images, digits.target, random_state=0, test_size=1 / 4
    )
    images, labels = shifted(images, labels)
    x = features(images)
    print(f"{len(x)} photographs, {x.shape[1]} features, {args.hidden} wide, float32", flush=True)
    start = time.perf_counter()
    with keep(x):
        layers = train(x, labels, args.hidden, args.epochs)
    seconds = time.perf_counter() - start
    for layer in layers:
        layer.output = np.empty((len(held_out), len(layer.bias)), np.float32)
    scores = forward(layers, features(held_out))
    print(f"{(scores.argmax(axis=1) == truth).mean():.1%} of {len(truth)} held out are read right")
    print(f"trained in {seconds:.2f} s")
    if args.save:
        np.save(args.save, scores)


if __name__ == "__main__":
    main()
