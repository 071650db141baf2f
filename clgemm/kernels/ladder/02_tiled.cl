// Rung 2, tiling in local memory: a work-group loads tiles of A and B that all its work-items share.
//   a[p*m + i]       m x k        tile_a[p][i]    the same order
//   b[j*k + p]       k x n        tile_b[j][p]    the same order
//   c[j*m + i]       m x n
// New: the sum over k has steps of TILE. In each step the work-items copy one square tile of A and one
//   of B into local memory, wait for each other, and multiply the tiles.
//
//            k ->                 n ->
//      m  . . . .           k  . . # .          A work-group computes one tile of C. It steps along
//      |  # # # #   of A    |  . . # .   of B   a row # of A's tiles and a column # of B's tiles.
//      v  . . . .           v  . . # .
//
// Why: TILE work-items use each loaded element, so A and B are read TILE times less often.
// Work-group: (TILE, TILE). Local memory: 8*TILE*TILE bytes. Limits: m, n, k multiples of TILE.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 2.
#ifndef TILE
#error "TILE: side of the square tiles of A, B and C"
#endif

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void multiply(const int m, const int n, const int k, __global const float* restrict a,
              __global const float* restrict b, __global float* restrict c) {
  __local float tile_a[TILE][TILE];
  __local float tile_b[TILE][TILE];
  const int item_m = get_local_id(0), item_n = get_local_id(1);
  const int row = get_global_id(0), column = get_global_id(1);

  float sum = 0.0f;
  for (int depth = 0; depth < k; depth += TILE) {
    tile_a[item_n][item_m] = a[(depth + item_n) * m + row];
    tile_b[item_n][item_m] = b[column * k + depth + item_m];
    barrier(CLK_LOCAL_MEM_FENCE);  // the tiles are complete

    for (int p = 0; p < TILE; p++) sum += tile_a[p][item_m] * tile_b[item_n][p];
    barrier(CLK_LOCAL_MEM_FENCE);  // all work-items have read them
  }
  c[column * m + row] = sum;
}
