"""Single-precision matrix products on OpenCL devices, NumPy-compatible."""

from clgemm.blas import sgemm

__all__ = ["sgemm"]
