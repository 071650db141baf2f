// Rung 11, after clBlas: register blocks and wide loads, but no local memory.
//   a[p*m + i]       m x k, vectors of WORK_M along i
//   b[j*k + p]       k x n, vectors of WIDTH along p; not transposed
//   c[j*m + i]       m x n, vectors of WORK_M along i
// New: a side step from the ladder. A work-item computes WORK_M adjacent rows and WORK_N adjacent columns
//   of C. In each step it loads WIDTH vectors of A and WORK_N vectors of B straight into registers:
//
//               k ->                  n ->
//         m   [a][a][a][a]        k   b b b b        [a]: a vector of WORK_M rows
//         |   WIDTH columns       |   b b b b         b : a vector of WIDTH elements along k
//         v                       v
//
// Why: there is nothing to wait for and nothing to copy, and the kernel is short. Neighbours share what
//   they read through the caches alone.
// Cost: a step reads WIDTH*(WORK_M + WORK_N) floats from global memory or a cache, for
//   2*WIDTH*WORK_M*WORK_N flops. With 8 x 4 that is 1.3 flops per byte. Rung 6 has 32.
//   Adjacent work-items read vectors of A that are adjacent, but vectors of B that are WORK_N*k floats apart.
// Work-group: (TILE_M/WORK_M, TILE_N/WORK_N). Local memory: none.
// Limits: m, n, k multiples of TILE_M, TILE_N, WIDTH; WORK_M and WIDTH 1, 2, 4 or 8; TILE_M and TILE_N
//   multiples of WORK_M and WORK_N.
// After: Nugteren, myGEMM's kernel 11, which imitates clBlas 2.2 with 8 x 8 work-items and blocks of 8 x 4.
#ifndef TILE_M
#error "TILE_M: rows of C per work-group"
#endif
#ifndef TILE_N
#error "TILE_N: columns of C per work-group"
#endif
#ifndef WORK_M
#error "WORK_M: rows of C per work-item, and floats per vector of A and C"
#endif
#ifndef WORK_N
#error "WORK_N: columns of C per work-item"
#endif
#ifndef WIDTH
#error "WIDTH: floats per vector of B, and steps along k at a time"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)

#define float1 float
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define ROWS JOIN(float, WORK_M)
#define FLOATS JOIN(float, WIDTH)

// A vector of B that is loaded at once and read in floats.
typedef union {
  FLOATS wide;
  float single[WIDTH];
} Part;

__kernel __attribute__((reqd_work_group_size(ITEMS_M, ITEMS_N, 1)))
void multiply(const int m, const int n, const int k, __global const ROWS* restrict a,
              __global const FLOATS* restrict b, __global ROWS* restrict c) {
  const int row = get_global_id(0), column_0 = get_global_id(1) * WORK_N;  // rows in vectors

  ROWS sum[WORK_N];
  #pragma unroll
  for (int j = 0; j < WORK_N; j++) sum[j] = (ROWS)(0.0f);

  for (int depth = 0; depth < k; depth += WIDTH) {
    Part b_j[WORK_N];
    #pragma unroll
    for (int j = 0; j < WORK_N; j++) b_j[j].wide = b[(column_0 + j) * (k / WIDTH) + depth / WIDTH];
    #pragma unroll
    for (int p = 0; p < WIDTH; p++) {
      const ROWS a_p = a[(depth + p) * (m / WORK_M) + row];
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) sum[j] += a_p * b_j[j].single[p];
    }
  }

  #pragma unroll
  for (int j = 0; j < WORK_N; j++) c[(column_0 + j) * (m / WORK_M) + row] = sum[j];
}
