// C = A B from panels, or C = C + A B with `adds`; in lanes that wrap around, or that add up floats.
//   a[(panel*depth + p)*ROWS + i]            row panel*ROWS + i of A, step p
//   b[(panel*depth + p)*VECTORS*WIDTH + j]   column panel*VECTORS*WIDTH + j of B, step p
//   c[i*c_row + j*c_column]                  m x n
// With LANE 0, 32 steps of k are the bits of a word, and an element is whether any of a & b is set.
// Work-groups: matrices x panels of B x panels of A, of one work-item each. Those that follow each other
// share a panel of B, which stays in the second-level cache.
#ifndef ROWS
#error "ROWS: rows of C in registers"
#endif
#ifndef VECTORS
#error "VECTORS: vectors of each row of C in registers"
#endif
#ifndef WIDTH
#error "WIDTH: lanes per vector"
#endif
#ifndef UNROLL
#error "UNROLL: of the steps over k"
#endif
#define COLUMNS (VECTORS * WIDTH)

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void exact_product(const int m, const int n, const int depth, const int adds, const int4 counts,
            __global const LANE_TYPE* restrict a, __global const LANE_TYPE* restrict b,
            __global STORED_TYPE* restrict c, const long c_offset, const long c_row, const long c_column,
            const long4 c_strides) {
  const int panels_m = (m + ROWS - 1) / ROWS, panels_n = (n + COLUMNS - 1) / COLUMNS;
  const uint group = get_group_id(0), matrix = group / (panels_m * panels_n);
  const int panel_m = group % panels_m, panel_n = group / panels_m % panels_n;
  a += ((long)matrix * panels_m + panel_m) * depth * ROWS;
  b += ((long)matrix * panels_n + panel_n) * depth * COLUMNS;
  LANES(WIDTH) sum[ROWS][VECTORS];
  #pragma unroll
  for (int i = 0; i < ROWS; i++) {
    #pragma unroll
    for (int j = 0; j < VECTORS; j++) sum[i][j] = (LANES(WIDTH))(0);
  }
#if UNROLL > 1
  #pragma unroll UNROLL
#endif
  for (int p = 0; p < depth; p++) {
    LANES(WIDTH) row[VECTORS];
    #pragma unroll
    for (int j = 0; j < VECTORS; j++) row[j] = LOAD(WIDTH, b + (long)p * COLUMNS + j * WIDTH);
    #pragma unroll
    for (int i = 0; i < ROWS; i++) {
      const LANES(WIDTH) x = (LANES(WIDTH))(a[(long)p * ROWS + i]);
      #pragma unroll
      for (int j = 0; j < VECTORS; j++) sum[i][j] = ADD(x, row[j], sum[i][j]);
    }
  }
  c += PARTS * (c_offset + matrix_offset(matrix, counts, c_strides));
  const int row_0 = panel_m * ROWS, column_0 = panel_n * COLUMNS;
  #pragma unroll
  for (int i = 0; i < ROWS; i++) {
    if (row_0 + i >= m) break;
    LANE_TYPE values[COLUMNS];
    #pragma unroll
    for (int j = 0; j < VECTORS; j++) STORE(WIDTH, sum[i][j], values + j * WIDTH);
    for (int j = 0; j < min(COLUMNS, n - column_0); j++)
      store_lane(c, PLACE_OF(row_0 + i, column_0 + j), values[j], adds);
  }
}
