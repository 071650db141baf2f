// C = A B, or C = C + A B with `adds`, in one launch, from operands of any strides: for small products, and for few rows.
//   a[i*a_row + p*a_column]   m x k
//   b[p*b_row + j*b_column]   k x n
//   c[i*c_row + j*c_column]   m x n
//   slices_out, counters      as in split_k/fused.cl: sums of slices, in the order of work-items
// A work-group computes TILE_M x TILE_N of C from one slice of k, `depth` words of it. STEPS words of k of both operands
// lie in local memory, PADDING words apart, while the next ones come into registers.
// With TENSORS, ITEMS_M x ITEMS_N warps compute a block each by tensor cores (mma.sync), in blocks of 16 x 8; doubles need
// compute capability 9.0, the others 8.0. Otherwise there are as many work-items, whose rows and columns lie in between
// those of the others. Elsewhere than on NVIDIA's GPUs, TENSORS is written without tensor cores, for tests.
// Work-groups: matrices x tiles of C x slices, rounded up. Local: 2*STEPS*(PITCH(TILE_M) + PITCH(TILE_N)) words.
// After: NVIDIA, "Parallel thread execution ISA", mma.
#ifndef TILE_M
#error "TILE_M: rows of C of a work-group"
#endif
#ifndef TILE_N
#error "TILE_N: columns of C of a work-group"
#endif
#ifndef ITEMS_M
#error "ITEMS_M: work-items, or warps, along the rows of C"
#endif
#ifndef ITEMS_N
#error "ITEMS_N: work-items, or warps, along the columns of C"
#endif
#ifndef STEPS
#error "STEPS: words of k in local memory"
#endif
#ifndef ALONG_K
#error "ALONG_K: 1 if neighbours of A lie along k, and 2 if those of B do"
#endif
#ifndef TENSORS
#error "TENSORS: 1 for tensor cores, 0 for others"
#endif
#define ITEMS ((TENSORS ? 32 : 1) * ITEMS_M * ITEMS_N)
#define ELEMENTS (TILE_M * TILE_N / ITEMS)  // of C, of a work-item
#define PITCH(tile) ((tile) + PADDING)  // so that warps find their words in different banks
#define ACROSS (PADDING == 8 ? 8 : 4)
#define LOADS(tile) (STEPS * (tile) / ITEMS)
#define ALONG_A ((ALONG_K & 1) != 0)
#define ALONG_B ((ALONG_K & 2) != 0)

#if TENSORS
#define BLOCKS_M (TILE_M / ITEMS_M / 16)
#define BLOCKS_N (TILE_N / ITEMS_N / 8)
#define BLOCK_N (TILE_N / ITEMS_N)
#define ROW_WARP (item / 32 / ITEMS_N * (TILE_M / ITEMS_M))
#define COLUMN_WARP (item / 32 % ITEMS_N * BLOCK_N)
#define ROW(e) (ROW_WARP + (e) / 4 / BLOCKS_N * 16 + (e) % 4 / 2 * 8 + item % 32 / 4)
#define COLUMN(e) (COLUMN_WARP + (e) / 4 % BLOCKS_N * 8 + item % 4 * 2 + (e) % 2)
#else
#define WORK_N (TILE_N / ITEMS_N)
#define ROW(e) ((e) / WORK_N * ITEMS_M + item / ITEMS_N)
#define COLUMN(e) ((e) % WORK_N * ITEMS_N + item % ITEMS_N)
#endif

#if LANE == 6
#define ADD_WORD(x, y, sum) add_four(x, y, sum)
#elif LANE == 7
static inline float half_of(const uint word, const int i) {
  union {
    ushort bits;
    half value;
  } found;
  found.bits = word >> 16 * i;
  return vload_half(0, &found.value);
}
#define ADD_WORD(x, y, sum) ((sum) + half_of(x, 0) * half_of(y, 0) + half_of(x, 1) * half_of(y, 1))
#elif LANE == 8 || LANE == 9
static inline LANE_TYPE add_complex(const LANE_TYPE x, const LANE_TYPE y, const LANE_TYPE sum) {
  return (LANE_TYPE)(sum.x + x.x * y.x - x.y * y.y, sum.y + x.x * y.y + x.y * y.x);
}
#define ADD_WORD(x, y, sum) add_complex(x, y, sum)
#else
#define ADD_WORD(x, y, sum) ADD(x, y, sum)
#endif

#if TENSORS && defined(__NV_CL_C_VERSION)
// Add the product of 16 rows and 8 words of A and 8 words and 8 columns of B to sums.
#if LANE == 5
#define SHAPE "m16n8k8.row.col.f64.f64.f64.f64"
#define IN_SUM "+d"
#define IN_WORD "d"
#elif LANE == 6
#define SHAPE "m16n8k32.row.col.s32." SIGN_A "8." SIGN_B "8.s32"
#define IN_SUM "+r"
#define IN_WORD "r"
#else
#define SHAPE "m16n8k16.row.col.f32.f16.f16.f32"
#define IN_SUM "+f"
#define IN_WORD "r"
#endif
static inline void add_block(LANE_TYPE* sum, const WORD_TYPE* a, const WORD_TYPE* b) {
  asm("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : IN_SUM(sum[0]), IN_SUM(sum[1]), IN_SUM(sum[2]), IN_SUM(sum[3])
      : IN_WORD(a[0]), IN_WORD(a[1]), IN_WORD(a[2]), IN_WORD(a[3]), IN_WORD(b[0]), IN_WORD(b[1]));
}
#endif

// Which words a work-item brings of a tile: its load i is of row ROW_OF + ROWS_ON(i) and of word STEP_OF + STEPS_ON(i). Along k,
// neighbours bring ACROSS words of a row, as many as one sector of the last cache has.
#define PER_PASS(tile) min(tile, ITEMS / ACROSS)
#define PASSES(tile) ((tile) / PER_PASS(tile))
#define ROW_OF(tile, along) ((along) ? item / ACROSS % PER_PASS(tile) : item % (tile))
#define STEP_OF(tile, along) ((along) ? item % ACROSS + item / (ACROSS * PER_PASS(tile)) * ACROSS : item / (tile))
#define ROWS_ON(i, tile, along) ((along) ? (i) % PASSES(tile) * PER_PASS(tile) : 0)
#define STEPS_ON(i, tile, along) ((along) ? (i) / PASSES(tile) * (ITEMS / PER_PASS(tile)) : (i) * (ITEMS / (tile)))

// The word whose first element is at `from`, of which `left` elements are there: 1 at least. It loads without branches, so that
// loads of many words are on their way at once.
static inline WORD_TYPE word_at(__global const LOADED_TYPE* from, const long column, const int left) {
#if LANE == 6
  uint word = 0;
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint byte = REAL(i < left ? i * column : 0) & 255;
    word |= i < left ? byte << 8 * i : 0;
  }
  return word;
#elif LANE == 7
  __global const ushort* const bits = (__global const ushort*)from;
  const uint low = bits[0], high = bits[left > 1 ? column : 0];
  return low | (left > 1 ? high << 16 : 0);
#elif LANE == 8 || LANE == 9
  return from[0];
#else
  return REAL(0);
#endif
}

// `from` is a work-item's first element, from which on `rows` and `k` are left; `first` is one that is there in any case.
static inline void load_words(WORD_TYPE* to, __global const LOADED_TYPE* from, __global const LOADED_TYPE* first, const int tile,
                              const bool along, const int rows, const int k, const long row, const long column) {
  #pragma unroll
  for (int i = 0; i < LOADS(tile); i++) {
    const int r = ROWS_ON(i, tile, along), p = STEPS_ON(i, tile, along) * WORD;
    const bool is_there = r < rows && p < k;
#if WORD > 1
    const WORD_TYPE word = word_at(is_there ? from + (r * row + p * column) : first, column, k - p);
    to[i] = is_there ? word : 0;
#else
    to[i] = is_there ? word_at(from + (r * row + p * column), column, 1) : (WORD_TYPE)(0);
#endif
  }
}

static inline void keep_words(__local WORD_TYPE* to, const WORD_TYPE* from, const int tile, const bool along) {
  #pragma unroll
  for (int i = 0; i < LOADS(tile); i++) to[STEPS_ON(i, tile, along) * PITCH(tile) + ROWS_ON(i, tile, along)] = from[i];
}

#if FUSED_SPLIT_K
#define SLICES_ARGUMENTS , __global LANE_TYPE* slices_out, __global uint* counters
#else
#define SLICES_ARGUMENTS
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void exact_in_place(const int m, const int n, const int k, const int depth, const int adds, const int4 counts,
                    __global const LOADED_TYPE* restrict a, const long a_offset, const long a_row, const long a_column,
                    const long4 a_strides,
                    __global const LOADED_TYPE* restrict b, const long b_offset, const long b_row, const long b_column,
                    const long4 b_strides,
                    __global STORED_TYPE* restrict c, const long c_offset, const long c_row, const long c_column,
                    const long4 c_strides SLICES_ARGUMENTS) {
  __local WORD_TYPE blocks[2 * STEPS * (PITCH(TILE_M) + PITCH(TILE_N))];
  const int item = get_local_id(0), words = (k + WORD - 1) / WORD, slices = max(1, (words + depth - 1) / depth);
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N;
  const uint group = get_group_id(0), piece = group / slices, matrix = piece / (tiles_m * tiles_n);
  const int slice = group % slices, first = slice * depth, last = min(words, first + depth);
  const int row_0 = piece % (tiles_m * tiles_n) % tiles_m * TILE_M, column_0 = piece % (tiles_m * tiles_n) / tiles_m * TILE_N;
  a += a_offset + matrix_offset(matrix, counts, a_strides);
  b += b_offset + matrix_offset(matrix, counts, b_strides);
  c += c_offset + matrix_offset(matrix, counts, c_strides);
  __global const LOADED_TYPE *const first_a = a, *const first_b = b;
  LANE_TYPE sum[ELEMENTS];
  #pragma unroll
  for (int e = 0; e < ELEMENTS; e++) sum[e] = 0;
  // Where a work-item loads, and what is left from there on.
  const int from_row_a = row_0 + ROW_OF(TILE_M, ALONG_A), from_step_a = first + STEP_OF(TILE_M, ALONG_A);
  const int from_row_b = column_0 + ROW_OF(TILE_N, ALONG_B), from_step_b = first + STEP_OF(TILE_N, ALONG_B);
  const int end = min(k, last * WORD);
  int left_a = end - from_step_a * WORD, left_b = end - from_step_b * WORD;
  a += from_row_a * a_row + (long)from_step_a * WORD * a_column;
  b += from_row_b * b_column + (long)from_step_b * WORD * b_row;
  WORD_TYPE next_a[LOADS(TILE_M)], next_b[LOADS(TILE_N)];
  load_words(next_a, a, first_a, TILE_M, ALONG_A, m - from_row_a, left_a, a_row, a_column);
  load_words(next_b, b, first_b, TILE_N, ALONG_B, n - from_row_b, left_b, b_column, b_row);
  for (int p = first, now = 0; p < last; p += STEPS, now = 1 - now) {
    __local WORD_TYPE* const block_a = blocks + now * STEPS * PITCH(TILE_M);
    __local WORD_TYPE* const block_b = blocks + STEPS * (2 * PITCH(TILE_M) + now * PITCH(TILE_N));
    keep_words(block_a + STEP_OF(TILE_M, ALONG_A) * PITCH(TILE_M) + ROW_OF(TILE_M, ALONG_A), next_a, TILE_M, ALONG_A);
    keep_words(block_b + STEP_OF(TILE_N, ALONG_B) * PITCH(TILE_N) + ROW_OF(TILE_N, ALONG_B), next_b, TILE_N, ALONG_B);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (p + STEPS < last) {
      a += STEPS * WORD * a_column, left_a -= STEPS * WORD;
      b += STEPS * WORD * b_row, left_b -= STEPS * WORD;
      load_words(next_a, a, first_a, TILE_M, ALONG_A, m - from_row_a, left_a, a_row, a_column);
      load_words(next_b, b, first_b, TILE_N, ALONG_B, n - from_row_b, left_b, b_column, b_row);
    }
#if TENSORS && defined(__NV_CL_C_VERSION)
    __local const WORD_TYPE* const from_a = block_a + item % 4 * PITCH(TILE_M) + ROW(0);
    __local const WORD_TYPE* const from_b = block_b + item % 4 * PITCH(TILE_N) + COLUMN(0) - item % 4 * 2 + item % 32 / 4;
    #pragma unroll
    for (int step = 0; step < STEPS; step += 8) {
      WORD_TYPE of_a[BLOCKS_M][4], of_b[BLOCKS_N][2];
      #pragma unroll
      for (int x = 0; x < 4; x++) {
        #pragma unroll
        for (int i = 0; i < BLOCKS_M; i++) of_a[i][x] = from_a[(step + x / 2 * 4) * PITCH(TILE_M) + i * 16 + x % 2 * 8];
      }
      #pragma unroll
      for (int x = 0; x < 2; x++) {
        #pragma unroll
        for (int j = 0; j < BLOCKS_N; j++) of_b[j][x] = from_b[(step + x * 4) * PITCH(TILE_N) + j * 8];
      }
      #pragma unroll
      for (int i = 0; i < BLOCKS_M; i++) {
        #pragma unroll
        for (int j = 0; j < BLOCKS_N; j++) add_block(sum + (i * BLOCKS_N + j) * 4, of_a[i], of_b[j]);
      }
    }
#else
    #pragma unroll UNROLL
    for (int step = 0; step < STEPS; step++) {
      #pragma unroll
      for (int e = 0; e < ELEMENTS; e++)
        sum[e] = ADD_WORD(block_a[step * PITCH(TILE_M) + ROW(e)], block_b[step * PITCH(TILE_N) + COLUMN(e)], sum[e]);
    }
#endif
  }
  const int rows = m - row_0, columns = n - column_0;
#if FUSED_SPLIT_K
  __local uint earlier;
  __global LANE_TYPE* const all = slices_out + (long)piece * slices * (TILE_M * TILE_N) + item;
  #pragma unroll
  for (int e = 0; e < ELEMENTS; e++)
    if (ROW(e) < rows && COLUMN(e) < columns) all[(slice * ELEMENTS + e) * ITEMS] = sum[e];
  if (!comes_last(counters + piece, slices, &earlier)) return;
  #pragma unroll
  for (int e = 0; e < ELEMENTS; e++) sum[e] = 0;
  #pragma unroll 4
  for (int other = 0; other < slices; other++) {
    #pragma unroll
    for (int e = 0; e < ELEMENTS; e++)
      if (ROW(e) < rows && COLUMN(e) < columns) sum[e] += all[(other * ELEMENTS + e) * ITEMS];
  }
#endif
#if TENSORS
  // Neighbours store neighbours: the sums go through local memory, a block of rows of every warp at a time.
  __local LANE_TYPE* const block = (__local LANE_TYPE*)blocks + item / 32 * (16 * BLOCK_N);
  for (int i = 0; i < BLOCKS_M; i++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int r = 0; r < BLOCKS_M; r++) {  // constant indices keep the sums in registers
      #pragma unroll
      for (int e = 0; e < 4 * BLOCKS_N; e++)
        if (r == i) block[(ROW(e) - ROW_WARP) * BLOCK_N + COLUMN(e) - COLUMN_WARP] = sum[r * 4 * BLOCKS_N + e];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int x = item % 32; x < 16 * BLOCK_N; x += 32) {
      const int row = ROW_WARP + i * 16 + x / BLOCK_N, column = COLUMN_WARP + x % BLOCK_N;
      if (row < rows && column < columns) store_lane(c, (row_0 + row) * c_row + (column_0 + column) * c_column, block[x], adds);
    }
  }
#else
  #pragma unroll
  for (int e = 0; e < ELEMENTS; e++)
    if (ROW(e) < rows && COLUMN(e) < columns)
      store_lane(c, (row_0 + ROW(e)) * c_row + (column_0 + COLUMN(e)) * c_column, sum[e], adds);
#endif
}
