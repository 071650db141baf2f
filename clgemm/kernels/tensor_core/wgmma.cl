// C = alpha*A*B + beta*C on the tensor cores of NVIDIA's compute capability 9.0, with wgmma, from split operands.
//   packed_a, packed_b                            tiles of tensor_core/tile.cl: panels of 128 rows of A, of 128 columns of B
//   c[matrix*c_stride + i*c_row + j*c_column]     m x n; not read when beta is 0
//   count                                         outliers; above `most` the fallback makes the product (GUARD only)
//   count_next                                    the counter of the next product, set to 0 here (GUARD only)
//   count_before                                  with TF32, outliers of the fp16 split: runs if they are above `most`
//   a, b                                          the operands themselves, for the products of outliers
//   whole, slices, partial, counters              split-k: the Cuts of tensor_core/warp_groups.cl
// tensor_core/warp_groups.cl has the algorithm, docs/tensor_cores.md the data for which the result stands and its error.
// Work-groups: as many as compute units, 384 work-items each. Local: STAGES*(1 + TILE_N/128)*TILE_BYTES + 24720 bytes.
// After: NVIDIA, "Parallel thread execution ISA", asynchronous warpgroup level matrix instructions; Ootomo and Yokota,
// "Recovering single precision accuracy from tensor cores", 2022; Fasi, Higham, Mikaitis and Pranesh, "Numerical
// behavior of NVIDIA tensor cores", 2021.

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void tensor_product(const int matrices, const int m, const int n, const int k, const int most, const float alpha, const float beta,
                    __global const float* a, const long a_offset, const long a_row, const long a_column, const long a_stride,
                    __global const float* b, const long b_offset, const long b_row, const long b_column, const long b_stride,
                    __global uchar* packed_a, __global uchar* packed_b,
                    __global float* c, const long c_offset, const long c_row, const long c_column, const long c_stride,
                    __global uint* count, __global uint* count_next, __global const uint* count_before,
                    const int whole, const int slices, __global float4* partial, __global uint* counters) {
  __local uchar memory[BARRIERS_BYTES + STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local float corners[8 * CORNER] __attribute__((aligned(16)));
  __local uint earlier;
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks wgmma and setmaxnreg
  const uint item = get_local_id(0);
#if GUARD
  if (item == 0 && get_group_id(0) == 0) *count_next = 0;
  const uint listed = *count;
  if (listed > most) return;
#if TF32
  if (*count_before <= most) return;
#endif
#else
  const uint listed = 0;
#endif
  const uint base = (uint)(ulong)(__local void*)memory;
  if (item == 0) {
    for (int stage = 0; stage < STAGES; stage++) {
      initialise(FULL(stage), 1);
      initialise(EMPTY(stage), 8);
    }
    fence_initialised();
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  const Product p = {matrices, m, n, k, 0, most, a + a_offset, a_row, a_column, a_stride,
                     b + b_offset, b_row, b_column, b_stride, packed_a, packed_b, count};
  const Cuts cuts = {whole, slices, partial, counters};
  if (item >= 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (item == 256) feed_tiles(&p, &cuts, base);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    multiply_tiles(&p, &cuts, alpha, beta, c + c_offset, c_row, c_column, c_stride, listed, memory, corners, &earlier);
  }
}
