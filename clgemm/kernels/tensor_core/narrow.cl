// C = alpha*A*B + beta*C on the tensor cores of NVIDIA's compute capability 9.0, for a B of few columns. A is read once, in
// place, and split in registers; only B is packed.
//   a[i*a_row + p*a_column]     m x k; columns are contiguous with ALONG_K, otherwise rows are
//   b[p*b_row + j*b_column]     k x n, any strides
//   packed                      B in chunks (tensor_core/chunk.cl), ordered by matrix, tile of columns, k. There are `packs`
//                               chunks, of the matrices that b has (own_counts, own_strides), without the repetitions of
//                               the batch (packed_strides)
//   c[i*c_row + j*c_column]     m x n; not read when beta is 0
// Loads bring LOAD_A floats of A. Its rows, strides and address are multiples of that.
//
// A work-group computes a tile of C, TILE_M x COLUMNS, over one slice of k. First the work-groups take chunks of B to pack
// until none is left, and wait until all are packed. Then the PARTS warp groups take turns at the tensor cores. With up to
// 64 COLUMNS each takes other chunks of the slice, for all rows; a turn is half a chunk of two tiles of 64 rows. With 96 or
// 128 each takes 64 rows, for all chunks. A turn is a whole chunk there, so that A is split once for all columns.
// Work-items load what they split of the next chunk of A, and prefetch a later one, AHEAD chunks on, to the second-level
// cache. The copy engine brings chunks of B to local memory. With x = h + l,
//     sum   += high_a*low_b + low_a*high_b + high_a*high_b      wgmma, from zero for each chunk
//     total += sum                                              in registers
// There are no scales. What a warp group multiplies in a turn is multiplied in IEEE single precision instead if it has an
// element that cannot be split: tiny, huge, Inf or NaN. docs/tensor_cores.md has the error bound.
//
// Atomic counters, all 0 before and after:
//   pack_counters[0]    chunks that work-groups have taken to pack
//   pack_counters[1]    chunks that are packed
//   pack_counters[2]    work-groups that no longer read the counters, of which the last sets them to 0
// Split-k: slice s goes to c + s*c_slice; or, with FUSED_SPLIT_K, to `slices_out`, and the sum of all to c (split_k/fused.cl, whose
// counters follow these).
// Work-groups: matrices x slices x tiles of C, 128*PARTS work-items each. Local: LOCAL_BYTES.
// After: NVIDIA, "Parallel thread execution ISA", asynchronous warpgroup level matrix instructions, asynchronous copies.
#ifndef PARTS
#error "PARTS: warp groups, which share k or, with 96 or 128 COLUMNS, the rows"
#endif
#ifndef AHEAD
#error "AHEAD: chunks from fetching a chunk of A to the second-level cache to loading it"
#endif
#ifndef LOAD_A
#error "LOAD_A: floats per load of A: 1, 2 or, with ALONG_K, 4"
#endif
#define TILE_M 128
#if COLUMNS > 64
#define TILES 1        // Tiles of 64 rows, in a turn of a warp group.
#define SHARING_K 1    // Warp groups that share k.
#define STAGES 4       // Chunks of B in local memory, for all warp groups. Two may be in use, one for each warp group.
#define ROWS_APART 64  // From a warp group's rows to the next one's.
#else
#define TILES 2
#define SHARING_K PARTS
#define STAGES 3  // For each warp group.
#define ROWS_APART 0
#endif
#define FETCHED 2               // chunks of B that are fetched ahead
#define SUMS (COLUMNS / 2)      // sums of a work-item in a tile of 64 x COLUMNS
#define SPAN (ALONG_K ? 4 : 2)  // contiguous elements that a work-item splits: along k, or rows
#define PITCH_C (TILE_M + 4)    // floats of a column of C in local memory, against bank conflicts
#define TILE_C_BYTES (4 * COLUMNS * PITCH_C)
#define PACK_COUNTERS 3         // atomic counters
#define PART_BYTES (STAGES * CHUNK_BYTES > TILE_C_BYTES ? STAGES * CHUNK_BYTES : TILE_C_BYTES)
#define LOCAL_BYTES (SHARING_K * PART_BYTES)

// Load SPAN floats, LOAD_A at a time, of which the first `there` exist; the others are zero.
static inline void load(float* x, __global const float* from, const int there) {
  #pragma unroll
  for (int i = 0; i < SPAN; i += LOAD_A) {
    FLOAT(LOAD_A) values = (FLOAT(LOAD_A))(0.0f);
    if (there > i) values = LOAD_ALIGNED(LOAD_A, __global, from + i);
    STORE(LOAD_A, values, x + i);
  }
}

static inline void fetch_chunk(uint to, __global const uchar* chunk, uint barrier) {
  expect(barrier, CHUNK_BYTES);
  fetch(to, chunk, CHUNK_BYTES, barrier);
}

// A barrier of the warp group; whether `mine` is not zero for any of its work-items.
static inline uint any_at_barrier(const uint id, const uint mine) {
  uint any;
  asm volatile("{.reg .pred mine, any; setp.ne.u32 mine, %1, 0; bar.red.or.pred any, %2, 128, mine; selp.u32 %0, 1, 0, any;}"
               : "=r"(any) : "r"(mine), "r"(id) : "memory");
  return any;
}

// The numbers of barriers: each warp group's own, and its turn at the tensor cores.
#define OWN_BARRIER(part) (1 + (part))
#define TURN(part) (1 + PARTS + (part))

// The text of the instructions of a turn: for TILES tiles of 64 x COLUMNS, CHUNK/TILES of k.
#define DISTANCE 8  // from one core matrix to the next along the columns, 128/16
#define EIGHT(i)                                                              \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]),         \
  "+f"(sum[i + 4]), "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define SIXTEEN_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SIXTEEN_1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SIXTEEN_2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define SIXTEEN_3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#if COLUMNS == 16
#define SUMS_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define SUMS_1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define RESULTS EIGHT(0), EIGHT(8)
#elif COLUMNS == 32
#define SUMS_0 SIXTEEN_0
#define SUMS_1 SIXTEEN_1
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24)
#elif COLUMNS == 64
#define SUMS_0 SIXTEEN_0 "," SIXTEEN_1
#define SUMS_1 SIXTEEN_2 "," SIXTEEN_3
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
#elif COLUMNS == 96
#define SUMS_0 SIXTEEN_0 "," SIXTEEN_1 "," SIXTEEN_2
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40)
#else
#define SUMS_0 SIXTEEN_0 "," SIXTEEN_1 "," SIXTEEN_2 "," SIXTEEN_3
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
#endif
#define SHAPE "m64n" TEXT(COLUMNS) "k8"
#define WGMMA(sums, a)                                                        \
  "wgmma.mma_async.sync.aligned." SHAPE ".f32.tf32.tf32 {" sums "}, "         \
  "{%[" a "0],%[" a "1],%[" a "2],%[" a "3]}, b, yes, 1, 1;\n"
#define AT_STEP(step, part_b)                                                 \
  "add.s32 place, %[b], " TEXT((step * 2 * PITCH + part_b) / 16) "; mov.b64 b, {place, apart};\n"
#if TILES == 2
#define TIMES(a, part_b)                                                      \
  AT_STEP(0, part_b) WGMMA(SUMS_0, a "00") WGMMA(SUMS_1, a "10")              \
  AT_STEP(1, part_b) WGMMA(SUMS_0, a "01") WGMMA(SUMS_1, a "11")
#else
#define TIMES(a, part_b)                                                      \
  AT_STEP(0, part_b) WGMMA(SUMS_0, a "00")                                    \
  AT_STEP(1, part_b) WGMMA(SUMS_0, a "01")                                    \
  AT_STEP(2, part_b) WGMMA(SUMS_0, a "10")                                    \
  AT_STEP(3, part_b) WGMMA(SUMS_0, a "11")
#endif
#define FOUR(name, parts)                                                     \
  [name##0] "r"(parts[0]), [name##1] "r"(parts[1]), [name##2] "r"(parts[2]), [name##3] "r"(parts[3])
// sum += a*b. The 12 instructions are in one piece, since the compiler must not touch the sums before all are done. tile_b
// is the lower half of the descriptor of B's high parts; addresses count in units of 16 bytes. Warp groups take turns:
// while the tensor cores work for one, the others split.
static inline void multiply(float* sum, uint high[2][2][4], uint low[2][2][4], const uint tile_b, const uint mine,
                            const uint others) {
  asm volatile("{.reg .b64 b; .reg .b32 place, apart; .reg .pred yes;\n"
               "setp.eq.b32 yes, %[b], %[b];\n"
               "mov.b32 apart, " TEXT(DISTANCE) ";\n"
               "bar.sync %[turn], 256;\n"
               "wgmma.fence.sync.aligned;\n"
               TIMES("h", LOW_AT) TIMES("l", 0) TIMES("h", 0)
               "wgmma.commit_group.sync.aligned;\n"
               "bar.arrive %[then], 256;\n"
               "wgmma.wait_group.sync.aligned 0;}\n"
               : RESULTS
               : FOUR(h00, high[0][0]), FOUR(h01, high[0][1]), FOUR(h10, high[1][0]), FOUR(h11, high[1][1]),
                 FOUR(l00, low[0][0]), FOUR(l01, low[0][1]), FOUR(l10, low[1][0]), FOUR(l11, low[1][1]),
                 [b] "r"(tile_b), [turn] "r"(mine), [then] "r"(others) : "memory");
}

// What a work-item reads of A. It moves on by SHARING_K chunks at a time.
typedef struct {
  __global const float* next;  // its elements of the next chunk
  __global const float* line;  // its cache line of the chunk to prefetch
  int left, line_left;         // steps over k that are left from there on; no line is left past the last row
  int rows;                    // rows of A from its own on
} Reader;

// What a work-item multiplies in a turn is two blocks of two rows and four of k. They lie in two tiles, or in two halves of
// a chunk. These are the distances of a block from the work-item's first row, and from its first of k.
static inline int block_row(const int block) { return TILES == 2 ? block * 16 : 0; }
static inline int block_k(const int turn, const int block) { return (TILES == 2 ? turn : block) * 16; }

// Load this work-item's two blocks.
static inline void load_blocks(float* x, const Reader* r, const int turn, const long a_row, const long a_column) {
  #pragma unroll
  for (int q = 0; q < 16 / SPAN; q++) {
    const int block = q / (8 / SPAN);
#if ALONG_K  // a row at a time
    const int row = block_row(block) + q % 2, p = block_k(turn, block);
    load(x + q * SPAN, r->next + row * a_row + p, row < r->rows ? r->left - p : 0);
#else  // one of k at a time
    const int row = block_row(block), p = block_k(turn, block) + q % 4 * 4;
    load(x + q * SPAN, r->next + row + p * a_column, p < r->left ? r->rows - row : 0);
#endif
  }
}

// Where the next chunks of B come from and go to.
typedef struct {
  __global const uchar* from;  // the chunk in use
  uint base, ready;            // addresses of the first stage and of its barrier
  bool is_fetching;            // one work-item fetches
} Feed;

// Fetch the chunk of B that is FETCHED chunks on from the one in use.
static inline void fetch_next(Feed* f, const int stage, const int at, const int depth) {
  if (!f->is_fetching || at + FETCHED * SHARING_K * CHUNK >= depth) return;
  const int other = stage + FETCHED < STAGES ? stage + FETCHED : stage + FETCHED - STAGES;
  fetch_chunk(f->base + other * CHUNK_BYTES, f->from + (long)(FETCHED * SHARING_K) * CHUNK_BYTES, f->ready + 8 * other);
  f->from += SHARING_K * CHUNK_BYTES;
}

static inline void fetch_line(Reader* r, const int step, const long a_column) {
  r->line += step * a_column;
  r->line_left -= step;
  if (r->line_left > 0) asm volatile("prefetch.global.L2 [%0];" :: "l"(r->line));
}

// The tile of C in vectors of four rows, column by column: a work-item has OWN of them, ITEMS apart.
#define FOURS (COLUMNS * TILE_M / 4)
#define OWN ((FOURS + ITEMS - 1) / ITEMS)
#define SLICES_AT_ONCE (OWN > 8 ? 2 : 4)  // whose loads are under way, as registers allow
static inline int own_index(const int i) { return i * ITEMS + (int)get_local_id(0); }
static inline bool is_own(const int i) { return FOURS % ITEMS == 0 || own_index(i) < FOURS; }
static inline int own_place(const int i) { return own_index(i) / (TILE_M / 4) * PITCH_C + own_index(i) % (TILE_M / 4) * 4; }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void tensor_narrow(const int m, const int n, const int k, const int slice_k, const int4 counts, const float alpha, const float beta,
                   __global const float* restrict a, const long a_offset, const long a_row, const long a_column, const long4 a_strides,
                   __global const float* restrict b, const long b_offset, const long b_row, const long b_column, const long4 b_strides,
                   __global uchar* packed, const long4 packed_strides, const int packs, const int4 own_counts, const long4 own_strides,
                   __global uint* pack_counters,
                   __global float* restrict c, const long c_offset, const long c_row, const long c_column, const long c_slice,
                   const long4 c_strides FUSED_ARGUMENTS) {
  __local uchar memory[LOCAL_BYTES] __attribute__((aligned(1024)));
  __local ulong barriers[SHARING_K * STAGES];
  __local uint drawn, odd_packed[PACKED_AT_ONCE];
  asm volatile(".target sm_90a");  // the compiler chooses sm_90, which lacks wgmma

  uint next_chunk = 0;
  if (get_local_id(0) == 0) next_chunk = atomic_add(pack_counters, PACKED_AT_ONCE);  // early, to hide its latency
  const int chunks = (k + CHUNK - 1) / CHUNK;
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + COLUMNS - 1) / COLUMNS, slices = (k + slice_k - 1) / slice_k;
  const uint tile = get_group_id(0) % (tiles_m * tiles_n), result = get_group_id(0) / (tiles_m * tiles_n);
  const uint slice = result % slices, matrix = result / slices;
  const int row_0 = tile / tiles_n * TILE_M, tile_n = tile % tiles_n, column_0 = tile_n * COLUMNS;
  const int first = slice * slice_k, depth = min(slice_k, k - first);
  a += a_offset + matrix_offset(matrix, counts, a_strides) + row_0 * a_row + first * a_column;
  b += b_offset;
  c += c_offset + matrix_offset(matrix, counts, c_strides) + row_0 * c_row + column_0 * c_column + slice * c_slice;
  const int rows = m - row_0, columns = n - column_0;

  const int part = get_local_id(0) / GROUP, item = get_local_id(0) % GROUP;
  const int sharing = part % SHARING_K;  // The number among the warp groups that share k.
  const int rows_0 = part * ROWS_APART;
  const int t = item % 4;
  const int my_row = rows_0 + item / 32 * (16 * TILES) + item / 4 % 8 * 2;  // the first of its two rows of each tile
  const int step = SHARING_K * CHUNK;
  __local uchar* own = memory + sharing * PART_BYTES;
  uint base = (uint)(ulong)own;
  asm volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(base));  // tells the compiler that it is the same for the warp
  const uint ready = (uint)(ulong)(barriers + sharing * STAGES);
  const uint tile_b = PITCH / 16 << 16 | base / 16;

  Reader reader;
  reader.rows = rows - my_row;
#if ALONG_K
  const int line_row = rows_0 + item, line_k = 0;
  reader.next = a + my_row * a_row + sharing * CHUNK + t * 4;
  reader.left = depth - sharing * CHUNK - t * 4;
#else
  const int line_row = rows_0 + item % (2 * TILES) * 32, line_k = item / (2 * TILES);
  reader.next = a + my_row + (sharing * CHUNK + t) * a_column;
  reader.left = depth - sharing * CHUNK - t;
#endif
  reader.line = a + line_row * a_row + (sharing * CHUNK + line_k) * a_column;
  reader.line_left = item < 64 * TILES && line_row < rows ? depth - sharing * CHUNK - line_k : 0;

  float x[TILES][16];
  #pragma unroll
  for (int turn = 0; turn < TILES; turn++) load_blocks(x[turn], &reader, turn, a_row, a_column);
  #pragma unroll
  for (int chunk = 1; chunk < AHEAD; chunk++) fetch_line(&reader, step, a_column);

  // Pack chunks of B that no work-group has taken, and wait until all are packed. Deadlock-free: a work-group waits only for
  // chunks that others have taken, which therefore are running.
  for (;;) {
    if (get_local_id(0) == 0) drawn = next_chunk;
    if (get_local_id(0) < PACKED_AT_ONCE) odd_packed[get_local_id(0)] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint taken = drawn;
    if (taken >= packs) break;
    if (get_local_id(0) == 0) next_chunk = atomic_add(pack_counters, PACKED_AT_ONCE);
    const int number = get_local_id(0) / (2 * COLUMNS), half_k = get_local_id(0) / COLUMNS % 2, j = get_local_id(0) % COLUMNS;
    const uint chunk = taken + number;
    const bool takes_part = number < PACKED_AT_ONCE && chunk < packs;
    __global uchar* to = packed + (long)chunk * CHUNK_BYTES;
    if (takes_part) {
      const int k_0 = chunk % chunks * CHUNK + half_k * 16, column = chunk / chunks % tiles_n * COLUMNS + j;
      const long place = matrix_offset(chunk / (chunks * tiles_n), own_counts, own_strides) + k_0 * b_row + column * b_column;
      if (pack_column(b + place, b_row, column < n ? k - k_0 : 0, to, half_k, j)) atomic_or(odd_packed + number, 1);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (takes_part && j + half_k == 0) *(__global uint*)(to + ODD_AT) = odd_packed[number];
    fence_copies();
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) count_up(pack_counters + 1, min(packs - taken, (uint)PACKED_AT_ONCE));
  }
  if (get_local_id(0) == 0) {
    while (counted(pack_counters + 1) < packs) {}
    if (atomic_add(pack_counters + 2, 1) == get_num_groups(0) - 1) pack_counters[0] = pack_counters[1] = pack_counters[2] = 0;
  }
  const bool is_fetching = item == 0 && part < SHARING_K;
  if (is_fetching) {
    for (int stage = 0; stage < STAGES; stage++) initialise(ready + 8 * stage, 1);
    fence_initialised();
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  b += matrix_offset(matrix, counts, b_strides) + column_0 * b_column + first * b_row;
  packed += (matrix_offset(matrix, counts, packed_strides) + (long)tile_n * chunks + first / CHUNK + sharing) * CHUNK_BYTES;
  Feed feed = {packed, base, ready, is_fetching};
  if (is_fetching) {
    fence_copies();
    for (int stage = 0; stage < FETCHED; stage++)
      if (sharing * CHUNK + stage * step < depth)
        fetch_chunk(base + stage * CHUNK_BYTES, packed + (long)(stage * SHARING_K) * CHUNK_BYTES, ready + 8 * stage);
  }

  float total[TILES * SUMS];
  #pragma unroll
  for (int i = 0; i < TILES * SUMS; i++) total[i] = 0.0f;

  const uint mine = TURN(part), others = TURN((part + 1) % PARTS);
  if (part == PARTS - 1) asm volatile("bar.arrive %0, 256;" :: "r"(others) : "memory");  // the first warp group takes the first turn
  int stage = 0;
  uint round = 0;  // parity of the uses of a stage
  #pragma unroll 1
  for (int start = 0; start < depth; start += step) {
    const int at = start + sharing * CHUNK;
    const bool has = at < depth;
    if (has) {
      fetch_line(&reader, step, a_column);
      wait_for(ready + 8 * stage, round);
    }
    reader.next += step * a_column;
    reader.left -= step;
    const uint odd_b = !has || *(__local const uint*)(own + stage * CHUNK_BYTES + ODD_AT);
    uint odd = 0;  // bits for turns
    float sum[TILES * SUMS];
    #pragma unroll
    for (int i = 0; i < TILES * SUMS; i++) sum[i] = 0.0f;
    #pragma unroll
    for (int turn = 0; turn < TILES; turn++) {
      Seen seen = {-1, 0.0f};
      uint high[2][2][4], low[2][2][4];
      #pragma unroll
      for (int i = 0; i < 16; i++) {  // four of k for each row of the blocks
        const int block = i / 8, row = i / 4 % 2, j = i % 4;
        const float value = x[turn][block * 8 + (ALONG_K ? row * 4 + j : j * 2 + row)];
        see(&seen, value);
        split(value, &high[block][j / 2][row + j % 2 * 2], &low[block][j / 2][row + j % 2 * 2]);
      }
      load_blocks(x[turn], &reader, turn, a_row, a_column);
      const uint odd_here = any_at_barrier(OWN_BARRIER(part), odd_b | is_odd(&seen));
      // Warp groups with stages of their own have read the chunk before. Fetch into its place.
      if (SHARING_K > 1 && turn == 0) fetch_next(&feed, stage, at, depth);
      if (odd_here == 0) {
        multiply(sum, high, low, tile_b + stage * (CHUNK_BYTES / 16) + turn * (4 * PITCH / 16), mine, others);
      } else {
        asm volatile("bar.sync %0, 256; bar.arrive %1, 256;" :: "r"(mine), "r"(others) : "memory");
        odd |= 1 << turn;
      }
      // Before this turn the other warp group had begun the chunk before, so both have read the one before that.
      if (SHARING_K == 1) fetch_next(&feed, stage, at, depth);
    }
    #pragma unroll
    for (int i = 0; i < TILES * SUMS; i++) total[i] += sum[i];
    if (odd != 0) {
      int last = columns - 1;
      asm volatile("" : "+r"(last));  // keeps the compiler from hoisting this out of the loop
      #pragma unroll 1
      for (int p = at; p < min(at + CHUNK, depth); p++) {
        if (!(odd >> (p - at) * TILES / CHUNK & 1)) continue;
        float values[2 * TILES];
        #pragma unroll
        for (int r = 0; r < 2 * TILES; r++) values[r] = a[min(my_row + r / 2 * 16 + r % 2, rows - 1) * a_row + p * a_column];
        #pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++) {
          const float y = b[p * b_row + min(i / 2 * 8 + t * 2 + i % 2, last) * b_column];
          #pragma unroll
          for (int r = 0; r < 2 * TILES; r++) {
            const int index = r / 2 * SUMS + i / 2 * 4 + r % 2 * 2 + i % 2;
            total[index] = fma(values[r], y, total[index]);
          }
        }
      }
    }
    if (++stage == STAGES) stage = 0, round ^= 1;
  }

  // The warp groups' sums go to local memory, column by column, and are added up.
  barrier(CLK_LOCAL_MEM_FENCE);
  __local float* tile_c = (__local float*)memory;
  __local float* tile_own = (__local float*)own + my_row;
  #pragma unroll
  for (int i = 0; i < TILES * COLUMNS / 4; i++) {
    const float* sum = total + i / (COLUMNS / 4) * SUMS + i / 2 % (COLUMNS / 8) * 4 + i % 2;
    *(__local float2*)(tile_own + (i / 2 % (COLUMNS / 8) * 8 + t * 2 + i % 2) * PITCH_C + i / (COLUMNS / 4) * 16) = (float2)(sum[0], sum[2]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  float4 four[OWN];
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    if (is_own(i)) {
      four[i] = *(__local const float4*)(tile_c + own_place(i));
      #pragma unroll
      for (int other = 1; other < SHARING_K; other++)
        four[i] += *(__local const float4*)(tile_c + other * (PART_BYTES / 4) + own_place(i));
    }
#if FUSED_SPLIT_K
  // Fused split-k. The last work-group of a tile adds the slices up, always in the same order.
  __local uint earlier;
  const uint piece = matrix * (tiles_m * tiles_n) + tile;
  __global float4* slices_c = (__global float4*)slices_out + (long)piece * slices * FOURS;
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    if (is_own(i)) slices_c[slice * FOURS + own_index(i)] = four[i];
  if (!comes_last(counters + PACK_COUNTERS + piece, slices, &earlier)) return;
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    if (is_own(i)) four[i] = slices_c[own_index(i)];
  #pragma unroll 1
  for (int first_slice = 1; first_slice < slices; first_slice += SLICES_AT_ONCE) {
    float4 more[SLICES_AT_ONCE][OWN];
    #pragma unroll
    for (int s = 0; s < SLICES_AT_ONCE; s++)
      #pragma unroll
      for (int i = 0; i < OWN; i++)
        if (first_slice + s < slices && is_own(i)) more[s][i] = slices_c[(first_slice + s) * FOURS + own_index(i)];
    #pragma unroll
    for (int s = 0; s < SLICES_AT_ONCE; s++)
      #pragma unroll
      for (int i = 0; i < OWN; i++)
        if (first_slice + s < slices && is_own(i)) four[i] += more[s][i];
  }
#endif
  #pragma unroll
  for (int i = 0; i < OWN; i++)
    if (is_own(i)) *(__local float4*)(tile_c + own_place(i)) = four[i];
  barrier(CLK_LOCAL_MEM_FENCE);

  // Store along the shorter stride of C.
  const bool along_rows = c_column * c_column <= c_row * c_row;
  for (int index = get_local_id(0); index < TILE_M * COLUMNS; index += ITEMS) {
    const int row = along_rows ? index / COLUMNS : index % TILE_M, column = along_rows ? index % COLUMNS : index / TILE_M;
    if (row < rows && column < columns)
      store_element(c + row * c_row + column * c_column, alpha * tile_c[column * PITCH_C + row], beta);
  }
}
