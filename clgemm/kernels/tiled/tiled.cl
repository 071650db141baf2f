// C = alpha*A*B + beta*C through tiles in local memory.
//   a[panel*a_panel + p*a_pitch + i]   rows    panel*TILE_M + i of A, column p; with TURN_A i*a_pitch + p
//   b[panel*b_panel + p*b_pitch + j]   columns panel*TILE_N + j of B, row p; with TURN_B j*b_pitch + p
//   c[i*c_row + j*c_column]            m x n; not read when beta is 0
// A packed operand lies in panels that are zero-padded to whole tiles: a pitch of TILE_M, k*TILE_M from one
// to the next. Another is read where it lies, its pitch its leading dimension: by vectors of LOAD_A
// rows, of which m is a multiple, or, turned on their way to local memory, of LOAD_A columns, of which k is.
// What would lie past the last row repeats it, for elements of C that are not stored; past the last column
// are zeros in both operands. So nothing outside of the matrices is read and no NaN comes from there.
//
// A work-group computes one tile of C; each of its work-items WORK_M rows and WORK_N columns, in
// registers: chunks of WIDTH_A rows and WIDTH_B columns that neighbouring work-items interleave, so
// that together they read and write runs of addresses. Work-items go down the tile in bands, PATCH_N abreast.
// PARTS of them have the same rows and columns and share each tile's steps over k; the first adds up in the end.
//
//     columns  x=0 x=1 x=2 x=3 x=0 x=1 x=2 x=3      y=0   x: work-item along N, WIDTH_B columns a chunk
//     rows     y=0  #               #               y=1   y: work-item along M, WIDTH_A rows a chunk
//              y=1                                  y=0   #: the chunks of work-item (x=0, y=0), here
//              y=0  #               #               y=1      with two chunks either way
//
// The next tile is fetched from global memory into registers while the present one is being multiplied. With
// BUFFERS 2 one barrier a tile is needed, with 1 two.
// Several slices of k, slice_k long each, are several results: slice s goes to c + s*c_slice. Or, with GATHERS, to gathered,
// and their sum to c: split_k/fused.cl.
// Work-groups: matrices x slices x tiles of C, ITEMS work-items each. Local: 4*BUFFERS*TILE_K*(PITCH_A+PITCH_B) bytes.
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
#error "WIDTH_A: floats per load of A from local memory"
#endif
#ifndef WIDTH_B
#error "WIDTH_B: floats per load of B from local memory and per store of C"
#endif
#ifndef PATCH_N
#error "PATCH_N: work-items that lie side by side along N"
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
#ifndef LOAD_A
#error "LOAD_A: floats per load of A from global memory"
#endif
#ifndef LOAD_B
#error "LOAD_B: floats per load of B from global memory"
#endif
#ifndef TURN_A
#error "TURN_A: 1 if the columns of A are neighbours in memory, 0 if its rows are"
#endif
#ifndef TURN_B
#error "TURN_B: 1 if the rows of B are neighbours in memory, 0 if its columns are"
#endif
#ifndef PARTS
#error "PARTS: work-items that share the steps over a tile's depth"
#endif
#ifndef WHOLE
#error "WHOLE: 1 if C is whole tiles of aligned vectors, 0 for any C"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define BLOCKS (ITEMS_M * ITEMS_N)  // of registers, which cover the tile
#define ITEMS (PARTS * BLOCKS)
#define CHUNKS_M (WORK_M / WIDTH_A)
#define CHUNKS_N (WORK_N / WIDTH_B)
#if PARTS > 1  // rows of all blocks that A's tiles have room for
#define ROOM (BUFFERS * TILE_K * WORK_M / TILE_N)
#define AT_ONCE (ROOM < WORK_M ? ROOM : WORK_M)
#endif
// Rows of a tile in local memory lie a vector further apart where columns are written, for the banks' sake.
#define PITCH_A (TILE_M + TURN_A * WIDTH_A)
#define PITCH_B (TILE_N + TURN_B * WIDTH_B)
#define SIZE_A (PITCH_A * TILE_K)
#define SIZE_B (PITCH_B * TILE_K)
#define LOADS_A (TILE_M * TILE_K / LOAD_A / ITEMS)  // vectors of a tile that each work-item fetches
#define LOADS_B (TILE_N * TILE_K / LOAD_B / ITEMS)

// Of the vectors of a tile, where in it this work-item's `load`-th begins: the row of A (column of B), the depth.
#define ROW(SIDE, TILE, load)                                                             \
  (TURN_##SIDE ? (load * ITEMS + item) / (TILE_K / LOAD_##SIDE)                           \
               : (load * ITEMS + item) % (TILE / LOAD_##SIDE) * LOAD_##SIDE)
#define DEPTH(SIDE, TILE, load)                                                           \
  (TURN_##SIDE ? (load * ITEMS + item) % (TILE_K / LOAD_##SIDE) * LOAD_##SIDE             \
               : (load * ITEMS + item) / (TILE / LOAD_##SIDE))

// Fetch this work-item's share of the tile at `from`. Rows past the last repeat it.
#define FETCH_VECTOR(SIDE, TILE, from, pitch, last)                                       \
  LOAD_ALIGNED(LOAD_##SIDE, __global, (from + (TURN_##SIDE                                \
      ? min(ROW(SIDE, TILE, load), last) * pitch + DEPTH(SIDE, TILE, load)                \
      : DEPTH(SIDE, TILE, load) * pitch + min(ROW(SIDE, TILE, load), last))))
#define FETCH_TILE(SIDE, TILE, from, pitch, last, to)                                     \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++)                       \
    to[load] = FETCH_VECTOR(SIDE, TILE, from, pitch, last);

// The same of a tile's first `part` columns; the others are zero.
#define FETCH_PART(SIDE, TILE, from, pitch, last, to)                                     \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++) {                     \
    to[load] = (FLOAT(LOAD_##SIDE))(0.0f);                                                \
    if (DEPTH(SIDE, TILE, load) < part) to[load] = FETCH_VECTOR(SIDE, TILE, from, pitch, last); \
  }

// Put what was fetched into local memory.
#define PUT_TILE(SIDE, TILE, fetched, tile)                                               \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++) {                     \
    __local float* element = tile + DEPTH(SIDE, TILE, load) * PITCH_##SIDE + ROW(SIDE, TILE, load); \
    if (TURN_##SIDE) {                                                                    \
      float values[LOAD_##SIDE];                                                          \
      STORE(LOAD_##SIDE, fetched[load], values);                                          \
      _Pragma("unroll") for (int v = 0; v < LOAD_##SIDE; v++) element[v * PITCH_##SIDE] = values[v]; \
    } else {                                                                              \
      *(__local FLOAT(LOAD_##SIDE)*)element = fetched[load];                              \
    }                                                                                     \
  }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void local_product(const int m, const int n, const int k, const int slice_k, const int4 counts, const float alpha, const float beta,
                 __global const float* restrict a, const long a_offset, const long a_panel, const long a_pitch, const long4 a_strides,
                 __global const float* restrict b, const long b_offset, const long b_panel, const long b_pitch, const long4 b_strides,
                 __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long c_slice,
                 const long4 c_strides GATHER_ARGUMENTS GATE_ARGUMENTS) {
  GATE
  __local float tile_a[BUFFERS * SIZE_A] __attribute__((aligned(64)));
  __local float tile_b[BUFFERS * SIZE_B] __attribute__((aligned(64)));

  // Neighbouring work-groups take SWIZZLE tiles of one column before they move to the next column.
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, slices = (k + slice_k - 1) / slice_k;
  const uint group = get_group_id(0), tile = group % (tiles_m * tiles_n), result = group / (tiles_m * tiles_n);
  const uint slice = result % slices, matrix = result / slices;
  const int first_m = tile / (SWIZZLE * tiles_n) * SWIZZLE, band = min(SWIZZLE, tiles_m - first_m);
  const int tile_m = first_m + tile % (SWIZZLE * tiles_n) % band, tile_n = tile % (SWIZZLE * tiles_n) / band;
  const int item = get_local_id(0), block = item % BLOCKS, share = item / BLOCKS;
  const int x = block / (ITEMS_M * PATCH_N) * PATCH_N + block % PATCH_N, y = block / PATCH_N % ITEMS_M;

  const int first = slice * slice_k, end = min(first + slice_k, k);
  const long step_a = TURN_A ? 1 : a_pitch, step_b = TURN_B ? 1 : b_pitch;  // along k
  a += a_offset + matrix_offset(matrix, counts, a_strides) + tile_m * a_panel + first * step_a;
  b += b_offset + matrix_offset(matrix, counts, b_strides) + tile_n * b_panel + first * step_b;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + slice * c_slice;
  const int last_a = (TURN_A ? m - 1 : (m - 1) / LOAD_A * LOAD_A) - tile_m * TILE_M;  // row that a load may begin at
  const int last_b = (TURN_B ? n - 1 : (n - 1) / LOAD_B * LOAD_B) - tile_n * TILE_N;

  FLOAT(WIDTH_B) sum[WORK_M][CHUNKS_N];
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < CHUNKS_N; j++) sum[i][j] = (FLOAT(WIDTH_B))(0.0f);

  // The first tile of a slice has what is left over, so that all others are whole.
  FLOAT(LOAD_A) next_a[LOADS_A];
  FLOAT(LOAD_B) next_b[LOADS_B];
  const int part = (end - first - 1) % TILE_K + 1;
  FETCH_PART(A, TILE_M, a, a_pitch, last_a, next_a)
  FETCH_PART(B, TILE_N, b, b_pitch, last_b, next_b)
  a -= (TILE_K - part) * step_a;
  b -= (TILE_K - part) * step_b;
  PUT_TILE(A, TILE_M, next_a, tile_a)
  PUT_TILE(B, TILE_N, next_b, tile_b)
  barrier(CLK_LOCAL_MEM_FENCE);
  int now = 0;  // which of the buffers is being read

  for (int depth = first; depth < end; depth += TILE_K) {
    const bool more = depth + TILE_K < end;
    if (more) {
      a += TILE_K * step_a;
      b += TILE_K * step_b;
      FETCH_TILE(A, TILE_M, a, a_pitch, last_a, next_a)
      FETCH_TILE(B, TILE_N, b, b_pitch, last_b, next_b)
    }

    #pragma unroll UNROLL
    for (int step = 0; step < TILE_K / PARTS; step++) {
      const int p = share * (TILE_K / PARTS) + step;
      __local const float* row_a = tile_a + now * SIZE_A + p * PITCH_A + y * WIDTH_A;
      __local const float* row_b = tile_b + now * SIZE_B + p * PITCH_B + x * WIDTH_B;
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
#else
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (more) {
      PUT_TILE(A, TILE_M, next_a, tile_a + now * SIZE_A)
      PUT_TILE(B, TILE_N, next_b, tile_b + now * SIZE_B)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

#if PARTS > 1
  // The first work-item of a block adds up what the others have, which comes through the tiles' local memory.
  for (int other = 1; other < PARTS; other++) {
    #pragma unroll
    for (int row = 0; row < WORK_M; row += AT_ONCE) {
      if (share == other) {
        #pragma unroll
        for (int i = 0; i < AT_ONCE * CHUNKS_N; i++)
          *(__local FLOAT(WIDTH_B)*)(tile_a + (i * BLOCKS + block) * WIDTH_B) = sum[row + i / CHUNKS_N][i % CHUNKS_N];
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      if (share == 0) {
        #pragma unroll
        for (int i = 0; i < AT_ONCE * CHUNKS_N; i++)
          sum[row + i / CHUNKS_N][i % CHUNKS_N] += LOAD_ALIGNED(WIDTH_B, __local, tile_a + (i * BLOCKS + block) * WIDTH_B);
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }
#endif

#if GATHERS
  // Slices are written as they lie in registers; the last work-group of a tile adds them up, in their order.
  __local uint earlier;
  const uint piece = matrix * (tiles_m * tiles_n) + tile;
  gathered += (long)piece * slices * (TILE_M * TILE_N) + block * WIDTH_B;
  if (share == 0) {
    #pragma unroll
    for (int i = 0; i < WORK_M * CHUNKS_N; i++)
      *(__global FLOAT(WIDTH_B)*)(gathered + slice * (TILE_M * TILE_N) + i * BLOCKS * WIDTH_B) = sum[i / CHUNKS_N][i % CHUNKS_N];
  }
  if (!comes_last(counters + piece, slices, &earlier)) return;
  #pragma unroll
  for (int i = 0; i < WORK_M * CHUNKS_N; i++) sum[i / CHUNKS_N][i % CHUNKS_N] = (FLOAT(WIDTH_B))(0.0f);
  if (share == 0)
    for (int other = 0; other < slices; other++) {
      #pragma unroll
      for (int i = 0; i < WORK_M * CHUNKS_N; i++)
        sum[i / CHUNKS_N][i % CHUNKS_N] += LOAD_ALIGNED(WIDTH_B, __global, gathered + other * (TILE_M * TILE_N) + i * BLOCKS * WIDTH_B);
    }
#endif
#if PARTS > 1
  if (share != 0) return;
#endif

  // The epilogue: alpha and beta, whole vectors inside the matrix, single elements along its edge.
#if WHOLE
  c += (tile_m * TILE_M + y * WIDTH_A) * c_row + tile_n * TILE_N + x * WIDTH_B;
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) {
    __global FLOAT(WIDTH_B)* element = (__global FLOAT(WIDTH_B)*)(c + (i / WIDTH_A * ITEMS_M * WIDTH_A + i % WIDTH_A) * c_row);
    #pragma unroll
    for (int j = 0; j < CHUNKS_N; j++) {
      FLOAT(WIDTH_B) result = alpha * sum[i][j];
      if (beta != 0.0f) result += beta * element[j * ITEMS_N];
      element[j * ITEMS_N] = result;
    }
  }
#else
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
#endif
}
