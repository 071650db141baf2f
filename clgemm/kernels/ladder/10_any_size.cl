// Rung 10, incomplete tiles: any m, n and k, and register blocks of any size.
//   a[p*m + i]       m x k        tile_a[t % 2][p][i]    vectors along i; padded
//   b_t[p*n + j]     n x k        tile_b[t % 2][p][j]    vectors along j; padded, then transposed
//   c[j*m + i]       m x n                               padded; unpad copies C out of it
// Here m, n and k are the padded sizes, which are multiples of the tiles.
// New: five launches: pad A, pad B, transpose B, multiply, unpad C. TILE_M and TILE_N may differ: each
//   tile has its own loop of loads.
//
//         k    K               n    N              n    N         A, B, C: as given
//     m  A  | 0            k  B  | 0           m  C  | .          0: zeros, which add nothing
//     M  0    0            K  0    0           M  .    .          .: computed, but not copied to C
//
// Why: a work-item loads elements that others need, so it must not stop at the edge of C. With padding
//   there is no edge. The cost is up to one tile more in each direction, and four launches that copy n^2
//   elements where the product takes n^3 steps. A block that need not be a power of two can be as large
//   as the registers allow: 10 x 10 in tiles of 160 x 160.
// Work-group: (ITEMS_M, ITEMS_N); (PAD, PAD) to pad and unpad.
// Local memory: 8*TILE_K*(TILE_M + TILE_N) bytes.
// Limits: TILE_M and TILE_N multiples of WORK_M and WORK_N and of WIDTH; the vectors of each tile a
//   multiple of the work-items. None on m, n and k.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 10.
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
#ifndef PAD
#error "PAD: side of the square that one work-group pads or unpads"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define ITEMS (ITEMS_M * ITEMS_N)
#define LOADS_A (TILE_M * TILE_K / WIDTH / ITEMS)  // vectors of A's tile that a work-item loads
#define LOADS_B (TILE_N * TILE_K / WIDTH / ITEMS)

#define float1 float
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define FLOATS JOIN(float, WIDTH)

// Copy a rows x columns matrix into a larger one, with zeros around it.
__kernel __attribute__((reqd_work_group_size(PAD, PAD, 1)))
void pad(const int rows, const int columns, const int padded_rows, const int padded_columns,
         __global const float* restrict from, __global float* restrict to) {
  const int row = get_global_id(0), column = get_global_id(1);
  if (row < padded_rows && column < padded_columns)
    to[column * padded_rows + row] = row < rows && column < columns ? from[column * rows + row] : 0.0f;
}

// Copy the rows x columns corner of a larger matrix.
__kernel __attribute__((reqd_work_group_size(PAD, PAD, 1)))
void unpad(const int rows, const int columns, const int padded_rows,
           __global const float* restrict from, __global float* restrict to) {
  const int row = get_global_id(0), column = get_global_id(1);
  if (row < rows && column < columns) to[column * rows + row] = from[column * padded_rows + row];
}

// Tiles that are written in vectors, in the order of the loads, and read in floats.
typedef union {
  FLOATS wide[TILE_K * TILE_M / WIDTH];
  float single[TILE_K][TILE_M];
} TileA;
typedef union {
  FLOATS wide[TILE_K * TILE_N / WIDTH];
  float single[TILE_K][TILE_N];
} TileB;

// Load this work-item's part of the tile at `from`: `loads` vectors of a tile whose columns have `side`
// vectors and are `pitch` vectors apart.
static inline void fetch(const int loads, const int side, __global const FLOATS* from, const int pitch,
                  const int item, FLOATS* to) {
  #pragma unroll
  for (int load = 0; load < loads; load++) {
    const int vector = load * ITEMS + item;
    to[load] = from[vector / side * pitch + vector % side];
  }
}

__kernel __attribute__((reqd_work_group_size(ITEMS_M, ITEMS_N, 1)))
void multiply(const int m, const int n, const int k, __global const FLOATS* restrict a,
              __global const FLOATS* restrict b_t, __global float* restrict c) {
  __local TileA tile_a[2];
  __local TileB tile_b[2];
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

  FLOATS next_a[LOADS_A], next_b[LOADS_B];
  fetch(LOADS_A, TILE_M / WIDTH, a, m / WIDTH, item, next_a);
  fetch(LOADS_B, TILE_N / WIDTH, b_t, n / WIDTH, item, next_b);
  int now = 0;
  for (int depth = 0; depth < k; depth += TILE_K) {
    #pragma unroll
    for (int load = 0; load < LOADS_A; load++) tile_a[now].wide[load * ITEMS + item] = next_a[load];
    #pragma unroll
    for (int load = 0; load < LOADS_B; load++) tile_b[now].wide[load * ITEMS + item] = next_b[load];
    barrier(CLK_LOCAL_MEM_FENCE);

    if (depth + TILE_K < k) {
      fetch(LOADS_A, TILE_M / WIDTH, a + (depth + TILE_K) * (m / WIDTH), m / WIDTH, item, next_a);
      fetch(LOADS_B, TILE_N / WIDTH, b_t + (depth + TILE_K) * (n / WIDTH), n / WIDTH, item, next_b);
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
