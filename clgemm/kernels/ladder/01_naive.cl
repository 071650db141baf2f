// Rung 1, naive: C = A*B by one work-item for each element of C.
//   a[p*m + i]   m x k, column-major
//   b[j*k + p]   k x n, column-major
//   c[j*m + i]   m x n, column-major
// New: a grid of work-items replaces the loops over rows and columns. Only the sum over k is a loop.
// Why: m*n independent sums keep any device busy. Rows run along dimension 0, so that adjacent
//   work-items read adjacent elements of A and write adjacent elements of C, which memory serves together.
// Left to gain: each element of A is read n times, and each element of B m times.
// Work-group: (TILE, TILE). Local memory: none. Limits: m and n are multiples of TILE.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernel 1.
#ifndef TILE
#error "TILE: rows and columns of C per work-group"
#endif

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void multiply(const int m, const int n, const int k, __global const float* restrict a,
              __global const float* restrict b, __global float* restrict c) {
  const int row = get_global_id(0), column = get_global_id(1);
  float sum = 0.0f;
  for (int p = 0; p < k; p++) sum += a[p * m + row] * b[column * k + p];
  c[column * m + row] = sum;
}
