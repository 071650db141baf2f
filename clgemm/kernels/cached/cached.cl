// C = alpha*A*B + beta*C from packed panels that work-items read through the caches: for GPUs whose local memory
// is ordinary memory, where a tile copied there is read no faster.
//   a[panel*a_panel + p*TILE_M + i]   row panel*TILE_M + i of A, column p; zero past the last row
//   b[panel*b_panel + p*TILE_N + j]   column panel*TILE_N + j of B, row p; zero past the last column
//   c[i*c_row + j*c_column]           m x n; not read when beta is 0
// A work-group computes a tile of C. A work-item computes WORK_M neighbouring rows of it in registers, and WORK_N
// columns in chunks of WIDTH_B that alternate with those of its neighbours, so that together they read a row of B.
// Nothing is shared but the caches: there is no barrier.
// Split-k: slice s, slice_k long, goes to c + s*c_slice.
// Work-groups: matrices x slices x tiles of C, (TILE_M/WORK_M)*(TILE_N/WORK_N) work-items each.
#ifndef TILE_M
#error "TILE_M: rows of C per work-group"
#endif
#ifndef TILE_N
#error "TILE_N: columns of C per work-group"
#endif
#ifndef WORK_M
#error "WORK_M: rows of C per work-item"
#endif
#ifndef WORK_N
#error "WORK_N: columns of C per work-item"
#endif
#ifndef WIDTH_A
#error "WIDTH_A: floats per load of A"
#endif
#ifndef WIDTH_B
#error "WIDTH_B: floats per load of B and per store of C"
#endif
#ifndef UNROLL
#error "UNROLL: steps over k written out"
#endif
#ifndef SWIZZLE
#error "SWIZZLE: rows of tiles that work-groups visit together"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif
#define ITEMS_N (TILE_N / WORK_N)
#define ITEMS (TILE_M / WORK_M * ITEMS_N)
#define CHUNKS_M (WORK_M / WIDTH_A)
#define CHUNKS_N (WORK_N / WIDTH_B)

// One step over k.
#define MULTIPLY                                                                                                  \
  {                                                                                                               \
    float a_p[WORK_M];                                                                                            \
    FLOAT(WIDTH_B) b_p[CHUNKS_N];                                                                                 \
    _Pragma("unroll") for (int i = 0; i < CHUNKS_M; i++)                                                          \
      STORE(WIDTH_A, LOAD_ALIGNED(WIDTH_A, __global, a + i * WIDTH_A), a_p + i * WIDTH_A);                        \
    _Pragma("unroll") for (int j = 0; j < CHUNKS_N; j++)                                                          \
      b_p[j] = LOAD_ALIGNED(WIDTH_B, __global, b + j * ITEMS_N * WIDTH_B);                                        \
    _Pragma("unroll") for (int i = 0; i < WORK_M; i++)                                                            \
      _Pragma("unroll") for (int j = 0; j < CHUNKS_N; j++)                                                        \
        sum[i][j] = MULTIPLY_ADD((FLOAT(WIDTH_B))(a_p[i]), b_p[j], sum[i][j]);                                    \
    a += TILE_M;                                                                                                  \
    b += TILE_N;                                                                                                  \
  }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void cached_product(const int m, const int n, const int k, const int slice_k, const int4 counts, const float alpha, const float beta,
                  __global const float* restrict a, const long a_offset, const long a_panel, const long4 a_strides,
                  __global const float* restrict b, const long b_offset, const long b_panel, const long4 b_strides,
                  __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long c_slice,
                  const long4 c_strides GATE_ARGUMENTS) {
  if (GATE_IS_CLOSED) return;
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, slices = (k + slice_k - 1) / slice_k;
  const int tiles = tiles_of_rows(tiles_m, tiles_n, TILE_M, TILE_N);
  const uint group = get_group_id(0), result = group / tiles, slice = result % slices, matrix = result / slices;
  const Place place = swizzled(group % tiles, tiles_m, tiles_n, SWIZZLE, TILE_M, TILE_N);
  const int x = get_local_id(0) % ITEMS_N, y = get_local_id(0) / ITEMS_N;
  const int first = slice * slice_k, depth = min(slice_k, k - first);
  a += a_offset + matrix_offset(matrix, counts, a_strides) + place.m * a_panel + (long)first * TILE_M + y * WORK_M;
  b += b_offset + matrix_offset(matrix, counts, b_strides) + place.n * b_panel + (long)first * TILE_N + x * WIDTH_B;

  FLOAT(WIDTH_B) sum[WORK_M][CHUNKS_N];
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < CHUNKS_N; j++) sum[i][j] = (FLOAT(WIDTH_B))(0.0f);
  for (int p = 0; p < depth / UNROLL; p++) {
    #pragma unroll
    for (int step = 0; step < UNROLL; step++) MULTIPLY
  }
  for (int p = 0; p < depth % UNROLL; p++) MULTIPLY

  const int row_0 = place.m * TILE_M + y * WORK_M;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + slice * c_slice;
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) {
    if (row_0 + i < m) {
      #pragma unroll
      for (int j = 0; j < CHUNKS_N; j++) {
        const int column = place.n * TILE_N + (j * ITEMS_N + x) * WIDTH_B;
        STORE_RUN(WIDTH_B)(c + (row_0 + i) * c_row + column * c_column, c_column, column, n, alpha * sum[i][j], beta);
      }
    }
  }
}
