// C = alpha*A*B + beta*C for GPUs, through tiles in local memory.
//   a[panel*a_panel + p*a_pitch + i]   row panel*TILE_M + i of A, column p; with TRANSPOSE_A [i*a_pitch + p]
//   b[panel*b_panel + p*b_pitch + j]   column panel*TILE_N + j of B, row p; with TRANSPOSE_B [j*b_pitch + p]
//   c[i*c_row + j*c_column]            m x n; not read when beta is 0
// A packed operand consists of panels that are padded with zeros to whole tiles. Its pitch is TILE_M
// (TILE_N), and panels are k times that apart. The pitch of an operand that is read in place is its leading
// dimension. It is aligned for vectors of LOAD_A (LOAD_B) floats. These lie along the rows of A, and m is a
// multiple of LOAD_A. With TRANSPOSE_A they lie along k, and k is a multiple; tiles are then transposed on their
// way to local memory.
// Past the last row of A (column of B) the last is read again, and its results are not stored. Past k both
// operands are taken as zero. So nothing is read outside of the matrices, and no NaN comes from there.
//
// A work-group computes a tile of C. A work-item computes WORK_M rows x WORK_N columns of it in registers, in
// chunks of WIDTH_A rows and WIDTH_B columns that alternate with those of its neighbours, so that together
// they access contiguous memory. Work-items are numbered down the tile, GRID_N side by side.
// PARTS work-items have the same rows and columns and share the steps over k; the first adds up at the end.
//
//     columns  x=0 x=1 x=2 x=3 x=0 x=1 x=2 x=3      x: work-item along N, WIDTH_B columns a chunk
//     y=0       #               #                   y: work-item along M, WIDTH_A rows a chunk
//     y=1                                           #: the chunks of work-item (x=0, y=0), here
//     y=0       #               #                      two of them either way
//     y=1
//
// While a tile is multiplied, the next one is fetched from global memory to registers. One barrier a tile is
// needed with BUFFERS 2, two with BUFFERS 1. Where single floats are fetched, the last tile is multiplied after the
// loop (LAST_APART), so that no branch surrounds the loads: NVIDIA's compiler moved them behind the arithmetic then,
// to where the branch is taken again, and the loop waited for all of them.
// Asynchronous copies are begun a few at a time, between the steps over a tile's depth (COPY_EVERY): all at once, they
// fill the queue of the unit that executes them, and the loads from local memory wait behind them.
// Split-k: several slices of k, slice_k long each, are several results. Slice s goes to c + s*c_slice; or,
// with FUSED_SPLIT_K, to `slices_out`, and the sum of all to c (split_k/fused.cl).
// Work-groups: matrices x slices x tiles of C, ITEMS work-items each.
// Local: 4*BUFFERS*TILE_K*(PITCH_A+PITCH_B) bytes.
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
#ifndef GRID_N
#error "GRID_N: work-items that lie side by side along N"
#endif
#ifndef UNROLL
#error "UNROLL: steps of the loop over a tile's depth written out"
#endif
#ifndef BUFFERS
#error "BUFFERS: tiles of A and B in local memory: 1 or 2; with ASYNCHRONOUS 2 or more"
#endif
#ifndef REGISTERS
#error "REGISTERS: of a work-item at most, for NVIDIA's compiler; 0 for any number"
#endif
#ifndef ASYNCHRONOUS
#error "ASYNCHRONOUS: 1 to copy tiles without registers, by cp.async of NVIDIA's GPUs; 0 for any device"
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
#ifndef TRANSPOSE_A
#error "TRANSPOSE_A: 1 if the columns of A are neighbours in memory, 0 if its rows are"
#endif
#ifndef TRANSPOSE_B
#error "TRANSPOSE_B: 1 if the rows of B are neighbours in memory, 0 if its columns are"
#endif
#ifndef PARTS
#error "PARTS: work-items that share the steps over a tile's depth"
#endif
#ifndef ALIGNED
#error "ALIGNED: 1 if aligned vectors along the rows of C cover it, 0 for any C"
#endif
#ifndef WHOLE
#error "WHOLE: 1 if C is ALIGNED and consists of whole tiles, 0 for any C"
#endif
#ifndef RUNS
#error "RUNS: 1 if the columns of C are neighbours in memory, and stored by the widest stores that are aligned"
#endif
#ifndef DOWN
#error "DOWN: 1 if the rows of C are neighbours in memory, 0 for any C"
#endif

#define ITEMS_M (TILE_M / WORK_M)
#define ITEMS_N (TILE_N / WORK_N)
#define BLOCKS (ITEMS_M * ITEMS_N)  // blocks of registers, which cover the tile
#define ITEMS (PARTS * BLOCKS)
#define STEPS (TILE_K / PARTS)  // of a work-item over a tile's depth
#define CHUNKS_M (WORK_M / WIDTH_A)
#define CHUNKS_N (WORK_N / WIDTH_B)
#if PARTS > 1  // rows of every block for which the tiles of A have room
#define ROOM (BUFFERS * TILE_K * WORK_M / TILE_N)
#define AT_ONCE (ROOM < WORK_M ? ROOM : WORK_M)
#endif
// A transposed tile has its rows one vector further apart in local memory, against bank conflicts.
#define PITCH_A (TILE_M + TRANSPOSE_A * WIDTH_A)
#define PITCH_B (TILE_N + TRANSPOSE_B * WIDTH_B)
#define SIZE_A (PITCH_A * TILE_K)
#define SIZE_B (PITCH_B * TILE_K)
#define VECTORS_A (TILE_M * TILE_K / LOAD_A)  // of a tile
#define VECTORS_B (TILE_N * TILE_K / LOAD_B)
#define LOADS_A ((VECTORS_A + ITEMS - 1) / ITEMS)  // vectors that each work-item fetches; the last may be one too many
#define LOADS_B ((VECTORS_B + ITEMS - 1) / ITEMS)
#define LAST_APART (!ASYNCHRONOUS && (LOAD_A < 4 || LOAD_B < 4))
// The row of the tile that is row i of block y.
#define ROW_OF_TILE(i, y) (((i) / WIDTH_A * ITEMS_M + (y)) * WIDTH_A + (i) % WIDTH_A)
#define IS_IN_TILE(SIDE, vector) (VECTORS_##SIDE % ITEMS == 0 || (vector) < VECTORS_##SIDE)

// A tile is fetched by LOADS_A (LOADS_B) loads of each work-item. Work-items with neighbouring numbers fetch neighbours in
// memory: a step over k, or, of a transposed tile, STRIP floats of a row. With strips of 8, the work-items that write a
// transposed tile at the same time write to different banks of local memory.
#define STRIP (TILE_K % 8 == 0 && LOAD_A <= 8 && LOAD_B <= 8 ? 8 : TILE_K)

// Vectors are numbered load * items + item, and lie in groups of `length`: the group of one, and its place there. Each
// is a sum of a term of `load` and one of `item` where sizes allow that: so the addresses of a work-item differ by
// constants. Asynchronous copies keep the plain form. With sums, tiles of 64 x 64 x 16 took more than 15 % longer where A
// was transposed (an H200, driver 580.159, 2026-11-25).
static inline int group_of(const int items, const int length, const int load, const uint item) {
  if (ASYNCHRONOUS) return (load * items + item) / length;
  if (items % length == 0) return load * (items / length) + item / length;
  if (length % items == 0) return load / (length / items);
  return (load * items + item) / length;
}

static inline int place_in_group(const int items, const int length, const int load, const uint item) {
  if (ASYNCHRONOUS) return (load * items + item) % length;
  if (items % length == 0) return item % length;
  if (length % items == 0) return load % (length / items) * items + item;
  return (load * items + item) % length;
}

// The same of strips of `length` vectors across a transposed tile: the row of one, and its first step.
static inline int row_of_strip(const int rows, const int length, const int load, const uint item) {
  if (ITEMS % length) return (load * ITEMS + item) / length % rows;
  return place_in_group(ITEMS / length, rows, load, item / length);
}

static inline int step_of_strip(const int rows, const int length, const int load, const uint item) {
  if (ITEMS % length) return (load * ITEMS + item) / (length * rows) * STRIP;
  return group_of(ITEMS / length, rows, load, item / length) * STRIP;
}

// The row of A and the step over k at which a work-item's vector begins. The vector lies at source_of_a in the tile at
// `from`; rows past `last` repeat it. The same for B.
#define DEFINE_PLACES(SIDE, side, ROWS)                                                                     \
  static inline int row_of_##side(const int load, const uint item) {                                        \
    return TRANSPOSE_##SIDE ? row_of_strip(ROWS, STRIP / LOAD_##SIDE, load, item)                           \
                            : place_in_group(ITEMS, ROWS / LOAD_##SIDE, load, item) * LOAD_##SIDE;          \
  }                                                                                                         \
                                                                                                            \
  static inline int step_of_##side(const int load, const uint item) {                                       \
    if (!TRANSPOSE_##SIDE) return group_of(ITEMS, ROWS / LOAD_##SIDE, load, item);                          \
    return step_of_strip(ROWS, STRIP / LOAD_##SIDE, load, item)                                             \
           + place_in_group(ITEMS, STRIP / LOAD_##SIDE, load, item) * LOAD_##SIDE;                          \
  }                                                                                                         \
                                                                                                            \
  static inline __global const float* source_of_##side(__global const float* from, const long pitch,        \
                                                       const int last, const int load, const uint item) {   \
    const int row = min(row_of_##side(load, item), last), step = step_of_##side(load, item);                \
    return from + (TRANSPOSE_##SIDE ? row * pitch + step : step * pitch + row);                             \
  }
DEFINE_PLACES(A, a, TILE_M)
DEFINE_PLACES(B, b, TILE_N)

#if ASYNCHRONOUS
// Whether group_of and place_in_group are sums of a term of `load` and one of `item`.
#define ARE_SUMS(items, length) ((items) % (length) == 0 || (length) % (items) == 0)
#define ARE_STRIPS_SUMS(rows, length) (ITEMS % (length) == 0 && ARE_SUMS(ITEMS / (length), rows))

// The address in local memory of a work-item's vector, in the tile at `tile`; where sizes allow that, those of other
// loads differ from that of load 0 by constants.
#define DEFINE_TARGETS(SIDE, side, ROWS)                                                                    \
  static inline uint place_of_##side(const int load, const uint item) {                                     \
    return sizeof(float) * (step_of_##side(load, item) * PITCH_##SIDE + row_of_##side(load, item));         \
  }                                                                                                         \
                                                                                                            \
  static inline uint target_of_##side(const uint tile, const int load, const uint item) {                   \
    if (TRANSPOSE_##SIDE ? ARE_STRIPS_SUMS(ROWS, STRIP / LOAD_##SIDE) : ARE_SUMS(ITEMS, ROWS / LOAD_##SIDE)) \
      return tile + place_of_##side(0, item) + place_of_##side(load, 0);                                    \
    return tile + place_of_##side(load, item);                                                              \
  }
DEFINE_TARGETS(A, a, TILE_M)
DEFINE_TARGETS(B, b, TILE_N)

// Begin to copy this work-item's vectors of the tile that goes to buffer `to`: of all the loads, parted in `of`, part `which`.
#define COPY_SOME(SIDE, side, to, which, of)                                                                \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++)                                         \
    if (load * (of) / LOADS_##SIDE == (which) && IS_IN_TILE(SIDE, load * ITEMS + item))                     \
      COPY(LOAD_##SIDE)(target_of_##side(into_##side + (to) * (uint)sizeof(float) * SIZE_##SIDE, load, item), \
                        source_of_##side(side, side##_pitch, last_##side, load, item));
#define COPY_TILE(SIDE, side, to) COPY_SOME(SIDE, side, to, 0, 1)

// The same of the first tile, whole: from step `part` on they are zeros.
#define COPY_FIRST(SIDE, side)                                                                              \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++)                                         \
    if (IS_IN_TILE(SIDE, load * ITEMS + item))                                                              \
      COPY_PART(LOAD_##SIDE)(target_of_##side(into_##side, load, item),                                     \
                             source_of_##side(side, side##_pitch, last_##side, load, item),                 \
                             step_of_##side(load, item) < part);

// Between the steps over a tile's depth. Where these are not all written out, all copies are begun at the first.
#define COPY_EVERY (UNROLL < STEPS || STEPS < 2 ? STEPS : 2)
#define COPY_MEANWHILE(step)                                                                                \
  if (more && (step) % COPY_EVERY == 0) {                                                                   \
    COPY_SOME(A, a, next, (step) / COPY_EVERY, STEPS / COPY_EVERY)                                          \
    COPY_SOME(B, b, next, (step) / COPY_EVERY, STEPS / COPY_EVERY)                                          \
  }
#else
#define COPY_MEANWHILE(step)

// Load this work-item's vectors of a tile.
#define FETCH_TILE(SIDE, side)                                                                              \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++)                                         \
    if (IS_IN_TILE(SIDE, load * ITEMS + item))                                                              \
      next_##side[load] = LOAD_ALIGNED(LOAD_##SIDE, __global,                                               \
                                        source_of_##side(side, side##_pitch, last_##side, load, item));

// The same of the first tile: from step `part` on they are zeros.
#define FETCH_PART(SIDE, side)                                                                              \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++) {                                       \
    next_##side[load] = (FLOAT(LOAD_##SIDE))(0.0f);                                                         \
    if (step_of_##side(load, item) < part)                                                                  \
      next_##side[load] = LOAD_ALIGNED(LOAD_##SIDE, __global,                                               \
                                        source_of_##side(side, side##_pitch, last_##side, load, item));     \
  }

// Write this work-item's vectors to a tile in local memory. A macro: as an inline function it took a product of
// 1024 x 1024 x 1024 5 to 10 % longer on an H100 (driver 580.159.04, 2026-11-22).
#define PUT_TILE(SIDE, side, fetched, tile)                                                                 \
  _Pragma("unroll") for (int load = 0; load < LOADS_##SIDE; load++) {                                       \
    if (!IS_IN_TILE(SIDE, load * ITEMS + item)) break;                                                      \
    __local float* to = tile + step_of_##side(load, item) * PITCH_##SIDE + row_of_##side(load, item);       \
    if (TRANSPOSE_##SIDE) {                                                                                 \
      float values[LOAD_##SIDE];                                                                            \
      STORE(LOAD_##SIDE, fetched[load], values);                                                            \
      _Pragma("unroll") for (int v = 0; v < LOAD_##SIDE; v++) to[v * PITCH_##SIDE] = values[v];             \
    } else {                                                                                                \
      *(__local FLOAT(LOAD_##SIDE)*)to = fetched[load];                                                     \
    }                                                                                                       \
  }
#endif

// Multiply the tiles in buffer `now`: this work-item's part of the steps.
#define PRAGMA(text) _Pragma(#text)
#define UNROLLED(steps) PRAGMA(unroll steps)
#define MULTIPLY_TILES                                                                                      \
  UNROLLED(UNROLL)                                                                                          \
  for (int step = 0; step < STEPS; step++) {                                                                \
    COPY_MEANWHILE(step)                                                                                    \
    const int p = share * STEPS + step;                                                                     \
    __local const float* row_a = tile_a + now * SIZE_A + p * PITCH_A + y * WIDTH_A;                         \
    __local const float* row_b = tile_b + now * SIZE_B + p * PITCH_B + x * WIDTH_B;                         \
    float a_p[WORK_M];                                                                                      \
    FLOAT(WIDTH_B) b_p[CHUNKS_N];                                                                           \
    _Pragma("unroll") for (int i = 0; i < CHUNKS_M; i++)                                                    \
      STORE(WIDTH_A, LOAD_ALIGNED(WIDTH_A, __local, row_a + i * ITEMS_M * WIDTH_A), a_p + i * WIDTH_A);     \
    _Pragma("unroll") for (int j = 0; j < CHUNKS_N; j++)                                                    \
      b_p[j] = LOAD_ALIGNED(WIDTH_B, __local, row_b + j * ITEMS_N * WIDTH_B);                               \
    _Pragma("unroll") for (int i = 0; i < WORK_M; i++)                                                      \
      _Pragma("unroll") for (int j = 0; j < CHUNKS_N; j++)                                                  \
        sum[i][j] = MULTIPLY_ADD((FLOAT(WIDTH_B))(a_p[i]), b_p[j], sum[i][j]);                              \
  }

#if REGISTERS  // NVIDIA's compiler does not limit registers where a kernel has this attribute
#define OF_KNOWN_SIZE
#else
#define OF_KNOWN_SIZE __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
#endif

__kernel OF_KNOWN_SIZE
void tiled_product(const int m, const int n, const int k, const int slice_k, const int4 counts, const float alpha, const float beta,
                 __global const float* restrict a, const long a_offset, const long a_panel, const long a_pitch, const long4 a_strides,
                 __global const float* restrict b, const long b_offset, const long b_panel, const long b_pitch, const long4 b_strides,
                 __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long c_slice,
                 const long4 c_strides FUSED_ARGUMENTS GATE_ARGUMENTS) {
  if (GATE_IS_CLOSED) return;
  __local float tile_a[BUFFERS * SIZE_A] __attribute__((aligned(64)));
  __local float tile_b[BUFFERS * SIZE_B] __attribute__((aligned(64)));

  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, slices = (k + slice_k - 1) / slice_k;
  const int tiles = tiles_of_rows(tiles_m, tiles_n, TILE_M, TILE_N);
  const uint group = get_group_id(0), tile = group % tiles, result = group / tiles;
  const uint slice = result % slices, matrix = result / slices;
  const Place place = swizzled(tile, tiles_m, tiles_n, SWIZZLE, TILE_M, TILE_N);
  const int tile_m = place.m, tile_n = place.n;
  const int item = get_local_id(0), block = item % BLOCKS, share = item / BLOCKS;
  const int x = block / (ITEMS_M * GRID_N) * GRID_N + block % GRID_N, y = block / GRID_N % ITEMS_M;

  const int first = slice * slice_k, end = min(first + slice_k, k);
  const long step_a = TRANSPOSE_A ? 1 : a_pitch, step_b = TRANSPOSE_B ? 1 : b_pitch;  // along k
  a += a_offset + matrix_offset(matrix, counts, a_strides) + tile_m * a_panel + first * step_a;
  b += b_offset + matrix_offset(matrix, counts, b_strides) + tile_n * b_panel + first * step_b;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + slice * c_slice;
  // The last rows at which a load may begin.
  const int last_a = (TRANSPOSE_A ? m - 1 : (m - 1) / LOAD_A * LOAD_A) - tile_m * TILE_M;
  const int last_b = (TRANSPOSE_B ? n - 1 : (n - 1) / LOAD_B * LOAD_B) - tile_n * TILE_N;

  FLOAT(WIDTH_B) sum[WORK_M][CHUNKS_N];
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < CHUNKS_N; j++) sum[i][j] = (FLOAT(WIDTH_B))(0.0f);

  // The first tile of a slice has the remainder of k, so that all others are whole.
  const int part = (end - first - 1) % TILE_K + 1;
  int now = 0;  // which of the buffers is being read
#if ASYNCHRONOUS
  const uint into_a = LOCAL_ADDRESS(tile_a), into_b = LOCAL_ADDRESS(tile_b);
  COPY_FIRST(A, a)
  COPY_FIRST(B, b)
  end_copies();
  a -= (TILE_K - part) * step_a;
  b -= (TILE_K - part) * step_b;
  int begun = first + part;  // where the next tile to copy begins
  #pragma unroll
  for (int buffer = 1; buffer < BUFFERS - 1; buffer++) {
    if (begun < end) {
      a += TILE_K * step_a;
      b += TILE_K * step_b;
      COPY_TILE(A, a, buffer)
      COPY_TILE(B, b, buffer)
    }
    end_copies();
    begun += TILE_K;
  }
  int next = BUFFERS - 1;  // which of them is filled next
#else
  FLOAT(LOAD_A) next_a[LOADS_A];
  FLOAT(LOAD_B) next_b[LOADS_B];
  FETCH_PART(A, a)
  FETCH_PART(B, b)
  a -= (TILE_K - part) * step_a;
  b -= (TILE_K - part) * step_b;
  PUT_TILE(A, a, next_a, tile_a)
  PUT_TILE(B, b, next_b, tile_b)
  barrier(CLK_LOCAL_MEM_FENCE);
#endif

  const int stop = LAST_APART ? end - TILE_K : end;
  for (int depth = first; depth < stop; depth += TILE_K) {
#if ASYNCHRONOUS
    // All have read the buffer that is filled next: it was the previous one.
    wait_for_copies();
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool more = begun < end;
    a += TILE_K * step_a;
    b += TILE_K * step_b;
#else
    const bool more = LAST_APART || depth + TILE_K < end;
    if (more) {
      a += TILE_K * step_a;
      b += TILE_K * step_b;
      FETCH_TILE(A, a)
      FETCH_TILE(B, b)
    }
#endif

    MULTIPLY_TILES

#if ASYNCHRONOUS
    end_copies();
    begun += TILE_K;
    next = next == BUFFERS - 1 ? 0 : next + 1;
    now = now == BUFFERS - 1 ? 0 : now + 1;
#else
#if BUFFERS == 2
    // The other buffer was last read before the previous barrier.
    now = 1 - now;
#else
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (more) {
      PUT_TILE(A, a, next_a, tile_a + now * SIZE_A)
      PUT_TILE(B, b, next_b, tile_b + now * SIZE_B)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
  }

#if LAST_APART
  MULTIPLY_TILES
#endif

#if PARTS > 1
#if ASYNCHRONOUS || LAST_APART
  barrier(CLK_LOCAL_MEM_FENCE);  // the last tile has been read
#endif
  // The first work-item of a block adds up the sums of the others, which come through the tiles' local memory.
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

#if FUSED_SPLIT_K
  // Fused split-k. Slices are written in the order of registers; the last work-group of a tile adds them up, always
  // in the same order.
  __local uint earlier;
  const uint piece = matrix * (tiles_m * tiles_n) + tile;
  slices_out += (long)piece * slices * (TILE_M * TILE_N) + block * WIDTH_B;
  if (share == 0) {
    #pragma unroll
    for (int i = 0; i < WORK_M * CHUNKS_N; i++)
      *(__global FLOAT(WIDTH_B)*)(slices_out + slice * (TILE_M * TILE_N) + i * BLOCKS * WIDTH_B) = sum[i / CHUNKS_N][i % CHUNKS_N];
  }
  if (!comes_last(counters + piece, slices, &earlier)) return;
  #pragma unroll
  for (int i = 0; i < WORK_M * CHUNKS_N; i++) sum[i / CHUNKS_N][i % CHUNKS_N] = (FLOAT(WIDTH_B))(0.0f);
  if (share == 0)
    for (int other = 0; other < slices; other++) {
      #pragma unroll
      for (int i = 0; i < WORK_M * CHUNKS_N; i++)
        sum[i / CHUNKS_N][i % CHUNKS_N] += LOAD_ALIGNED(WIDTH_B, __global, slices_out + other * (TILE_M * TILE_N) + i * BLOCKS * WIDTH_B);
    }
#endif
#if PARTS > 1
  if (share != 0) return;
#endif
  c += tile_m * TILE_M * c_row + tile_n * TILE_N * c_column;
  const int rows = m - tile_m * TILE_M, columns = n - tile_n * TILE_N;
#if ALIGNED
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) {
    const int row = ROW_OF_TILE(i, y);
    __global FLOAT(WIDTH_B)* element = (__global FLOAT(WIDTH_B)*)(c + row * c_row + x * WIDTH_B);
    #pragma unroll
    for (int j = 0; j < CHUNKS_N; j++)
      if (WHOLE || (row < rows && (j * ITEMS_N + x) * WIDTH_B < columns))
        STORE_ALIGNED(WIDTH_B)(element + j * ITEMS_N, alpha * sum[i][j], beta);
  }
#elif DOWN
  #pragma unroll
  for (int i = 0; i < WORK_M; i += WIDTH_A) {
    const int row = ROW_OF_TILE(i, y);
    #pragma unroll
    for (int j = 0; j < CHUNKS_N; j++) {
      float values[WIDTH_A][WIDTH_B];
      #pragma unroll
      for (int r = 0; r < WIDTH_A; r++) STORE(WIDTH_B, alpha * sum[i + r][j], values[r]);
      #pragma unroll
      for (int v = 0; v < WIDTH_B; v++) {
        const int column = (j * ITEMS_N + x) * WIDTH_B + v;
        float run[WIDTH_A];
        #pragma unroll
        for (int r = 0; r < WIDTH_A; r++) run[r] = values[r][v];
        if (column < columns) STORE_RUN_OF(WIDTH_A)(c + row + column * c_column, run, rows - row, beta);
      }
    }
  }
#else
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) {
    const int row = ROW_OF_TILE(i, y);
    if (row < rows) {
      #pragma unroll
      for (int j = 0; j < CHUNKS_N; j++) {
        const int column = (j * ITEMS_N + x) * WIDTH_B;
        const FLOAT(WIDTH_B) result = alpha * sum[i][j];
#if RUNS
        float run[WIDTH_B];
        STORE(WIDTH_B, result, run);
        STORE_RUN_OF(WIDTH_B)(c + row * c_row + column, run, columns - column, beta);
#else
        STORE_RUN(WIDTH_B)(c + row * c_row + column * c_column, c_column, column, columns, result, beta);
#endif
      }
    }
  }
#endif
}
