// C = alpha*A*B + beta*C over packed panels, for processors with vector registers and caches.
//   a[panel*a_panel + p*WORK_M + i]           rows    panel*WORK_M + i of A, column p; zero-padded
//   b[panel*b_panel + p*VECTORS*WIDTH + j]    columns panel*VECTORS*WIDTH + j of B, row p; zero-padded
//   c[i*c_row + j*c_column]                   m x n; not read when beta is 0
// A work-group is one work-item: it multiplies BLOCK_M panels of A with one panel of B, the WORK_M x
// (VECTORS*WIDTH) block of C in vector registers. The plan cuts k so that the block of A stays in the
// second-level cache while work-groups of neighbouring panels of B pass over it, and the panel of B in
// the first while the panels of A do.
// Work-groups: matrices x blocks of A x panels of B, one work-item each.
// After: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
#ifndef WORK_M
#error "WORK_M: rows of C in registers"
#endif
#ifndef VECTORS
#error "VECTORS: vectors of each row of C in registers"
#endif
#ifndef WIDTH
#error "WIDTH: floats per vector"
#endif
#ifndef BLOCK_M
#error "BLOCK_M: panels of A per work-group"
#endif
#ifndef UNROLL
#error "UNROLL: steps of the loop over k written out"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif
#define WORK_N (VECTORS * WIDTH)

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void register_product(const int m, const int n, const int k, const int4 counts, const float alpha, const float beta,
                      __global const float* restrict a, const long a_offset, const long a_panel, const long4 a_strides,
                      __global const float* restrict b, const long b_offset, const long b_panel, const long4 b_strides,
                      __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long4 c_strides) {
  const int panels_m = (m + WORK_M - 1) / WORK_M, blocks_m = (panels_m + BLOCK_M - 1) / BLOCK_M;
  const int panels_n = (n + WORK_N - 1) / WORK_N;
  const uint group = get_group_id(0), block = group % (blocks_m * panels_n), matrix = group / (blocks_m * panels_n);
  const int panel_n = block % panels_n, first_m = block / panels_n * BLOCK_M, last_m = min(first_m + BLOCK_M, panels_m);

  a += a_offset + matrix_offset(matrix, counts, a_strides);
  b += b_offset + matrix_offset(matrix, counts, b_strides) + panel_n * b_panel;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + panel_n * WORK_N * c_column;
  const int columns = n - panel_n * WORK_N;

  for (int panel_m = first_m; panel_m < last_m; panel_m++) {
    __global const float* a_p = a + panel_m * a_panel;
    __global const float* b_p = b;
    FLOAT(WIDTH) sum[WORK_M][VECTORS];
    #pragma unroll
    for (int i = 0; i < WORK_M; i++)
      #pragma unroll
      for (int j = 0; j < VECTORS; j++) sum[i][j] = (FLOAT(WIDTH))(0.0f);

    #pragma unroll UNROLL
    for (int p = 0; p < k; p++) {
      FLOAT(WIDTH) row[VECTORS];
      #pragma unroll
      for (int j = 0; j < VECTORS; j++) row[j] = LOAD_ALIGNED(WIDTH, __global, b_p + j * WIDTH);
      #pragma unroll
      for (int i = 0; i < WORK_M; i++)
        #pragma unroll
        for (int j = 0; j < VECTORS; j++)
          sum[i][j] = MULTIPLY_ADD((FLOAT(WIDTH))(a_p[i]), row[j], sum[i][j]);
      a_p += WORK_M;
      b_p += WORK_N;
    }

    // The epilogue: alpha and beta, whole vectors inside the matrix, single elements along its edge.
    __global float* c_p = c + panel_m * WORK_M * c_row;
    const int rows = m - panel_m * WORK_M;
    if (rows >= WORK_M && columns >= WORK_N && c_column == 1) {
      #pragma unroll
      for (int i = 0; i < WORK_M; i++)
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) {
          __global float* element = c_p + i * c_row + j * WIDTH;
          FLOAT(WIDTH) result = alpha * sum[i][j];
          if (beta != 0.0f) result += beta * LOAD(WIDTH, element);
          STORE(WIDTH, result, element);
        }
    } else {
      float values[WORK_M * WORK_N];
      #pragma unroll
      for (int i = 0; i < WORK_M; i++)
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) STORE(WIDTH, alpha * sum[i][j], values + i * WORK_N + j * WIDTH);
      for (int i = 0; i < min(rows, WORK_M); i++)
        for (int j = 0; j < min(columns, WORK_N); j++) {
          __global float* element = c_p + i * c_row + j * c_column;
          *element = beta == 0.0f ? values[i * WORK_N + j] : values[i * WORK_N + j] + beta * *element;
        }
    }
  }
}
