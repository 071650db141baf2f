// Rung 9, software pre-fetching: work-items load the next tile while they multiply the current one.
//   a[p*m + i]       m x k        tile_a[t % 2][p][i]    vectors along i
//   b_t[p*n + j]     n x k        tile_b[t % 2][p][j]    vectors along j; B transposed by transpose.cl
//   c[j*m + i]       m x n
// New: local memory holds two tiles of each operand, which are used in turns. A work-item starts the loads
//   of its part of the next tile, multiplies the current tile, and then stores the loaded part into the
//   other tile:
//
//     store 0 | load 1, multiply 0 | store 1 | load 2, multiply 1 | store 2 | ...
//             ^ barrier                      ^ barrier                      ^ barrier
//
// Why: a load takes hundreds of cycles, and a work-item goes on until it needs the value. With two tiles,
//   one barrier for each step is enough: all reads of a tile that is overwritten are before the barrier.
// Cost: twice the local memory, and registers for the loads in flight. If many work-groups share a compute
//   unit, they hide the latency already, and the cost may be larger than the gain (Kepler).
// Work-group: (ITEMS_M, ITEMS_N). Local memory: 8*TILE_K*(TILE_M + TILE_N) bytes.
// Limits: rung 7's.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 9; that kernel stores before it multiplies.
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

// A tile that is written in vectors, in the order of the loads, and read in floats.
typedef union {
  FLOATS wide[TILE_K * TILE_M / WIDTH];
  float single[TILE_K][TILE_M];
} Tile;

// Load this work-item's part of the tile at `from`, whose columns are `pitch` vectors apart.
static inline void fetch(__global const FLOATS* from, const int pitch, const int item, FLOATS* to) {
  #pragma unroll
  for (int load = 0; load < LOADS; load++) {
    const int vector = load * ITEMS + item;
    to[load] = from[vector / (TILE_M / WIDTH) * pitch + vector % (TILE_M / WIDTH)];
  }
}

__kernel __attribute__((reqd_work_group_size(ITEMS_M, ITEMS_N, 1)))
void multiply(const int m, const int n, const int k, __global const FLOATS* restrict a,
              __global const FLOATS* restrict b_t, __global float* restrict c) {
  __local Tile tile_a[2], tile_b[2];
  const int item_m = get_local_id(0), item_n = get_local_id(1);
  const int item = item_n * ITEMS_M + item_m;
  const int row_0 = get_group_id(0) * TILE_M, column_0 = get_group_id(1) * TILE_N;
  a += row_0 / WIDTH;
  b_t += column_0 / WIDTH;

  float sum[WORK_M][WORK_N];
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < WORK_N; j++) sum[i][j] = 0.0f;

  FLOATS next_a[LOADS], next_b[LOADS];
  fetch(a, m / WIDTH, item, next_a);
  fetch(b_t, n / WIDTH, item, next_b);
  int now = 0;
  for (int depth = 0; depth < k; depth += TILE_K) {
    #pragma unroll
    for (int load = 0; load < LOADS; load++) {
      tile_a[now].wide[load * ITEMS + item] = next_a[load];
      tile_b[now].wide[load * ITEMS + item] = next_b[load];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    if (depth + TILE_K < k) {
      fetch(a + (depth + TILE_K) * (m / WIDTH), m / WIDTH, item, next_a);
      fetch(b_t + (depth + TILE_K) * (n / WIDTH), n / WIDTH, item, next_b);
    }
    for (int p = 0; p < TILE_K; p++) {
      float b_p[WORK_N];
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) b_p[j] = tile_b[now].single[p][j * ITEMS_N + item_n];
      #pragma unroll
      for (int i = 0; i < WORK_M; i++) {
        const float a_p = tile_a[now].single[p][i * ITEMS_M + item_m];
        #pragma unroll
        for (int j = 0; j < WORK_N; j++) sum[i][j] += a_p * b_p[j];
      }
    }
    now = 1 - now;
  }

  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < WORK_N; j++)
      c[(column_0 + j * ITEMS_N + item_n) * m + row_0 + i * ITEMS_M + item_m] = sum[i][j];
}
