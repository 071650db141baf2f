"""The rungs' kernel files."""

from __future__ import annotations

from importlib import resources

from clgemm.ladder.rung import Rung

__all__ = ["cuda_header", "kernel_text", "source", "wgsl_names"]

_FOLDER = resources.files("clgemm").joinpath("kernels", "ladder")


def source(rung: Rung) -> str:
    """Return the OpenCL C of a rung, including its supporting kernels."""
    files = [rung.file]
    if hasattr(rung, "transpose"):
        files.insert(0, "transpose.cl")
    return "\n".join(map(kernel_text, files))


def kernel_text(name: str) -> str:
    """Return a file of the ladder's folder of kernels, such as ``wgsl/01_naive.wgsl``."""
    return _FOLDER.joinpath(*name.split("/")).read_text(encoding="utf-8")


def cuda_header() -> str:
    """Return the header that lets NVRTC compile the rungs' OpenCL C as CUDA C++."""
    return kernel_text("opencl_to_cuda.h")


def wgsl_names() -> set[str]:
    """Return the names of the rungs' files in WGSL, such as ``wgsl/01_naive.wgsl``."""
    return {f"wgsl/{file.name}" for file in _FOLDER.joinpath("wgsl").iterdir()}
