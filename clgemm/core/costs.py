"""What launches cost on a GPU: the constants of the families' expected times. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["H200", "Costs", "joined"]


@dataclass(frozen=True)
class Costs:
    """The constants of a GPU from which expected times are computed.

    Times are in microseconds. Where nothing else is said, rates are per microsecond and of one
    compute unit.

    Attributes
    ----------
    host_us, host_more_us : float
        Time of the host for a product's first launch, and for each further one.
    start_us : float
        Time of the device for a product, however small.
    more_us : float
        Time of the device between two launches of a product.
    memory_bytes, cache_bytes : float
        Bytes that the whole device reads and writes, in its memory and in its last cache.
    multiply_adds : float
        Multiply-adds of float32.
    vector_load : float
        Multiply-adds that take as long as a load of four floats from global memory.
    transposed : float
        The same for the way of four floats into a transposed tile.
    one_buffer : float
        How many times as long loads take that are not begun a step ahead.
    narrow_load : float
        The same for loads of fewer than four floats.
    copied, copied_narrow, copied_transposed : float
        The same for asynchronous copies to local memory: of four floats, of fewer, and of single
        ones into a transposed tile. These go on beside the arithmetic.
    few_lanes : float
        How much slower eight groups of 32 lanes are than many, as a share.
    tail : float
        The part of a last, incomplete round of work-groups that counts as a whole one, where more
        than two share a compute unit. With two, all of it does.
    tile_end : float
        Multiply-adds that take as long as a work-group's start and end, for each element of a tile.
    step_us, one_buffer_step_us : float
        Latency of a step over a tile's depth, with two buffers and with one.
    narrow_load_step_us, copied_step_us : float
        The same where loads have fewer than four floats, and with asynchronous copies.
    part_us : float
        Adding up where work-items share a block of C, for each of them but one.
    unaligned_store : float
        Multiply-adds that take as long as the store of one element of C that no aligned vector
        holds.
    scattered : float
        How much longer that takes, as a share, where neighbours store 16 columns of C side by side
        instead of 32; at 8 columns three times that share.
    against_rows : float
        How many times as long it takes where they are no neighbours in memory.
    fused_us, fused_slice_us : float
        Adding up in the same launch, and for each slice where work-items have 32 accumulators.
    store_bytes, aligned_store_bytes : float
        Bytes of memory traffic for each byte of C, and where aligned vectors store it.
    pack_bytes, pack_us : float
        Bytes that the whole device packs; time of such a launch.
    reduce_us, reduce_elements, reduced_elements : float
        Time of a launch that adds up slices; elements that the whole device reads and writes.
    direct_step_us, direct_items : float
        A step over k in the direct family: its latency, and work-groups' steps per microsecond.
    direct_store : float
        Time of a work-group of the direct family besides its steps.
    outer_bytes, outer_multiply_adds, outer_load, outer_us : float
        The outer_product family: bytes of C that the whole device writes; multiply-adds, and how
        many of them take as long as a load of one element of B; fixed time.
    skinny_bytes, skinny_row, skinny_us, skinny_step_us : float
        The skinny_gpu family: bytes that the whole device reads; how much longer a second row
        takes, as a share, which grows with the square of further rows; time of a round of
        work-groups; latency of as many loads as are in flight.
    dots_bytes, dots_row, dots_us, dots_step_us : float
        The same where the columns of B are contiguous; each further row takes as much longer as the
        second one, and the latency is that of 128 steps over k.
    tensor_us : float
        A product on tensor cores: its fixed time.
    tensor_step_us, tensor_wide : float
        A step over 64 of k for a tile of 128 x 128; the same for a wide tile, as a factor.
    tensor_tail : float
        The part of a last, incomplete round of tiles that counts as a whole one.
    tensor_slice_us, tensor_round_us : float
        Split-k there, for a tile of 128 x 128: adding up a slice, and a round of slices.
    tensor_last_tile, tensor_unaligned : float
        How many times as long as its share of the memory the store of a compute unit's last tile
        takes; how much longer all stores take, as a share, where rows of C are not aligned and
        tiles have 128 columns.
    tensor_pack_bytes, tensor_strided : float
        Bytes that the whole device splits; how much longer operands of no unit stride take.
    tensor_host_us : float
        As `host_more_us`: these launches have many arguments.
    mma : float
        A step with mma.sync over one with wgmma.
    narrow_us, narrow_step_us, narrow_column_us, narrow_round_us : float
        The narrow family: fixed time, a step over 64 of k and its part for each column, a round.
    narrow_single : float
        How many times as long a step takes where loads bring single elements.
    narrow_slice_us, narrow_fused_us : float
        Split-k there, for each slice and once.
    narrow_pack_us : float
        A chunk of the smaller operand that a work-group packs.
    narrow_bytes : float
        Bytes that the whole device reads.
    """

    host_us: float = 7.05
    host_more_us: float = 5.58
    start_us: float = 3.19
    more_us: float = 0.001
    memory_bytes: float = 5890000.0
    cache_bytes: float = 7290000.0
    multiply_adds: float = 186000.0
    vector_load: float = 2.89
    transposed: float = 1.31
    one_buffer: float = 0.518
    narrow_load: float = 0.534
    copied: float = 2.94
    copied_narrow: float = 2.53
    copied_transposed: float = 2.46
    few_lanes: float = 0.0754
    tail: float = 0.073
    tile_end: float = 6.06
    step_us: float = 0.208
    one_buffer_step_us: float = 0.14
    narrow_load_step_us: float = 0.191
    copied_step_us: float = 0.351
    part_us: float = 1.82
    unaligned_store: float = 19.5
    scattered: float = 0.299
    against_rows: float = 1.55
    fused_us: float = 2.79
    fused_slice_us: float = 0.149
    store_bytes: float = 2.07
    aligned_store_bytes: float = 1.96
    pack_bytes: float = 2400000.0
    pack_us: float = 4.25
    reduce_us: float = 3.85
    reduce_elements: float = 419000.0
    reduced_elements: float = 206000.0
    direct_step_us: float = 0.137
    direct_items: float = 183.0
    direct_store: float = 0.101
    outer_bytes: float = 4350000.0
    outer_multiply_adds: float = 200000.0
    outer_load: float = 20.0
    outer_us: float = 1.08
    skinny_bytes: float = 4620000.0
    skinny_row: float = 0.146
    skinny_us: float = 3.81
    skinny_step_us: float = 0.0917
    dots_bytes: float = 5880000.0
    dots_row: float = 0.512
    dots_us: float = 2.39
    dots_step_us: float = 0.0377
    tensor_us: float = 5.4
    tensor_step_us: float = 0.905
    tensor_wide: float = 1.94
    tensor_tail: float = 0.778
    tensor_slice_us: float = 0.518
    tensor_round_us: float = 2.67
    tensor_last_tile: float = 3.63
    tensor_unaligned: float = 0.744
    tensor_pack_bytes: float = 2710000.0
    tensor_strided: float = 0.114
    tensor_host_us: float = 16.1
    mma: float = 2.99
    narrow_us: float = 6.0
    narrow_step_us: float = 0.714
    narrow_column_us: float = 0.00698
    narrow_round_us: float = 6.1
    narrow_slice_us: float = 0.2
    narrow_fused_us: float = 0.5
    narrow_bytes: float = 7050000.0
    narrow_pack_us: float = 2.1
    narrow_single: float = 1.48


# Fitted on an NVIDIA H200, driver 580.159, by docs/family_costs.py to docs/measured/families_h200*.
# The first four and those of dots are of the third fit, with families_h200_again, since launches
# make no events. How the tiled family stores, and the four of few rows, are of the fifth, with
# families_h200_stores. Those of packing and split-k are of the second fit, with
# families_h200_tiles and _squares. The rest of the tiled family is of the eighth, with
# families_h100_copies, _h100_again and _h200_behind: `--percents --choice`. There, an H100's memory
# counted for 0.72 of an H200's. Two percents are by hand. That of tiles of 128 x 64 without copies
# is 2 more, so that 1000 and 1001 cubed have plans that were measured as fast. That of tiles of 64
# x 64 x 16 with copies is 4 less, since their copies of single floats no longer count. Those of
# outer products are from 14 of them on an H200, by hand. Those of tensor cores are of the ninth
# fit, to families_h200_tensor, but for these: narrow_bytes stayed. narrow_fused_us and
# narrow_slice_us are by hand, since the fit cannot tell them apart. tensor_wide is 6 % less than in
# the fit, which is right for products of 1e10 multiply-adds and more.
H200 = Costs()


def joined(power: float, *times: float) -> float:
    """Return the time of what overlaps: the longest, and more where several are about as long."""
    longest = max(times)
    if longest <= 0:
        return 0.0
    return float(longest * sum((time / longest) ** power for time in times) ** (1 / power))
