"""Principal components of image patches that do not fit into memory, on two Dask workers.

Cuts every 16 x 16 patch of two photographs, turned and mirrored, into a Zarr store of several GB,
and finds the principal components of the patches by Dask's randomised SVD: once with NumPy
accelerated in every worker, once, in the same workers, with NumPy itself. Prints each worker's
report and the largest difference, and writes a picture of both sides' components.

    python examples/dask_pca.py [--gigabytes G] [--folder F] [--picture FILE]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import dask
import dask.array as da
import matplotlib as mpl
import numpy as np
import zarr
from dask.utils import format_bytes
from distributed import Client, LocalCluster, progress
from sklearn.datasets import load_sample_images

import clgemm.dask

SIDE = 16  # of a patch, in pixels of three colours
SIZE = 3 * SIDE**2
COMPONENTS = 32
OVERSAMPLED = 32  # more directions than wanted make the result more exact
ROWS = 16384  # patches in a chunk: 50 MB
WORKERS, MEMORY = 2, "2GB"
THRESHOLD = 10**8  # multiply-adds: every product of a chunk goes to the device


class Components(NamedTuple):
    """The result of one side."""

    deviations: np.ndarray  # standard deviation along each component
    vectors: np.ndarray
    seconds: float


def views() -> list[np.ndarray]:
    """Return the photographs of scikit-learn in eight positions each."""
    images = [image.astype(np.float32) / 255 for image in load_sample_images().images]
    turned = [np.rot90(image, quarter) for quarter in range(4) for image in images]
    return turned + [image[:, ::-1] for image in turned]


def make_store(path: Path, gigabytes: float) -> da.Array:
    """Write patches to a Zarr store, and return it as a Dask array."""
    wanted = int(gigabytes * 1e9 / (4 * SIZE)) // ROWS * ROWS
    store = zarr.create_array(
        store=str(path),
        shape=(wanted, SIZE),
        chunks=(ROWS, SIZE),
        dtype="float32",
        compressors=None,
    )
    done, held = 0, np.empty((ROWS, SIZE), np.float32)
    filled = 0
    for image in views():
        patches = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE), axis=(0, 1))
        for row in patches:
            cut = row.reshape(len(row), SIZE)
            while len(cut) and done < wanted:
                part, cut = cut[: ROWS - filled], cut[ROWS - filled :]
                held[filled : filled + len(part)] = part
                filled += len(part)
                if filled == ROWS:
                    # Brightness would hide everything else.
                    store[done : done + ROWS] = held - held.mean(axis=1, keepdims=True)
                    done, filled = done + ROWS, 0
    if done < wanted:
        raise SystemExit(f"the photographs have {done} patches, not {wanted}: fewer gigabytes")
    return da.from_zarr(str(path))


def analyse(patches: da.Array) -> Components:
    """Find the principal components, reading the store twice."""
    start = time.perf_counter()
    mean = patches.mean(axis=0)
    centred = patches - mean
    _, singular, vectors = da.linalg.svd_compressed(
        centred, COMPONENTS, n_oversamples=OVERSAMPLED, seed=0, coerce_signs=False
    )
    singular, vectors = dask.persist(singular, vectors)
    progress(singular, vectors, notebook=False)
    print()
    singular, vectors = dask.compute(singular, vectors)
    # A component's sign is chance: a fixed direction settles it.
    vectors *= np.sign(vectors @ np.random.default_rng(0).normal(size=SIZE))[:, None]
    seconds = time.perf_counter() - start
    return Components(singular / np.sqrt(len(patches)), vectors, seconds)


def draw(sides: dict[str, Components], path: Path) -> None:
    """Write both sides' components."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(13, 5), layout="constrained")
    for part, (title, found) in zip(
        figure.subfigures(2, 1, hspace=0.04), sides.items(), strict=True
    ):
        part.suptitle(f"{title}: the first {COMPONENTS} principal components")
        for axes, vector, deviation in zip(
            part.subplots(2, COMPONENTS // 2).flat, found.vectors, found.deviations, strict=True
        ):
            scaled = vector.reshape(3, SIDE, SIDE).transpose(1, 2, 0) / (2 * abs(vector).max())
            axes.imshow(0.5 + scaled)
            axes.set_title(f"{deviation:.2f}", fontsize=8)
            axes.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Make the store, run both sides, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).parent / "output" / "dask_pca.png"
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the store")
    parser.add_argument("--folder", type=Path, help="where the store is made; a temporary folder")
    parser.add_argument("--picture", type=Path, default=default, help="where to draw")
    arguments = parser.parse_args()

    with (
        tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            memory_limit=MEMORY,
            dashboard_address=":0",
            local_directory=folder,
        ) as cluster,
        Client(cluster) as client,
    ):
        start = time.perf_counter()
        patches = make_store(Path(folder) / "patches.zarr", arguments.gigabytes)
        print(
            f"{len(patches)} patches, {format_bytes(patches.nbytes)} in a Zarr store, made in "
            f"{time.perf_counter() - start:.0f} s; {WORKERS} workers of {MEMORY}"
        )
        client.register_plugin(clgemm.dask.Accelerate(threshold=THRESHOLD))
        ours = analyse(patches)
        print(clgemm.dask.report(client))
        client.unregister_worker_plugin("clgemm")
        theirs = analyse(patches)
    print(f"clgemm: {ours.seconds:.0f} s    NumPy: {theirs.seconds:.0f} s")
    difference = abs(ours.deviations / theirs.deviations - 1).max()
    print(f"largest relative difference of a standard deviation: {difference:.1e}")
    if not difference < 1e-3:
        raise SystemExit("the standard deviations disagree")
    # Components of nearly the same deviation may mix: what they span together is compared.
    cosines = np.linalg.svd(ours.vectors @ theirs.vectors.T, compute_uv=False)
    print(f"largest angle between both sides' subspaces: {np.arccos(min(1, cosines.min())):.1e}")
    draw({"clgemm": ours, "NumPy": theirs}, arguments.picture)
    print(f"components: {arguments.picture}")


if __name__ == "__main__":
    main()
