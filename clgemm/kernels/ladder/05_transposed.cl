// Rung 5, transposed input and rectangular tiles: another launch transposes B first.
//   a[p*m + i]       m x k        tile_a[p][i]
//   b_t[p*n + j]     n x k        tile_b[p][j]    B transposed by transpose.cl
//   c[j*m + i]       m x n
// New: the kernel of transpose.cl transposes B first. Now A and B have the same layout, and tiles of both
//   are loaded along their columns. So the tiles may be rectangular: TILE_M x TILE_K and TILE_N x TILE_K.
// Why: the side of a tile determines how often an element is used, and its depth only how often the
//   work-group waits. With less depth, a larger side fits into the same local memory. The transposition
//   has n*k steps and the product m*n*k, so its cost is small.
// Work-group: (TILE_M, ITEMS_N). Local memory: 4*TILE_K*(TILE_M + TILE_N) bytes.
// Limits: m, n, k multiples of TILE_M, TILE_N, TILE_K; TILE_N a multiple of WORK_N; TILE_M = TILE_N and
//   TILE_M*TILE_K a multiple of the work-items, because one loop loads both tiles.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 5.
#ifndef TILE_M
#error "TILE_M: rows of C per work-group"
#endif
#ifndef TILE_N
#error "TILE_N: columns of C per work-group"
#endif
#ifndef TILE_K
#error "TILE_K: depth of the tiles in local memory"
#endif
#ifndef WORK_N
#error "WORK_N: columns of C per work-item"
#endif

#define ITEMS_N (TILE_N / WORK_N)
#define ITEMS (TILE_M * ITEMS_N)
#define LOADS (TILE_M * TILE_K / ITEMS)  // elements of each tile that a work-item loads

__kernel __attribute__((reqd_work_group_size(TILE_M, ITEMS_N, 1)))
void multiply(const int m, const int n, const int k, __global const float* restrict a,
              __global const float* restrict b_t, __global float* restrict c) {
  __local float tile_a[TILE_K][TILE_M];
  __local float tile_b[TILE_K][TILE_N];
  const int item_m = get_local_id(0), item_n = get_local_id(1);
  const int item = item_n * TILE_M + item_m;
  const int row_0 = get_group_id(0) * TILE_M, column_0 = get_group_id(1) * TILE_N;

  float sum[WORK_N];
  #pragma unroll
  for (int j = 0; j < WORK_N; j++) sum[j] = 0.0f;

  for (int depth = 0; depth < k; depth += TILE_K) {
    #pragma unroll
    for (int load = 0; load < LOADS; load++) {
      const int element = load * ITEMS + item, p = element / TILE_M, i = element % TILE_M;
      tile_a[p][i] = a[(depth + p) * m + row_0 + i];
      tile_b[p][i] = b_t[(depth + p) * n + column_0 + i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int p = 0; p < TILE_K; p++) {
      const float a_p = tile_a[p][item_m];
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) sum[j] += a_p * tile_b[p][j * ITEMS_N + item_n];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  #pragma unroll
  for (int j = 0; j < WORK_N; j++)
    c[(column_0 + j * ITEMS_N + item_n) * m + row_0 + item_m] = sum[j];
}
