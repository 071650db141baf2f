"""Records of devices that nobody has, and what the look-up makes of them."""

from __future__ import annotations

from clgemm.core.problem import Shape
from clgemm.core.traits import Identity, Limits
from clgemm.kernels.common.family import Choice
from clgemm.kernels.direct.family import DirectConfig
from clgemm.kernels.pack.plan import pack_config
from clgemm.records import tuned
from clgemm.records.tuned import Record, kernels_hash

GPU = Identity("A100", "GPU", "NVIDIA", "NVIDIA CUDA, OpenCL 3.0", "580", "compute capability 8.0")
CPU = Identity("Xeon", "CPU", "Intel", "Portable Computing Language, PoCL 3.1", "3.1", "AVX-512")
LIMITS = Limits(48 * 1024, 1024, 2**30, 8, 1)
DIRECT = DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False)


def record(device=GPU, config=DIRECT, name="tiny", kernels=None):
    """A record of a family that needs no packing, or of the local one."""
    pack = None
    if config.family == "tiled":
        pack = tuple(pack_config(LIMITS, t) for t in (config.tile_m, config.tile_n))
    return Record(
        device=device,
        family=config.family,
        shape_class=name,
        choice=Choice(config, pack),
        shapes=(Shape(32, 32, 32),),
        gflops=(12.5,),
        kernels=kernels or kernels_hash(config.family),
        date="2026-11-21",
    )


def served(device=GPU, family="direct", name="tiny", limits=LIMITS):
    """What may serve, in order, and whether it is validated."""
    return [
        (x.record.choice.config, x.validated)
        for x in tuned.candidates(device, limits, family, name)
    ]
