"""Single-precision matrix products on any OpenCL device, NumPy-compatible.

`sgemm` follows BLAS and always runs on the device. `dot`, `matmul`, `inner`, `tensordot` and
`multi_dot` follow NumPy and choose the faster side, device or host. `accel` accelerates NumPy
itself.
"""

from clgemm import accel
from clgemm.blas import sgemm
from clgemm.chain import multi_dot
from clgemm.core.precision import precision
from clgemm.hardware import runtimes as _runtimes
from clgemm.hardware.choice import device, devices, get_device, get_devices, set_device
from clgemm.hardware.device import Device
from clgemm.info import show_config
from clgemm.prepared import PreparedProduct, prepare
from clgemm.products import dot, inner, matmul, tensordot
from clgemm.runtime.progress import progress
from clgemm.runtime.resident import resident
from clgemm.tuning import tune

__version__ = "0.1.0"

# Register now: OpenCL's loader reads the list of runtimes only once, when platforms are listed.
_runtimes.register()

__all__ = [
    "Device",
    "PreparedProduct",
    "accel",
    "device",
    "devices",
    "dot",
    "get_device",
    "get_devices",
    "inner",
    "matmul",
    "multi_dot",
    "precision",
    "prepare",
    "progress",
    "resident",
    "set_device",
    "sgemm",
    "show_config",
    "tensordot",
    "tune",
]
