"""The shapes on which several families time and check their configs. Pure."""

from __future__ import annotations

from clgemm.core.shapes import Shape

__all__ = ["FEW_ROWS_SAMPLES", "GPU_PANEL_SAMPLES", "PANEL_SAMPLES", "tile_edges"]

# Small and large shapes of each class, since one record serves the whole class.
PANEL_SAMPLES = {
    "small": (Shape(96, 96, 96), Shape(224, 224, 224)),
    "medium": (Shape(512, 512, 512), Shape(1000, 1000, 1000)),
    "large": (Shape(2048, 2048, 2048),),
    "tall": (Shape(4096, 64, 1024), Shape(3000, 100, 3000), Shape(8192, 256, 256)),
    "wide": (Shape(64, 4096, 1024), Shape(100, 3000, 3000), Shape(256, 8192, 256)),
    "deep": (Shape(64, 64, 50_000), Shape(100, 100, 20_000), Shape(256, 256, 8192)),
    "batched": (Shape(64, 64, 64, 300), Shape(128, 128, 128, 100), Shape(224, 224, 224, 40)),
}
GPU_PANEL_SAMPLES = PANEL_SAMPLES | {
    "small": (Shape(128, 128, 128), Shape(224, 224, 224)),
    "large": (Shape(2048, 2048, 2048), Shape(4096, 4096, 4096)),
    "tall": (Shape(16384, 64, 1024), Shape(8192, 512, 1024)),
    "wide": (Shape(64, 16384, 1024), Shape(512, 8192, 1024)),
    "batched": (Shape(128, 128, 128, 200), Shape(224, 224, 224, 100)),
}
FEW_ROWS_SAMPLES = {
    "vector": (Shape(1, 4096, 4096), Shape(4096, 1, 4096)),
    "tall": (Shape(4096, 4, 4096), Shape(8192, 8, 1024)),
    "wide": (Shape(4, 4096, 4096), Shape(8, 8192, 1024)),
}


def tile_edges(m: int, n: int, k: int) -> list[Shape]:
    """Return sizes around a tile of m x n elements of C, k deep."""
    return [
        Shape(m + 1, 2 * n - 1, 3 * k + 1),
        Shape(2 * m - 1, n + 1, 2 * k - 1),
        Shape(2 * m, 2 * n, 4 * k),
        Shape(m - 1, n - 1, 1501),
        Shape(m + 3, n - 1, k + 5, 3),
    ]
