// Rung 7, wider loads with register blocking: rung 6 with vector loads of the tiles.
//   a[p*m + i]       m x k        tile_a[p][i]    vectors along i
//   b_t[p*n + j]     n x k        tile_b[p][j]    vectors along j; B transposed by transpose.cl
//   c[j*m + i]       m x n
// New: rung 4's vectors for the copies from global to local memory. The reads from local memory stay
//   single floats, because a work-item's rows are apart.
// Why: in rung 6 the loads are a large part of the instructions other than multiply-adds. Vectors need
//   WIDTH times fewer loads and WIDTH times fewer indices.
// Work-group: (ITEMS_M, ITEMS_N). Local memory: 4*TILE_K*(TILE_M + TILE_N) bytes.
// Limits: rung 6's; WIDTH 1, 2, 4 or 8; TILE_M a multiple of WIDTH; TILE_M*TILE_K/WIDTH a multiple of the
//   work-items.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 7.
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
#ifndef WIDTH
#error "WIDTH: floats per load from global memory"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define ITEMS (ITEMS_M * ITEMS_N)
#define LOADS (TILE_M * TILE_K / WIDTH / ITEMS)  // vectors of each tile that a work-item loads

#define float1 float
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define FLOATS JOIN(float, WIDTH)

// A tile that is written in vectors and read in floats.
typedef union {
  FLOATS wide[TILE_K][TILE_M / WIDTH];
  float single[TILE_K][TILE_M];
} Tile;

__kernel __attribute__((reqd_work_group_size(ITEMS_M, ITEMS_N, 1)))
void multiply(const int m, const int n, const int k, __global const FLOATS* restrict a,
              __global const FLOATS* restrict b_t, __global float* restrict c) {
  __local Tile tile_a, tile_b;
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
      const int vector = load * ITEMS + item, p = vector / (TILE_M / WIDTH), i = vector % (TILE_M / WIDTH);
      tile_a.wide[p][i] = a[(depth + p) * (m / WIDTH) + row_0 / WIDTH + i];
      tile_b.wide[p][i] = b_t[(depth + p) * (n / WIDTH) + column_0 / WIDTH + i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int p = 0; p < TILE_K; p++) {
      float b_p[WORK_N];
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) b_p[j] = tile_b.single[p][j * ITEMS_N + item_n];
      #pragma unroll
      for (int i = 0; i < WORK_M; i++) {
        const float a_p = tile_a.single[p][i * ITEMS_M + item_m];
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
