// Splits both operands into the tiles of tensor_core/tile.cl in one launch: see tensor_core/split.cl.
// Work-groups: any number, SPLIT_ITEMS work-items each; they take turns at the tiles of A, then of B,
// which has those of A if packed_b is packed_a.
__kernel __attribute__((reqd_work_group_size(SPLIT_ITEMS, 1, 1)))
void tensor_pack(const int matrices, const int m, const int n, const int k, const int least, const int most,
                 __global const float* restrict a, const long a_offset, const long a_row, const long a_column, const long a_stride,
                 __global const float* restrict b, const long b_offset, const long b_row, const long b_column, const long b_stride,
                 __global uchar* packed_a, __global uchar* packed_b,
                 __global uint* restrict count) {
  __local SplitMemory memory;
  const Product p = {matrices, m, n, k, least, most, a + a_offset, a_row, a_column, a_stride,
                     b + b_offset, b_row, b_column, b_stride, packed_a, packed_b, count};
  const int tiles = split_panels(&p) * depths_of(k, false);
  for (int tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
    Share own;
    load_share(&p, false, tile, &own);
    if (!split_tile(&p, false, &own, &memory)) break;
    split_barrier();
  }
}
