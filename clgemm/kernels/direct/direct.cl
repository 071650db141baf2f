// C = alpha*A*B + beta*C for small products, in one launch. Operands have any strides; nothing is packed.
//   a[i*a_row + p*a_column]   m x k
//   b[p*b_row + j*b_column]   k x n
//   c[i*c_row + j*c_column]   m x n; not read when beta is 0
// Each work-item computes WORK_M rows and WIDTH columns of C. Past the edge it reads the last row or
// column again and does not store the result, so that the loop over k has no branches.
// Work-groups: matrices x (m/(ITEMS_M*WORK_M)) x (n/(ITEMS_N*WIDTH)), rounded up, ITEMS_M*ITEMS_N work-items each.
#ifndef ITEMS_M
#error "ITEMS_M: work-items along the rows of C"
#endif
#ifndef ITEMS_N
#error "ITEMS_N: work-items along the columns of C"
#endif
#ifndef WORK_M
#error "WORK_M: rows of C per work-item"
#endif
#ifndef WIDTH
#error "WIDTH: columns of C per work-item, one vector"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif

// Columns 0 to WIDTH-1 of a row of B; the last column is repeated from `columns` on.
static inline FLOAT(WIDTH) load_row(__global const float* row, const long stride, const int columns) {
  if (stride == 1 && columns >= WIDTH) return LOAD(WIDTH, row);
  float values[WIDTH];
  for (int j = 0; j < WIDTH; j++) values[j] = row[min(j, columns - 1) * stride];
  return LOAD(WIDTH, values);
}

__kernel __attribute__((reqd_work_group_size(ITEMS_M * ITEMS_N, 1, 1)))
void direct_product(const int m, const int n, const int k, const int4 counts, const float alpha, const float beta,
            __global const float* restrict a, const long a_offset, const long a_row, const long a_column, const long4 a_strides,
            __global const float* restrict b, const long b_offset, const long b_row, const long b_column, const long4 b_strides,
            __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long4 c_strides GATE_ARGUMENTS) {
  if (GATE_IS_CLOSED) return;
  const int groups_m = (m + ITEMS_M * WORK_M - 1) / (ITEMS_M * WORK_M), groups_n = (n + ITEMS_N * WIDTH - 1) / (ITEMS_N * WIDTH);
  const uint group = get_group_id(0), tile = group % (groups_m * groups_n), matrix = group / (groups_m * groups_n);
  const int row_0 = (tile / groups_n * ITEMS_M + get_local_id(0) / ITEMS_N) * WORK_M;
  const int column_0 = (tile % groups_n * ITEMS_N + get_local_id(0) % ITEMS_N) * WIDTH;
  const int columns = n - column_0;
  if (row_0 >= m || columns <= 0) return;

  a += a_offset + matrix_offset(matrix, counts, a_strides);
  b += b_offset + matrix_offset(matrix, counts, b_strides) + column_0 * b_column;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + column_0 * c_column;

  FLOAT(WIDTH) sum[WORK_M];
  long row[WORK_M];  // element offset of each row of A
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) {
    sum[i] = (FLOAT(WIDTH))(0.0f);
    row[i] = min(row_0 + i, m - 1) * a_row;
  }
  for (int p = 0; p < k; p++) {
    const FLOAT(WIDTH) b_p = load_row(b + p * b_row, b_column, columns);
    #pragma unroll
    for (int i = 0; i < WORK_M; i++)
      sum[i] = MULTIPLY_ADD((FLOAT(WIDTH))(a[row[i] + p * a_column]), b_p, sum[i]);
  }

  float values[WIDTH];
  for (int i = 0; i < min(WORK_M, m - row_0); i++) {
    STORE(WIDTH, alpha * sum[i], values);
    for (int j = 0; j < min(WIDTH, columns); j++)
      store_element(c + (row_0 + i) * c_row + j * c_column, values[j], beta);
  }
}
