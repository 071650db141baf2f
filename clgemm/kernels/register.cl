// C = alpha*A*B + beta*C over packed panels, for processors with vector registers and caches.
//   a[first*rows_a + (panel*depth + p - first)*WORK_M + i]     rows    panel*WORK_M + i of A, column p
//   a[(panel*WORK_M + i)*a_row + p]                            the same with IN_PLACE: A where it lies
//   b[first*rows_b + (panel*depth + p - first)*WORK_N + j]     columns panel*WORK_N + j of B, row p
//   c[i*c_row + j*c_column]                                    m x n; not read when beta is 0
// where first = p/block_k*block_k is where the block of p begins, depth its length, rows_a and rows_b m and
// n rounded up to whole panels (of WORK_N = VECTORS*WIDTH for B); panels are zero-padded.
// block_m panels of A are multiplied with block_n panels of B, a WORK_M x WORK_N block of C at a time
// in vector registers: the panel of A stays in the first-level cache while it meets the panels
// of B, which stay in the second while the panels of A pass. Blocks of k follow one another, each
// adding to C what it has summed.
// Several slices of k, slice_k long each, are several results: slice s goes to c + s*c_slice.
// Work-groups: `blocks`, which is matrices x slices x blocks of A x blocks of B, one work-item each. With
// DRAW, as many as there are compute units: each draws one block after the other from tickets[0], so
// that one slowed down by another program draws fewer. Both tickets are 0 before and after.
// After: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008; Van Zee and
// van de Geijn, "BLIS: a framework for rapidly instantiating BLAS functionality", 2015.
#ifndef WORK_M
#error "WORK_M: rows of C in registers"
#endif
#ifndef VECTORS
#error "VECTORS: vectors of each row of C in registers"
#endif
#ifndef WIDTH
#error "WIDTH: floats per vector"
#endif
#ifndef UNROLL
#error "UNROLL: steps of the loop over k written out"
#endif
#ifndef PREFETCH
#error "PREFETCH: steps over k by which B is fetched ahead; 0 leaves it to the processor"
#endif
#ifndef IN_PLACE
#error "IN_PLACE: 1 to read A where it lies, its rows along k; 0 for panels of it"
#endif
#ifndef DRAW
#error "DRAW: 1 for work-groups that draw their blocks, 0 for a work-group per block"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif
#define WORK_N (VECTORS * WIDTH)
#define LINE 16  // floats in a cache line

// One WORK_M x WORK_N block of C: its first `rows` x `columns` elements, of which the first `vectors`
// vectors of each row are all there is. The compiler makes a copy for each number of vectors; loops that
// it is to unroll have bounds that do not wait for that.
static inline __attribute__((always_inline)) void multiply_panels(
    const int vectors, const int rows, const int columns, const int depth, const float alpha, const float beta,
    __global const float* a, const long a_row, __global const float* b, __global float* c, const long c_row,
    const long c_column) {
  FLOAT(WIDTH) sum[WORK_M][VECTORS];
#if IN_PLACE
  long row_of[WORK_M];  // those past the last are the last: what they give is not stored
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) row_of[i] = min(i, rows - 1) * a_row;
#define A(i) a[row_of[i]]
#define A_STEP 1
#else
#define A(i) a[i]
#define A_STEP WORK_M
#endif
#if PREFETCH
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < WORK_N; j += LINE)
      if (j < vectors * WIDTH) FETCH(c + i * c_row + j * c_column);
#endif
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < VECTORS; j++) sum[i][j] = (FLOAT(WIDTH))(0.0f);

  #pragma unroll UNROLL
  for (int p = 0; p < depth; p++) {
    FLOAT(WIDTH) row[VECTORS];
#if PREFETCH
    #pragma unroll
    for (int j = 0; j < WORK_N; j += LINE)
      if (j < vectors * WIDTH) FETCH(b + PREFETCH * WORK_N + j);
#endif
    #pragma unroll
    for (int j = 0; j < VECTORS; j++)
      if (j < vectors) row[j] = LOAD_ALIGNED(WIDTH, __global, b + j * WIDTH);
    #pragma unroll
    for (int i = 0; i < WORK_M; i++)
      #pragma unroll
      for (int j = 0; j < VECTORS; j++)
        if (j < vectors) sum[i][j] = MULTIPLY_ADD((FLOAT(WIDTH))(A(i)), row[j], sum[i][j]);
    a += A_STEP;
    b += WORK_N;
  }

  // The epilogue: alpha and beta, whole vectors inside the matrix, single elements along its edge.
  if (rows >= WORK_M && columns >= vectors * WIDTH && c_column == 1) {
    #pragma unroll
    for (int i = 0; i < WORK_M; i++)
      #pragma unroll
      for (int j = 0; j < VECTORS; j++) {
        if (j >= vectors) continue;
        __global float* element = c + i * c_row + j * WIDTH;
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
        __global float* element = c + i * c_row + j * c_column;
        *element = beta == 0.0f ? values[i * WORK_N + j] : values[i * WORK_N + j] + beta * *element;
      }
  }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void register_product(const int m, const int n, const int k, const int slice_k,
                      const int block_m, const int block_n, const int block_k,
                      const int4 counts, const float alpha, const float beta,
                      __global const float* restrict a, const long a_offset, const long a_row,
                      const long4 a_strides,
                      __global const float* restrict b, const long4 b_strides,
                      __global float* restrict c, const long c_offset, const long c_row, const long c_column,
                      const long c_slice, const long4 c_strides,
                      const int blocks, __global volatile int* restrict tickets) {
  const int panels_m = (m + WORK_M - 1) / WORK_M, panels_n = (n + WORK_N - 1) / WORK_N;
  const int blocks_m = (panels_m + block_m - 1) / block_m, blocks_n = (panels_n + block_n - 1) / block_n;
  const int slices = (k + slice_k - 1) / slice_k;

#if DRAW
  for (int next = atomic_inc(tickets); next < blocks; next = atomic_inc(tickets)) {
#else
  {
    const int next = get_group_id(0);
#endif
    int block = next;
    const int first_n = block % blocks_n * block_n, last_n = min(first_n + block_n, panels_n);
    block /= blocks_n;
    const int first_m = block % blocks_m * block_m, last_m = min(first_m + block_m, panels_m);
    block /= blocks_m;
    const int slice = block % slices, first_k = slice * slice_k, last_k = min(first_k + slice_k, k);
    const uint matrix = block / slices;

    __global const float* a_matrix = a + a_offset + matrix_offset(matrix, counts, a_strides);
    __global const float* b_matrix = b + matrix_offset(matrix, counts, b_strides);
    __global float* c_matrix = c + c_offset + matrix_offset(matrix, counts, c_strides) + slice * c_slice;

    for (int p = first_k; p < last_k; p += block_k) {
      const int depth = min(block_k, last_k - p);
      const float keep = p == first_k ? beta : 1.0f;
#if IN_PLACE
      __global const float* a_block = a_matrix + p;
      const long a_panel_size = WORK_M * a_row;
#else
      __global const float* a_block = a_matrix + (long)p * panels_m * WORK_M;
      const long a_panel_size = depth * WORK_M;
#endif
      __global const float* b_block = b_matrix + (long)p * panels_n * WORK_N;
      for (int panel_m = first_m; panel_m < last_m; panel_m++)
        for (int panel_n = first_n; panel_n < last_n; panel_n++) {
          const int rows = m - panel_m * WORK_M, columns = n - panel_n * WORK_N;
          __global const float* a_panel = a_block + panel_m * a_panel_size;
          __global const float* b_panel = b_block + (long)panel_n * depth * WORK_N;
          __global float* c_panel = c_matrix + panel_m * WORK_M * c_row + panel_n * WORK_N * c_column;
#define MULTIPLY(vectors) \
  multiply_panels(vectors, rows, columns, depth, alpha, keep, a_panel, a_row, b_panel, c_panel, c_row, c_column)
#if VECTORS > 1
          if (columns <= WIDTH) {
            MULTIPLY(1);
            continue;
          }
#endif
#if VECTORS > 2
          if (columns <= 2 * WIDTH) {
            MULTIPLY(2);
            continue;
          }
#endif
          MULTIPLY(VECTORS);
        }
    }
  }
#if DRAW
  // The last work-group to end leaves the tickets as they were.
  if (atomic_inc(tickets + 1) == (int)get_num_groups(0) - 1) {
    atomic_xchg(tickets, 0);
    atomic_xchg(tickets + 1, 0);
  }
#endif
}
