// Rung 3, more work per work-item: WORK_N columns of C instead of one.
//   a[p*m + i]       m x k        tile_a[p][i]
//   b[j*k + p]       k x n        tile_b[j][p]
//   c[j*m + i]       m x n
// New: a work-item holds WORK_N sums in registers. Its columns are ITEMS_N apart, so that the loads of
//   adjacent work-items stay adjacent as in rung 2.
// Why: rung 2 reads local memory twice for one multiply-add. Here a work-item reads an element of A once
//   for WORK_N multiply-adds, which need 1 + WORK_N reads: nearly half as many. The sums are also
//   independent, so that no sum waits for another.
// Work-group: (TILE, ITEMS_N). Local memory: 8*TILE*TILE bytes.
// Limits: m, n, k multiples of TILE; TILE a multiple of WORK_N.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 3.
#ifndef TILE
#error "TILE: side of the square tiles of A, B and C"
#endif
#ifndef WORK_N
#error "WORK_N: columns of C per work-item"
#endif

#define ITEMS_N (TILE / WORK_N)

__kernel __attribute__((reqd_work_group_size(TILE, ITEMS_N, 1)))
void multiply(const int m, const int n, const int k, __global const float* restrict a,
              __global const float* restrict b, __global float* restrict c) {
  __local float tile_a[TILE][TILE];
  __local float tile_b[TILE][TILE];
  const int item_m = get_local_id(0), item_n = get_local_id(1);
  const int row = get_global_id(0), column_0 = get_group_id(1) * TILE;

  float sum[WORK_N];
  #pragma unroll
  for (int j = 0; j < WORK_N; j++) sum[j] = 0.0f;

  for (int depth = 0; depth < k; depth += TILE) {
    for (int column = item_n; column < TILE; column += ITEMS_N) {
      tile_a[column][item_m] = a[(depth + column) * m + row];
      tile_b[column][item_m] = b[(column_0 + column) * k + depth + item_m];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int p = 0; p < TILE; p++) {
      const float a_p = tile_a[p][item_m];
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) sum[j] += a_p * tile_b[j * ITEMS_N + item_n][p];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  #pragma unroll
  for (int j = 0; j < WORK_N; j++) c[(column_0 + j * ITEMS_N + item_n) * m + row] = sum[j];
}
