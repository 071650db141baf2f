// Rung 4, wider data types: work-items read and write vectors of WIDTH floats.
//   a[p*m + i]       m x k        tile_a[p][i]    vectors along i
//   b[j*k + p]       k x n        tile_b[j][p]    vectors along p
//   c[j*m + i]       m x n                        vectors along i
// New: pointers to vectors. A work-item of rung 3 computes several columns of C; here it computes WIDTH
//   rows of one column, which make one vector.
// Why: one instruction moves WIDTH floats between global memory, local memory and registers. WIDTH
//   multiply-adds share one element of B. CPUs have vector arithmetic, too.
// Work-group: (TILE/WIDTH, TILE). Local memory: 8*TILE*TILE bytes.
// Limits: m, n, k multiples of TILE; TILE a multiple of WIDTH; WIDTH 1, 2, 4 or 8.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 4.
#ifndef TILE
#error "TILE: side of the square tiles of A, B and C"
#endif
#ifndef WIDTH
#error "WIDTH: floats per vector, and rows of C per work-item"
#endif

#define float1 float
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define FLOATS JOIN(float, WIDTH)

// A tile that is written in vectors and read in floats.
typedef union {
  FLOATS wide[TILE][TILE / WIDTH];
  float single[TILE][TILE];
} Tile;

__kernel __attribute__((reqd_work_group_size(TILE / WIDTH, TILE, 1)))
void multiply(const int m, const int n, const int k, __global const FLOATS* restrict a,
              __global const FLOATS* restrict b, __global FLOATS* restrict c) {
  __local Tile tile_a, tile_b;
  const int item_m = get_local_id(0), item_n = get_local_id(1);
  const int row = get_global_id(0), column = get_global_id(1);  // rows in vectors

  FLOATS sum = (FLOATS)(0.0f);
  for (int depth = 0; depth < k; depth += TILE) {
    tile_a.wide[item_n][item_m] = a[(depth + item_n) * (m / WIDTH) + row];
    tile_b.wide[item_n][item_m] = b[column * (k / WIDTH) + depth / WIDTH + item_m];
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int p = 0; p < TILE; p++) sum += tile_a.wide[p][item_m] * tile_b.single[item_n][p];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[column * (m / WIDTH) + row] = sum;
}
