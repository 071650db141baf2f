// Rung 6, two-dimensional register blocking: a block of C of WORK_M x WORK_N for each work-item.
//   a[p*m + i]       m x k        tile_a[p][i]
//   b_t[p*n + j]     n x k        tile_b[p][j]    B transposed by transpose.cl
//   c[j*m + i]       m x n
// New: a work-item computes several rows and several columns. It reads the column of A and the row of B
//   that it multiplies into registers. Its rows are ITEMS_M apart and its columns ITEMS_N:
//
//     rows     x=0  #     #          x, y: work-item along M and N
//              x=1                   #: the elements of work-item (x=0, y=0),
//              x=0  #     #             here with two rows and two columns
//              x=1
//     columns      y=0 y=1 y=0 y=1
//
// Why: WORK_M*WORK_N multiply-adds need WORK_M + WORK_N reads of local memory. With 8 x 8 that is a
//   quarter of a read for each, where rung 3 needs more than one. This step gains most of all.
// Work-group: (ITEMS_M, ITEMS_N). Local memory: 4*TILE_K*(TILE_M + TILE_N) bytes.
// Registers: WORK_M*WORK_N sums and more, so that fewer work-items run on a compute unit at a time.
// Limits: rung 5's; TILE_M a multiple of WORK_M.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 6.
#ifndef TILE_M
#error "TILE_M: rows of C per work-group"
#endif
#ifndef TILE_N
#error "TILE_N: columns of C per work-group"
#endif
#ifndef TILE_K
#error "TILE_K: depth of the tiles in local memory"
#endif
#ifndef WORK_M
#error "WORK_M: rows of C per work-item"
#endif
#ifndef WORK_N
#error "WORK_N: columns of C per work-item"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define ITEMS (ITEMS_M * ITEMS_N)
#define LOADS (TILE_M * TILE_K / ITEMS)  // elements of each tile that a work-item loads

__kernel __attribute__((reqd_work_group_size(ITEMS_M, ITEMS_N, 1)))
void multiply(const int m, const int n, const int k, __global const float* restrict a,
              __global const float* restrict b_t, __global float* restrict c) {
  __local float tile_a[TILE_K][TILE_M];
  __local float tile_b[TILE_K][TILE_N];
  const int item_m = get_local_id(0), item_n = get_local_id(1);
  const int item = item_n * ITEMS_M + item_m;
  const int row_0 = get_group_id(0) * TILE_M, column_0 = get_group_id(1) * TILE_N;

  float sum[WORK_M][WORK_N];
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < WORK_N; j++) sum[i][j] = 0.0f;

  for (int depth = 0; depth < k; depth += TILE_K) {
    #pragma unroll
    for (int load = 0; load < LOADS; load++) {
      const int element = load * ITEMS + item, p = element / TILE_M, i = element % TILE_M;
      tile_a[p][i] = a[(depth + p) * m + row_0 + i];
      tile_b[p][i] = b_t[(depth + p) * n + column_0 + i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int p = 0; p < TILE_K; p++) {
      float b_p[WORK_N];
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) b_p[j] = tile_b[p][j * ITEMS_N + item_n];
      #pragma unroll
      for (int i = 0; i < WORK_M; i++) {
        const float a_p = tile_a[p][i * ITEMS_M + item_m];
        #pragma unroll
        for (int j = 0; j < WORK_N; j++) sum[i][j] += a_p * b_p[j];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < WORK_N; j++)
      c[(column_0 + j * ITEMS_N + item_n) * m + row_0 + i * ITEMS_M + item_m] = sum[i][j];
}
