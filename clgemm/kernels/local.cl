// C = alpha*A*B + beta*C over panels, through tiles in local memory.
//   a[panel*a_panel + p*a_pitch + i]   rows    panel*TILE_M + i of A, column p; zero-padded
//   b[panel*b_panel + p*b_pitch + j]   columns panel*TILE_N + j of B, row p; zero-padded
//   c[i*c_row + j*c_column]            m x n; not read when beta is 0
// Packed panels have a pitch of TILE_M (TILE_N) and lie k*pitch apart; a matrix that is not packed has
// its own leading dimension for a pitch and panels TILE_M (TILE_N) apart. Padding is only ever
// multiplied by padding or for elements of C that are not stored, so no NaN can come from it.
//
// A work-group computes one tile of C; each of its work-items WORK_M rows and WORK_N columns, in
// registers: chunks of WIDTH_A rows and WIDTH_B columns that neighbouring work-items interleave, so
// that together they read and write runs of addresses.
//
//     columns  x=0 x=1 x=2 x=3 x=0 x=1 x=2 x=3      y=0   x: work-item along N, WIDTH_B columns a chunk
//     rows     y=0  #               #               y=1   y: work-item along M, WIDTH_A rows a chunk
//              y=1                                  y=0   #: the chunks of work-item (x=0, y=0), here
//              y=0  #               #               y=1      with two chunks either way
//
// BUFFERS 2 fetches the next tile from global memory into registers while the present one is being
// multiplied, and needs one barrier a tile where BUFFERS 1 needs two.
// Work-groups: matrices x tiles of C, ITEMS work-items each. Local: 4*BUFFERS*TILE_K*(TILE_M+TILE_N) bytes.
// After: Nugteren, "OpenCL SGEMM tuning for Kepler", kernels 6, 7, 9 and 10.
#ifndef TILE_M
#error "TILE_M: rows of C per work-group"
#endif
#ifndef TILE_N
#error "TILE_N: columns of C per work-group"
#endif
#ifndef TILE_K
#error "TILE_K: depth of the tiles in local memory"
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
#error "UNROLL: steps of the loop over a tile's depth written out"
#endif
#ifndef BUFFERS
#error "BUFFERS: tiles of A and B in local memory, 1 or 2"
#endif
#ifndef SWIZZLE
#error "SWIZZLE: rows of tiles that work-groups visit together"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define ITEMS (ITEMS_M * ITEMS_N)
#define CHUNKS_M (WORK_M / WIDTH_A)
#define CHUNKS_N (WORK_N / WIDTH_B)
#define LOADS_A (TILE_M * TILE_K / WIDTH_A / ITEMS)  // vectors of a tile that each work-item fetches
#define LOADS_B (TILE_N * TILE_K / WIDTH_B / ITEMS)
#define SIZE_A (TILE_M * TILE_K)
#define SIZE_B (TILE_N * TILE_K)

// Fetch this work-item's share of the tile of panel `from` that begins at depth 0, vector by vector.
#define FETCH(SIDE, TILE, WIDTH, from, pitch, TO)                                             \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++) {                         \
    const int vector = load * ITEMS + item;                                                   \
    TO(load, vector * WIDTH) = LOAD_ALIGNED(WIDTH, __global,                                  \
        from + vector / (TILE / WIDTH) * pitch + vector % (TILE / WIDTH) * WIDTH);            \
  }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void local_product(const int m, const int n, const int k, const int4 counts, const float alpha, const float beta,
                 __global const float* restrict a, const long a_offset, const long a_panel, const long a_pitch, const long4 a_strides,
                 __global const float* restrict b, const long b_offset, const long b_panel, const long b_pitch, const long4 b_strides,
                 __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long4 c_strides GATE_ARGUMENTS) {
  GATE
  __local float tile_a[BUFFERS * SIZE_A] __attribute__((aligned(64)));
  __local float tile_b[BUFFERS * SIZE_B] __attribute__((aligned(64)));

  // Neighbouring work-groups take SWIZZLE tiles of one column before they move to the next column.
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N;
  const uint group = get_group_id(0), tile = group % (tiles_m * tiles_n), matrix = group / (tiles_m * tiles_n);
  const int first_m = tile / (SWIZZLE * tiles_n) * SWIZZLE, band = min(SWIZZLE, tiles_m - first_m);
  const int tile_m = first_m + tile % (SWIZZLE * tiles_n) % band, tile_n = tile % (SWIZZLE * tiles_n) / band;
  const int item = get_local_id(0), x = item % ITEMS_N, y = item / ITEMS_N;

  a += a_offset + matrix_offset(matrix, counts, a_strides) + tile_m * a_panel;
  b += b_offset + matrix_offset(matrix, counts, b_strides) + tile_n * b_panel;
  c += c_offset + matrix_offset(matrix, counts, c_strides);

  FLOAT(WIDTH_B) sum[WORK_M][CHUNKS_N];
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < CHUNKS_N; j++) sum[i][j] = (FLOAT(WIDTH_B))(0.0f);

#define TO_LOCAL_A(load, element) *(__local FLOAT(WIDTH_A)*)(tile_a + (element))
#define TO_LOCAL_B(load, element) *(__local FLOAT(WIDTH_B)*)(tile_b + (element))
#if BUFFERS == 2
  FLOAT(WIDTH_A) next_a[LOADS_A];
  FLOAT(WIDTH_B) next_b[LOADS_B];
#define TO_NEXT_A(load, element) next_a[load]
#define TO_NEXT_B(load, element) next_b[load]
  FETCH(A, TILE_M, WIDTH_A, a, a_pitch, TO_LOCAL_A)
  FETCH(B, TILE_N, WIDTH_B, b, b_pitch, TO_LOCAL_B)
  barrier(CLK_LOCAL_MEM_FENCE);
  int now = 0;  // which of the two buffers is being read
#else
  const int now = 0;
#endif

  for (int depth = 0; depth < k; depth += TILE_K) {
#if BUFFERS == 2
    const bool more = depth + TILE_K < k;
    if (more) {
      a += TILE_K * a_pitch;
      b += TILE_K * b_pitch;
      FETCH(A, TILE_M, WIDTH_A, a, a_pitch, TO_NEXT_A)
      FETCH(B, TILE_N, WIDTH_B, b, b_pitch, TO_NEXT_B)
    }
#else
    FETCH(A, TILE_M, WIDTH_A, a, a_pitch, TO_LOCAL_A)
    FETCH(B, TILE_N, WIDTH_B, b, b_pitch, TO_LOCAL_B)
    a += TILE_K * a_pitch;
    b += TILE_K * b_pitch;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    #pragma unroll UNROLL
    for (int p = 0; p < TILE_K; p++) {
      __local const float* row_a = tile_a + now * SIZE_A + p * TILE_M + y * WIDTH_A;
      __local const float* row_b = tile_b + now * SIZE_B + p * TILE_N + x * WIDTH_B;
      float a_p[WORK_M];
      FLOAT(WIDTH_B) b_p[CHUNKS_N];
      #pragma unroll
      for (int i = 0; i < CHUNKS_M; i++)
        STORE(WIDTH_A, LOAD_ALIGNED(WIDTH_A, __local, row_a + i * ITEMS_M * WIDTH_A), a_p + i * WIDTH_A);
      #pragma unroll
      for (int j = 0; j < CHUNKS_N; j++)
        b_p[j] = LOAD_ALIGNED(WIDTH_B, __local, row_b + j * ITEMS_N * WIDTH_B);
      #pragma unroll
      for (int i = 0; i < WORK_M; i++)
        #pragma unroll
        for (int j = 0; j < CHUNKS_N; j++)
          sum[i][j] = MULTIPLY_ADD((FLOAT(WIDTH_B))(a_p[i]), b_p[j], sum[i][j]);
    }

#if BUFFERS == 2
    // The other buffer was last read before the previous barrier: nobody is still reading it.
    now = 1 - now;
    if (more) {
      _Pragma("unroll") for (int load = 0; load < LOADS_A; load++)
        TO_LOCAL_A(load, now * SIZE_A + (load * ITEMS + item) * WIDTH_A) = next_a[load];
      _Pragma("unroll") for (int load = 0; load < LOADS_B; load++)
        TO_LOCAL_B(load, now * SIZE_B + (load * ITEMS + item) * WIDTH_B) = next_b[load];
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  // The epilogue: alpha and beta, whole vectors inside the matrix, single elements along its edge.
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) {
    const int row = tile_m * TILE_M + (i / WIDTH_A * ITEMS_M + y) * WIDTH_A + i % WIDTH_A;
    if (row < m) {
      #pragma unroll
      for (int j = 0; j < CHUNKS_N; j++) {
        const int column = tile_n * TILE_N + (j * ITEMS_N + x) * WIDTH_B;
        FLOAT(WIDTH_B) result = alpha * sum[i][j];
        __global float* element = c + row * c_row + column * c_column;
        if (c_column == 1 && column + WIDTH_B <= n) {
          if (beta != 0.0f) result += beta * LOAD(WIDTH_B, element);
          STORE(WIDTH_B, result, element);
        } else {
          float values[WIDTH_B];
          STORE(WIDTH_B, result, values);
          for (int v = 0; v < min(WIDTH_B, n - column); v++)
            element[v * c_column] = beta == 0.0f ? values[v] : values[v] + beta * element[v * c_column];
        }
      }
    }
  }
}
