// C = alpha*A*B + beta*C for an A of a few rows, for CPUs: B is read once, in place, at the memory's speed.
//   a[i*a_row + p*a_column]      m x k; a_column is 1 unless b_column is
//   b[p*b_row + j*b_column]      k x n; b_column or b_row is 1
//   c[i*c_row + j*c_column]      m x n; not read when beta is 0
// A work-group computes ROWS rows x STRIP columns of C over one slice of k.
// If the rows of B are contiguous, it adds up multiples of rows: CHUNK rows for VECTORS vectors, then the same
// rows for the next vectors. So it uses few pages of memory at a time.
// If the columns of B are contiguous, it computes scalar products of VECTORS columns at a time.
// Split-k: each slice of k, slice_k long, has its own result. Slice s goes to c + s*c_slice.
// Work-groups: matrices x slices x (n/STRIP, rounded up) x (m/ROWS, rounded up), one work-item each.
#ifndef ROWS
#error "ROWS: rows of C at a time"
#endif
#ifndef VECTORS
#error "VECTORS: vectors, or columns, of B at a time"
#endif
#ifndef WIDTH
#error "WIDTH: floats per vector"
#endif
#ifndef STRIP
#error "STRIP: columns of C per work-group, a multiple of VECTORS*WIDTH"
#endif
#ifndef CHUNK
#error "CHUNK: rows of B at a time"
#endif
#ifndef PREFETCH
#error "PREFETCH: rows of B, or vectors of its columns, to prefetch ahead; 0 leaves it to the processor"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif
#define SPAN (VECTORS * WIDTH)

// Adds the multiples of rows `chunk` to `end` of B, COUNT vectors from column FIRST on, to SUMS, whose rows are
// PITCH floats apart.
#if PREFETCH
#define FETCH_ROW(COUNT, from) \
  _Pragma("unroll") for (int v = 0; v < COUNT * WIDTH; v += 16) FETCH(from + PREFETCH * b_row + v);
#else
#define FETCH_ROW(COUNT, from)
#endif
#define ADD_ROWS(COUNT, FIRST, SUMS, PITCH) { \
    FLOAT(WIDTH) sum[ROWS][COUNT]; \
    _Pragma("unroll") for (int i = 0; i < ROWS; i++) \
      _Pragma("unroll") for (int v = 0; v < COUNT; v++) sum[i][v] = LOAD(WIDTH, SUMS + i * PITCH + v * WIDTH); \
    for (int p = chunk; p < end; p++) { \
      __global const float* from = b + p * b_row + FIRST; \
      FETCH_ROW(COUNT, from) \
      FLOAT(WIDTH) x[COUNT]; \
      _Pragma("unroll") for (int v = 0; v < COUNT; v++) x[v] = LOAD(WIDTH, from + v * WIDTH); \
      _Pragma("unroll") for (int i = 0; i < ROWS; i++) { \
        const float scale = row[i][p * a_column]; \
        _Pragma("unroll") for (int v = 0; v < COUNT; v++) \
          sum[i][v] = MULTIPLY_ADD((FLOAT(WIDTH))(scale), x[v], sum[i][v]); \
      } \
    } \
    _Pragma("unroll") for (int i = 0; i < ROWS; i++) \
      _Pragma("unroll") for (int v = 0; v < COUNT; v++) STORE(WIDTH, sum[i][v], SUMS + i * PITCH + v * WIDTH); \
  }

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void skinny_product(const int m, const int n, const int k, const int slice_k, const int4 counts,
                    const float alpha, const float beta,
                    __global const float* restrict a, const long a_offset, const long a_row, const long a_column, const long4 a_strides,
                    __global const float* restrict b, const long b_offset, const long b_row, const long b_column, const long4 b_strides,
                    __global float* restrict c, const long c_offset, const long c_row, const long c_column,
                    const long c_slice, const long4 c_strides) {
  const int strips = (n + STRIP - 1) / STRIP, parts = (m + ROWS - 1) / ROWS, slices = (k + slice_k - 1) / slice_k;
  uint group = get_group_id(0);
  // Neighbours read the same part of B, so that it comes from a cache the second time.
  const int row_0 = group % parts * ROWS, rows = min(ROWS, m - row_0);
  group /= parts;
  const int column_0 = group % strips * STRIP, columns = min(STRIP, n - column_0);
  group /= strips;
  const int slice = group % slices, first = slice * slice_k, last = min(first + slice_k, k);
  const uint matrix = group / slices;

  a += a_offset + matrix_offset(matrix, counts, a_strides);
  b += b_offset + matrix_offset(matrix, counts, b_strides) + column_0 * b_column;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + row_0 * c_row + column_0 * c_column + slice * c_slice;
  __global const float* row[ROWS];  // rows past the last repeat it
  #pragma unroll
  for (int i = 0; i < ROWS; i++) row[i] = a + min(row_0 + i, m - 1) * a_row;

  float total[ROWS * STRIP];
  for (int i = 0; i < ROWS * STRIP; i++) total[i] = 0.0f;
  float tail[ROWS * WIDTH];  // of the last WIDTH columns, if whole vectors leave some
  for (int i = 0; i < ROWS * WIDTH; i++) tail[i] = 0.0f;

  if (b_column == 1) {
    for (int chunk = first; chunk < last; chunk += CHUNK) {
      const int end = min(chunk + CHUNK, last);
      int j = 0;
      for (; j + SPAN <= columns; j += SPAN) ADD_ROWS(VECTORS, j, total + j, STRIP)
      for (; j + WIDTH <= columns; j += WIDTH) ADD_ROWS(1, j, total + j, STRIP)
      if (j == columns) continue;
      if (columns >= WIDTH) {
        ADD_ROWS(1, columns - WIDTH, tail, WIDTH)
      } else {
        for (; j < columns; j++)
          for (int p = chunk; p < end; p++)
            #pragma unroll
            for (int i = 0; i < ROWS; i++) total[i * STRIP + j] += row[i][p * a_column] * b[p * b_row + j];
      }
    }
    if (columns >= WIDTH)
      for (int i = 0; i < ROWS; i++)
        for (int j = columns - columns % WIDTH; j < columns; j++)
          total[i * STRIP + j] = tail[i * WIDTH + j - (columns - WIDTH)];
  } else {
    for (int j = 0; j < columns; j += VECTORS) {
      __global const float* column[VECTORS];  // columns past the last repeat it
      #pragma unroll
      for (int v = 0; v < VECTORS; v++) column[v] = b + min(j + v, columns - 1) * b_column;
      FLOAT(WIDTH) sum[ROWS][VECTORS];
      #pragma unroll
      for (int i = 0; i < ROWS; i++)
        #pragma unroll
        for (int v = 0; v < VECTORS; v++) sum[i][v] = (FLOAT(WIDTH))(0.0f);
      int p = first;
      for (; p + WIDTH <= last; p += WIDTH) {
#if PREFETCH
        #pragma unroll
        for (int v = 0; v < VECTORS; v++) FETCH(column[v] + p + PREFETCH * WIDTH);
#endif
        FLOAT(WIDTH) x[VECTORS];
        #pragma unroll
        for (int v = 0; v < VECTORS; v++) x[v] = LOAD(WIDTH, column[v] + p);
        #pragma unroll
        for (int i = 0; i < ROWS; i++) {
          const FLOAT(WIDTH) y = LOAD(WIDTH, row[i] + p);
          #pragma unroll
          for (int v = 0; v < VECTORS; v++) sum[i][v] = MULTIPLY_ADD(y, x[v], sum[i][v]);
        }
      }
      #pragma unroll
      for (int i = 0; i < ROWS; i++)
        #pragma unroll
        for (int v = 0; v < VECTORS; v++) {
          float lanes[WIDTH], result = 0.0f;
          STORE(WIDTH, sum[i][v], lanes);
          #pragma unroll
          for (int lane = 0; lane < WIDTH; lane++) result += lanes[lane];
          for (int q = p; q < last; q++) result += row[i][q] * column[v][q];
          if (j + v < columns) total[i * STRIP + j + v] = result;
        }
    }
  }

  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) store_element(c + i * c_row + j * c_column, alpha * total[i * STRIP + j], beta);
}
