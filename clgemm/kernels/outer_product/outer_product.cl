// C = alpha*A*B + beta*C with k of at most DEPTH, on lanes: a sum of few outer products. The time goes to the
// writing of C. Operands have any strides; nothing is packed.
//   a[i*a_row + p*a_column]   m x k
//   b[p*b_row + j*b_column]   k x n
//   c[i*c_row + j*c_column]   m x n; not read when beta is 0
// A work-group computes a tile of C. Its rows of A lie in local memory. Each work-item keeps WORK_N columns of
// B in registers. Both are zero from k to DEPTH.
//
//   columns of a tile        x    x + ITEMS_N   x + 2*ITEMS_N  ...   neighbours x write neighbours in C
//   rows                     y    y + ITEMS_M   y + 2*ITEMS_M  ...   WORK_M of them
//
// Rows of C may begin anywhere. With ALIGN above 1, a tile's columns begin up to ALIGN-1 earlier in some rows, so that
// neighbours write whole blocks of ALIGN floats: parts of a block cost the memory more. Then c_column is 1, and ALIGN
// divides ITEMS_M*c_row, so that all rows of a work-item have the same columns.
//
// Work-groups: matrices x (m/TILE_M) x ((n+ALIGN-1)/TILE_N), rounded up, ITEMS_M*ITEMS_N work-items each.
#ifndef ITEMS_M
#error "ITEMS_M: work-items along the rows of C"
#endif
#ifndef ITEMS_N
#error "ITEMS_N: work-items along the columns of C"
#endif
#ifndef WORK_M
#error "WORK_M: rows of C per work-item"
#endif
#ifndef WORK_N
#error "WORK_N: columns of C per work-item"
#endif
#ifndef DEPTH
#error "DEPTH: the largest k"
#endif
#ifndef ALIGN
#error "ALIGN: floats of a block that neighbours write as a whole; 1 if C may be written in parts"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif

#define ITEMS (ITEMS_M * ITEMS_N)
#define TILE_M (ITEMS_M * WORK_M)
#define TILE_N (ITEMS_N * WORK_N)

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void outer_product(const int m, const int n, const int k, const int4 counts, const float alpha, const float beta,
                   __global const float* restrict a, const long a_offset, const long a_row, const long a_column, const long4 a_strides,
                   __global const float* restrict b, const long b_offset, const long b_row, const long b_column, const long4 b_strides,
                   __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long4 c_strides GATE_ARGUMENTS) {
  __local float rows[TILE_M * DEPTH] __attribute__((aligned(64)));
  if (GATE_IS_CLOSED) return;
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + ALIGN - 1 + TILE_N - 1) / TILE_N;
  const uint group = get_group_id(0), tile = group % (tiles_m * tiles_n), matrix = group / (tiles_m * tiles_n);
  const int row_0 = tile / tiles_n * TILE_M, item = get_local_id(0), y = item / ITEMS_N;
  a += a_offset + matrix_offset(matrix, counts, a_strides) + row_0 * a_row;
  b += b_offset + matrix_offset(matrix, counts, b_strides);
  c += c_offset + matrix_offset(matrix, counts, c_strides) + row_0 * c_row;
  const int earlier = (int)((size_t)(c + y * c_row) / sizeof(float)) & (ALIGN - 1);
  const int x = tile % tiles_n * TILE_N + item % ITEMS_N - earlier;  // the first column; may be below 0, which is no column
  const int rows_here = min(TILE_M, m - row_0);

  // Neighbours read along the dimension in which A is contiguous.
  const bool along_k = a_column == 1;
  for (int e = item; e < TILE_M * DEPTH; e += ITEMS) {
    const int i = along_k ? e / DEPTH : e % TILE_M, p = along_k ? e % DEPTH : e / TILE_M;
    rows[i * DEPTH + p] = i < rows_here && p < k ? a[i * a_row + p * a_column] : 0.0f;
  }
  float columns[DEPTH][WORK_N];
  #pragma unroll
  for (int p = 0; p < DEPTH; p++) {
    #pragma unroll
    for (int j = 0; j < WORK_N; j++) {
      const int column = x + j * ITEMS_N;
      columns[p][j] = p < k && (uint)column < (uint)n ? b[p * b_row + column * b_column] : 0.0f;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  #pragma unroll 4
  for (int w = 0; w < WORK_M; w++) {
    const int i = w * ITEMS_M + y;
    float sum[WORK_N];
    #pragma unroll
    for (int j = 0; j < WORK_N; j++) sum[j] = 0.0f;
    #pragma unroll
    for (int p = 0; p < DEPTH; p++) {
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) sum[j] = MULTIPLY_ADD(rows[i * DEPTH + p], columns[p][j], sum[j]);
    }
    if (i < rows_here) {
      #pragma unroll
      for (int j = 0; j < WORK_N; j++) {
        const int column = x + j * ITEMS_N;
        if ((uint)column < (uint)n) store_element(c + i * c_row + column * c_column, alpha * sum[j], beta);
      }
    }
  }
}
