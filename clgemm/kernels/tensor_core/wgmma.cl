// C = alpha*A*B + beta*C on the tensor cores of NVIDIA's compute capability 9.0, with wgmma, from split operands.
//   packed_a, packed_b                            tiles of tensor_core/tile.cl: panels of 128 rows of A, of 128 columns of B
//   c[matrix*c_stride + i*c_row + j*c_column]     m x n; not read when beta is 0
//   count                                         outliers; above `most` the next method makes the product (GUARD only)
//   count_next                                    the counter of the next product, set to 0 here (GUARD only)
//   a, b                                          the operands themselves, for the products of outliers and the other methods
//   whole, slices, partial, counters              split-k: the Cuts of tensor_core/warp_groups.cl
//   plain_whole, plain_slices                     the same for the plain method
// With GUARD, `packed_a` and `packed_b` have room for the tiles of tf32, too, which replace those of halves.
// tensor_core/methods.cl and warp_groups.cl have the algorithm and the counters, docs/tensor_cores.md the data for which each
// method stands and its error.
// Work-groups: as many as compute units at most, 384 work-items each. Local: a Memory.
// After: NVIDIA, "Parallel thread execution ISA", asynchronous warpgroup level matrix instructions; Ootomo and Yokota,
// "Recovering single precision accuracy from tensor cores", 2022; Fasi, Higham, Mikaitis and Pranesh, "Numerical
// behavior of NVIDIA tensor cores", 2021.

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void tensor_product(const int matrices, const int m, const int n, const int k, const int most, const float alpha, const float beta,
                    __global const float* a, const long a_offset, const long a_row, const long a_column, const long a_stride,
                    __global const float* b, const long b_offset, const long b_row, const long b_column, const long b_stride,
                    __global uchar* packed_a, __global uchar* packed_b,
                    __global float* c, const long c_offset, const long c_row, const long c_column, const long c_stride,
                    __global uint* count, __global uint* count_next,
                    const int whole, const int slices, __global float4* partial, __global uint* counters,
                    const int plain_whole, const int plain_slices) {
  __local Memory memory;
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks wgmma and setmaxnreg
  const Product p = {matrices, m, n, k, 0, most, a + a_offset, a_row, a_column, a_stride,
                     b + b_offset, b_row, b_column, b_stride, packed_a, packed_b, count};
  Result result = {c + c_offset, c_row, c_column, c_stride, alpha, beta,
                   {whole, slices, partial, counters + OF_SLICES}, {plain_whole, plain_slices, partial, counters + OF_SLICES}};
  if (GUARD && get_local_id(0) == 0 && get_group_id(0) == 0) *count_next = 0;
  multiply_or_fall_back(&p, &result, GUARD ? *count : 0, counters, &memory);
}
