"""The constants from which expected times are computed, of GPUs and of CPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Costs:
    """The constants of a GPU from which expected times are computed.

    Times are in microseconds. Where nothing else is said, rates are per microsecond and of one
    compute unit.
    """

    # Time of the host for a product's first launch, and for each further one.
    host_us: float = 7.05
    host_more_us: float = 5.58
    start_us: float = 3.19  # time of the device for a product, however small
    more_us: float = 0.001  # time of the device between two launches of a product
    # Bytes that the whole device reads and writes, in its memory and in its last cache.
    memory_bytes: float = 5890000.0
    cache_bytes: float = 7290000.0
    multiply_adds: float = 186000.0  # multiply-adds of float32
    # Multiply-adds that take as long as a load of four floats from global memory.
    vector_load: float = 2.89
    transposed: float = 1.31  # the same for the way of four floats into a transposed tile
    one_buffer: float = 0.518  # how many times as long loads take that are not begun a step ahead
    narrow_load: float = 0.534  # the same for loads of fewer than four floats
    # The same for asynchronous copies to local memory: of four floats, of fewer, and of single ones
    # into a transposed tile. These go on beside the arithmetic.
    copied: float = 2.94
    copied_narrow: float = 2.53
    copied_transposed: float = 2.46
    few_lanes: float = 0.0754  # how much slower eight groups of 32 lanes are than many, as a share
    # The part of a last, incomplete round of work-groups that counts as a whole one, where more
    # than two share a compute unit. With two, all of it does.
    tail: float = 0.073
    # Multiply-adds that take as long as a work-group's start and end, for each element of a tile.
    tile_end: float = 6.06
    # Latency of a step over a tile's depth, with two buffers and with one.
    step_us: float = 0.208
    one_buffer_step_us: float = 0.14
    # The same where loads have fewer than four floats, and with asynchronous copies.
    narrow_load_step_us: float = 0.191
    copied_step_us: float = 0.351
    part_us: float = 1.82  # adding up where work-items share a block of C, for each of them but one
    # Multiply-adds that take as long as the store of one element of C that no aligned vector holds.
    unaligned_store: float = 19.5
    # How much longer that takes, as a share, where neighbours store 16 columns of C side by side
    # instead of 32; at 8 columns three times that share.
    scattered: float = 0.299
    # How many times as long it takes where they are no neighbours in memory.
    against_rows: float = 1.55
    # Adding up in the same launch, and for each slice where work-items have 32 accumulators.
    fused_us: float = 2.79
    fused_slice_us: float = 0.149
    # Bytes of memory traffic for each byte of C, and where aligned vectors store it.
    store_bytes: float = 2.07
    aligned_store_bytes: float = 1.96
    # Bytes that the whole device packs; time of such a launch.
    pack_bytes: float = 2400000.0
    pack_us: float = 4.25
    # Time of a launch that adds up slices; elements that the whole device reads and writes.
    reduce_us: float = 3.85
    reduce_elements: float = 419000.0
    reduced_elements: float = 206000.0
    # A step over k in the direct family: its latency, and work-groups' steps per microsecond.
    direct_step_us: float = 0.137
    direct_items: float = 183.0
    direct_store: float = 0.101  # time of a work-group of the direct family besides its steps
    # The outer_product family: bytes of C that the whole device writes; multiply-adds, and how many
    # of them take as long as a load of one element of B; fixed time.
    outer_bytes: float = 4350000.0
    outer_multiply_adds: float = 200000.0
    outer_load: float = 20.0
    outer_us: float = 1.08
    # The skinny_gpu family: bytes that the whole device reads; how much longer a second row takes,
    # as a share, which grows with the square of further rows; time of a round of work-groups;
    # latency of as many loads as are in flight.
    skinny_bytes: float = 4620000.0
    skinny_row: float = 0.146
    skinny_us: float = 3.81
    skinny_step_us: float = 0.0917
    # The same where the columns of B are contiguous; each further row takes as much longer as the
    # second one, and the latency is that of 128 steps over k.
    dots_bytes: float = 5880000.0
    dots_row: float = 0.512
    dots_us: float = 2.39
    dots_step_us: float = 0.0377
    tensor_us: float = 5.4  # a product on tensor cores: its fixed time
    # A step over 64 of k for a tile of 128 x 128; the same for a wide tile, as a factor.
    tensor_step_us: float = 0.905
    tensor_wide: float = 1.94
    # The part of a last, incomplete round of tiles that counts as a whole one.
    tensor_tail: float = 0.778
    # Split-k there, for a tile of 128 x 128: adding up a slice, and a round of slices.
    tensor_slice_us: float = 0.518
    tensor_round_us: float = 2.67
    # How many times as long as its share of the memory the store of a compute unit's last tile
    # takes; how much longer all stores take, as a share, where rows of C are not aligned and tiles
    # have 128 columns.
    tensor_last_tile: float = 3.63
    tensor_unaligned: float = 0.744
    # Bytes that the whole device splits; how much longer operands of no unit stride take.
    tensor_pack_bytes: float = 2710000.0
    tensor_strided: float = 0.114
    tensor_host_us: float = 16.1  # as `host_more_us`: these launches have many arguments
    mma: float = 2.99  # a step with mma.sync over one with wgmma
    # The narrow family: fixed time, a step over 64 of k and its part for each column, a round.
    narrow_us: float = 6.0
    narrow_step_us: float = 0.714
    narrow_column_us: float = 0.00698
    narrow_round_us: float = 6.1
    # Split-k there, for each slice and once.
    narrow_slice_us: float = 0.2
    narrow_fused_us: float = 0.5
    narrow_bytes: float = 7050000.0  # bytes that the whole device reads
    narrow_pack_us: float = 2.1  # a chunk of the smaller operand that a work-group packs
    # How many times as long a step takes where loads bring single elements.
    narrow_single: float = 1.48


# Fitted on an NVIDIA H200, driver 580.159, by docs/family_costs.py to docs/measured/families_h200*,
# and for the copies of the tiled family also to families_h100*, where an H100's memory counted for
# 0.72 of an H200's. Those of outer products are from 14 of them. Some are set by hand:
# - tiles of 128 x 64 without copies cost 2 % more than in the fit, so that 1000 and 1001 cubed have
#   plans that were measured as fast;
# - tiles of 64 x 64 x 16 with copies cost 4 % less, since copies of single floats do not count;
# - tensor_wide is 6 % less, which is right for products of 1e10 multiply-adds and more;
# - narrow_fused_us and narrow_slice_us, which the fit cannot tell apart.
H200 = Costs()


@dataclass(frozen=True)
class CpuCosts:
    """The constants of a CPU and its OpenCL runtime from which expected times are computed.

    Times are in microseconds. Where nothing else is said, rates are per microsecond and of one
    compute unit.
    """

    # Time of a product, however small; time of each launch.
    start_us: float = 46.1
    launch_us: float = 9.03
    # The blocked family: multiply-adds of a vector by an element of A, with all that goes with
    # them, as `register_spread` counts it.
    blocked_vectors: float = 4980.0
    # Elements that it packs of A; that it packs of a B with contiguous columns; that it stores to C
    # for each block of k.
    packed: float = 833.0
    transposed: float = 1260.0
    stored: float = 16_300.0
    # Elements that are added up in split-k; elements that are copied to be dense.
    added: float = 31_400.0
    copied: float = 360.0
    # The skinny_cpu family: bytes of the large operand that all compute units read; how much of
    # that time further rows take, as a share, where no cache holds the operand.
    skinny_bytes: float = 26_100.0
    skinny_again: float = 0.257
    # Its multiply-adds, where the large operand has contiguous rows, and where contiguous columns.
    skinny_multiply_adds: float = 24_600.0
    skinny_along_k: float = 31_100.0
    # Scalar products that it adds up, in the latter case; elements of C that it stores.
    skinny_dots: float = 94.1
    skinny_stored: float = 2380.0
    # Time of a work-group besides its steps.
    skinny_group_us: float = 0.521
    direct_group_us: float = 0.0494
    direct_step_us: float = 0.00268  # the direct family: a step over k of 4 x 8 elements of C
    # How much longer that takes, as a share, if a vector of B has to be gathered.
    direct_strided: float = 2.62


# Fitted on two cores of an AMD EPYC (Zen 4) under PoCL 3.1 and Intel's runtime 2026.2, 2026-11-23,
# by docs/family_costs.py to docs/measured/families_cpu_pocl and families_cpu_intel; blocked_vectors
# and stored to those of them with k above 100, and to families_cpu_pocl_short and
# families_cpu_intel_short on a Zen 5, 2026-11-25. docs/performance.md says how well they fit.
POCL = CpuCosts()
INTEL = CpuCosts(
    start_us=12.2,
    launch_us=2.82,
    blocked_vectors=6380.0,
    packed=1930.0,
    transposed=1820.0,
    stored=24_700.0,
    added=1610.0,
    copied=605.0,
    skinny_bytes=41_500.0,
    skinny_again=0.292,
    skinny_multiply_adds=26_000.0,
    skinny_along_k=27_900.0,
    skinny_dots=122.0,
    skinny_stored=1170.0,
    skinny_group_us=0.378,
    direct_group_us=0.102,
    direct_step_us=0.00327,
    direct_strided=0.674,
)
# PoCL 3.0 from PyPI, whose compiler is older: with few rows its code takes twice the time of PoCL
# 3.1's. Fitted on two cores of an Intel Xeon (Sapphire Rapids), 2026-11-27, to
# families_xeon_pocl_3_0_first and _again, without the time of a call.
POCL_3_0 = CpuCosts(
    blocked_vectors=7090.0,
    packed=1040.0,
    transposed=994.0,
    stored=2580.0,
    added=828.0,
    copied=1790.0,
    skinny_bytes=30_900.0,
    skinny_again=0.913,
    skinny_multiply_adds=14_900.0,
    skinny_along_k=10_500.0,
    skinny_dots=151.0,
    skinny_stored=2300.0,
    skinny_group_us=0.178,
    direct_group_us=0.0459,
    direct_step_us=0.0062,
    direct_strided=2.6,
)
# Scaled by groups, as `tune` does it, to families_cpu_16_cores: 383 random products on 16 cores of
# an Intel Xeon (AVX-512) under PoCL 5.0, 2026-11-23. There the plan with the least expected time
# takes 1.05 times as long as the fastest (1.38 at the 95th percentile), and 1.09 by those above.
POCL_MANY_CORES = CpuCosts(
    start_us=88.0,
    launch_us=17.2,
    blocked_vectors=3820.0,
    packed=2770.0,
    transposed=4190.0,
    stored=4750.0,
    added=104_000.0,
    copied=1200.0,
    skinny_bytes=86_700.0,
    skinny_again=0.257,
    skinny_multiply_adds=21_700.0,
    skinny_along_k=27_400.0,
    skinny_dots=83.1,
    skinny_stored=2100.0,
    skinny_group_us=0.995,
    direct_group_us=0.0943,
    direct_step_us=0.0049,
    direct_strided=2.62,
)
# 16 cores of an Intel Xeon under Intel's runtime 2026.2: there a product takes 75 us, however small
# (283 random ones, 2026-11-27).
INTEL_MANY_CORES = replace(INTEL, start_us=52.0)


def joined(power: float, *times: float) -> float:
    """Return the time of what overlaps: the longest, and more where several are about as long."""
    longest = max(times)
    if longest <= 0:
        return 0.0
    return float(longest * sum((time / longest) ** power for time in times) ** (1 / power))
