"""The rungs' kernel files."""

from __future__ import annotations

from importlib import resources

from clgemm.ladder.rung import Rung

__all__ = ["cuda_header", "source"]

_FOLDER = resources.files("clgemm").joinpath("kernels", "ladder")


def source(rung: Rung) -> str:
    """Return the OpenCL C of a rung, including its supporting kernels."""
    files = [rung.file]
    if hasattr(rung, "transpose"):
        files.insert(0, "transpose.cl")
    return "\n".join(_FOLDER.joinpath(name).read_text(encoding="utf-8") for name in files)


def cuda_header() -> str:
    """Return the header that lets NVRTC compile the rungs' OpenCL C as CUDA C++."""
    return _FOLDER.joinpath("opencl_to_cuda.h").read_text(encoding="utf-8")
