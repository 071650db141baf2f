// How the two warp groups of tensor_core/narrow.cl multiply. Each has 64 rows of A, and splits them in registers. Both use
// the same chunks of B (tensor_core/chunk.cl), which the copy engine brings to local memory. They take turns at the tensor
// cores: while these work for one, the other splits. For each chunk,
//     sum    = high_a*low_b + low_a*high_b + high_a*high_b      wgmma, from zero
//     total += sum * (r_a*r_b)                                  in registers
// Where an element of A or B cannot be split, all products with that number of k are made in IEEE single precision.
//
// `tf32` tells the method. It is a constant where these functions are called.
#ifndef AHEAD
#error "AHEAD: chunks from fetching a chunk of A to the second-level cache to loading it"
#endif
#ifndef LOAD_A
#error "LOAD_A: floats per load of A: 1, 2 or, with ALONG_K, 4"
#endif
#define TILE_M 128
#define GROUP_ROWS 64           // rows of a warp group
#define STAGES 4                // chunks of B in local memory; two may be in use, one by each warp group
#define FETCHED 2               // chunks of B that are fetched ahead
#define SUMS (COLUMNS / 2)      // of a work-item: two rows, every fourth pair of columns
#define SPAN (ALONG_K ? 4 : 2)  // contiguous elements that a work-item splits: along k, or rows
#define MOST_MARKS 4            // of a chunk in halves; with more, tf32 is faster
#define NEVER 0x7fffffff

// The numbers of barriers: each warp group's own, and its turn at the tensor cores.
#define OWN_BARRIER(group) (1 + (group))
#define TURN(group) (1 + GROUPS + (group))

// The text of the instructions for a product of 64 x COLUMNS and a chunk of k: four steps of 16 of k, with tf32 of 8.
#define DISTANCE 8  // from one core matrix to the next along the columns, 128/16
#define SIXTEEN_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SIXTEEN_1 SIXTEEN_0 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SIXTEEN_2 SIXTEEN_1 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define EIGHT(i)                                                              \
  "=f"(sum[i]), "=f"(sum[i + 1]), "=f"(sum[i + 2]), "=f"(sum[i + 3]),         \
  "=f"(sum[i + 4]), "=f"(sum[i + 5]), "=f"(sum[i + 6]), "=f"(sum[i + 7])
#if COLUMNS == 16
#define NAMES "%0,%1,%2,%3,%4,%5,%6,%7"
#define RESULTS EIGHT(0)
#elif COLUMNS == 32
#define NAMES SIXTEEN_0
#define RESULTS EIGHT(0), EIGHT(8)
#elif COLUMNS == 64
#define NAMES SIXTEEN_1
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24)
#elif COLUMNS == 96
#define NAMES SIXTEEN_2
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40)
#else
#define NAMES SIXTEEN_2 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define RESULTS EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
#endif
#define SHAPE_OF_HALVES "k16.f32.f16.f16 "
#define NOT_TRANSPOSED ", 0"
#define SHAPE_OF_TF32 "k8.f32.tf32.tf32 "
#define TIMES(shape, plain, part_a, step, part_b, add)                                                  \
  "add.s32 place, %[b], " TEXT((step * 2 * PITCH + part_b) / 16) "; mov.b64 b, {place, apart};\n"        \
  "wgmma.mma_async.sync.aligned.m64n" TEXT(COLUMNS) shape "{" NAMES "}, "                               \
  "{%[" part_a #step "0],%[" part_a #step "1],%[" part_a #step "2],%[" part_a #step "3]}, b, " add ", 1, 1" plain ";\n"
#define ALL_TIMES(shape, plain, part_a, part_b, first_adds)                                             \
  TIMES(shape, plain, part_a, 0, part_b, first_adds) TIMES(shape, plain, part_a, 1, part_b, "yes")      \
  TIMES(shape, plain, part_a, 2, part_b, "yes") TIMES(shape, plain, part_a, 3, part_b, "yes")
#define FOUR(name, parts)                                                     \
  [name##0] "r"(parts[0]), [name##1] "r"(parts[1]), [name##2] "r"(parts[2]), [name##3] "r"(parts[3])
// sum = a*b. The 12 instructions are in one piece, since the compiler must not touch the sums before all are done. The
// small products come first, so that less of them is lost; the first of all does not add. tile_b is the lower half of the
// descriptor of B's high parts; addresses count in units of 16 bytes.
#define MULTIPLY(shape, plain)                                                                          \
  asm volatile("{.reg .b64 b; .reg .b32 place, apart; .reg .pred no, yes;\n"                            \
               "setp.ne.b32 no, %[b], %[b]; setp.eq.b32 yes, %[b], %[b];\n"                             \
               "mov.b32 apart, " TEXT(DISTANCE) ";\n"                                                   \
               "bar.sync %[turn], 256;\n"                                                               \
               "wgmma.fence.sync.aligned;\n"                                                            \
               ALL_TIMES(shape, plain, "h", LOW_AT, "no") ALL_TIMES(shape, plain, "l", 0, "yes")        \
               ALL_TIMES(shape, plain, "h", 0, "yes")                                                   \
               "wgmma.commit_group.sync.aligned;\n"                                                     \
               "bar.arrive %[then], 256;\n"                                                             \
               "wgmma.wait_group.sync.aligned 0;}\n"                                                    \
               : RESULTS                                                                                \
               : FOUR(h0, high[0]), FOUR(h1, high[1]), FOUR(h2, high[2]), FOUR(h3, high[3]),            \
                 FOUR(l0, low[0]), FOUR(l1, low[1]), FOUR(l2, low[2]), FOUR(l3, low[3]),                \
                 [b] "r"(tile_b), [turn] "r"(mine), [then] "r"(others) : "memory")
static inline void multiply(float* sum, const bool tf32, uint high[4][4], uint low[4][4], const uint tile_b, const uint mine,
                            const uint others) {
  if (tf32)
    MULTIPLY(SHAPE_OF_TF32, "");
  else
    MULTIPLY(SHAPE_OF_HALVES, NOT_TRANSPOSED);
}

static inline void let_pass(const uint mine, const uint others) {
  asm volatile("bar.sync %0, 256; bar.arrive %1, 256;" :: "r"(mine), "r"(others) : "memory");
}

// A barrier of the warp group.
static inline void own_barrier(const uint group) { asm volatile("bar.sync %0, 128;" :: "r"(OWN_BARRIER(group)) : "memory"); }

// The same; whether `mine` holds for any of its work-items.
static inline bool any_at_barrier(const uint group, const bool mine) {
  uint any;
  asm volatile("{.reg .pred mine, any; setp.ne.u32 mine, %1, 0; bar.red.or.pred any, %2, 128, mine; selp.u32 %0, 1, 0, any;}"
               : "=r"(any) : "r"((uint)mine), "r"(OWN_BARRIER(group)) : "memory");
  return any != 0;
}

// A tile of A and B: from the first row, column and k of a work-group on, and how many of them there are.
typedef struct {
  __global const float *a, *b;
  long a_row, a_column, b_row, b_column;
  int rows, columns, depth;
  int least;  // in halves elements from 2^least over their scale on are split
} Slice;

// What both warp groups share.
typedef struct {
  uint marks[GROUPS][2];  // of a chunk of A and B
  int from[GROUPS];       // where each begins in tf32; NEVER if it does not
  int last;               // the last chunk in halves, for both; the first warp group sets it a chunk before
} Turns;

// What a work-item reads of A.
typedef struct {
  __global const float* next;  // its elements of the chunk that is loaded next
  __global const float* line;  // its cache line of the chunk to prefetch
  int left, line_left;         // steps over k that are left from there on; no line is left past the last row
  int rows;                    // rows of A from its own on
  int whole;                   // steps over k that are left for the warp group, if it has all of its rows
} Reader;

// The first of a work-item's two rows of the tile.
static inline int first_row(void) {
  return get_local_id(0) / GROUP * GROUP_ROWS + get_local_id(0) % GROUP / 32 * 16 + get_local_id(0) / 4 % 8 * 2;
}

static inline Reader reader_at(const Slice* s, const bool tf32, const int at) {
  const int item = get_local_id(0) % GROUP, t = item % 4, row_0 = get_local_id(0) / GROUP * GROUP_ROWS;
#if ALONG_K
  const int own_k = t * 4, line_row = row_0 + item % GROUP_ROWS, line_k = item / GROUP_ROWS * 32;
#else
  const int own_k = t, line_row = row_0 + item % 2 * 32, line_k = item / 2;
#endif
  Reader r;
  r.next = s->a + first_row() * s->a_row + (at + own_k) * s->a_column;
  r.left = s->depth - at - own_k;
  r.rows = s->rows - first_row();
  r.whole = s->rows >= row_0 + GROUP_ROWS ? s->depth - at : 0;
  r.line = s->a + line_row * s->a_row + (at + line_k) * s->a_column;
  r.line_left = line_k < CHUNK_OF(tf32) && line_row < s->rows ? s->depth - at - line_k : 0;
  return r;
}

static inline void fetch_line(Reader* r, const bool tf32, const long a_column) {
  r->line += CHUNK_OF(tf32) * a_column;
  r->line_left -= CHUNK_OF(tf32);
  if (r->line_left > 0) asm volatile("prefetch.global.L2 [%0];" :: "l"(r->line));
}

// Load SPAN floats, LOAD_A at a time, of which the first `there` exist; the others are zero.
static inline void load(float* x, __global const float* from, const int there) {
  #pragma unroll
  for (int i = 0; i < SPAN; i += LOAD_A) {
    FLOAT(LOAD_A) values = (FLOAT(LOAD_A))(0.0f);
    if (there > i) values = LOAD_ALIGNED(LOAD_A, __global, from + i);
    STORE(LOAD_A, values, x + i);
  }
}

// A work-item's elements of A in a chunk are blocks of two rows and four of k, which are 16 of k apart.
#define BLOCKS_OF(tf32) (CHUNK_OF(tf32) / 16)
#define ELEMENT(x, block, row, i) ((x)[(block) * 8 + (ALONG_K ? (row) * 4 + (i) : (i) * 2 + (row))])

static inline __attribute__((always_inline)) void load_some(float* x, const Reader* r, const bool tf32, const long a_row,
                                                            const long a_column, const bool whole) {
  #pragma unroll
  for (int q = 0; q < BLOCKS_OF(tf32) * (8 / SPAN); q++) {
    const int p_0 = q / (8 / SPAN) * 16;
#if ALONG_K  // a row at a time
    const int row = q % 2, p = p_0;
    load(x + q * SPAN, r->next + row * a_row + p, whole ? SPAN : row < r->rows ? r->left - p : 0);
#else  // one of k at a time
    const int p = p_0 + q % 4 * 4;
    load(x + q * SPAN, r->next + p * a_column, whole ? SPAN : p < r->left ? r->rows : 0);
#endif
  }
}

// Load this work-item's elements of the next chunk, and move on.
static inline __attribute__((always_inline)) void load_blocks(float* x, Reader* r, const bool tf32, const long a_row,
                                                              const long a_column) {
  if (r->whole >= CHUNK_OF(tf32))
    load_some(x, r, tf32, a_row, a_column, true);
  else
    load_some(x, r, tf32, a_row, a_column, false);
  r->next += CHUNK_OF(tf32) * a_column;
  r->left -= CHUNK_OF(tf32);
  r->whole -= CHUNK_OF(tf32);
}

// Chunks of A that are in registers: those in tf32 are half as large.
#define LOADED(tf32) ((tf32) ? 2 : 1)

// Begin to read A from `at` on.
static inline __attribute__((always_inline)) Reader begin_reading(float* x, const Slice* s, const bool tf32, const int at) {
  Reader r = reader_at(s, tf32, at);
  #pragma unroll
  for (int chunk = 0; chunk < LOADED(tf32); chunk++) load_blocks(x + 16 * chunk, &r, tf32, s->a_row, s->a_column);
  return r;
}

// Prefetch what is not read at once.
static inline void fetch_lines(Reader* r, const Slice* s, const bool tf32) {
  #pragma unroll
  for (int chunk = 1; chunk < AHEAD * LOADED(tf32); chunk++) fetch_line(r, tf32, s->a_column);
}

// What a work-item has found of its two rows in a chunk: how they are scaled, and which elements cannot be split.
typedef struct {
  float times[2], scale[2];
  uint tiny[2], huge;  // bits: elements below and from there on cannot be split, zeros aside
  bool any;            // whether one of them is not zero
} Rows;

// The largest of the four work-items that share a row.
static inline uint largest_of_four(uint x) {
  uint other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 31, 0xffffffff;" : "=r"(other) : "r"(x));
  x = max(x, other);
  asm volatile("shfl.sync.bfly.b32 %0, %1, 2, 31, 0xffffffff;" : "=r"(other) : "r"(x));
  return max(x, other);
}

static inline __attribute__((always_inline)) void see_rows(Rows* rows, const bool tf32, const float* x, const int least) {
  // Twice the bits, minus 1, so that signs are left out and zero becomes the largest of all.
  uint lowest[2] = {-1, -1}, highest[2] = {0, 0};
  #pragma unroll
  for (int block = 0; block < BLOCKS_OF(tf32); block++)
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const uint size = as_uint(ELEMENT(x, block, i % 2, i / 2)) * 2 - 1;
      lowest[i % 2] = min(lowest[i % 2], size);
      highest[i % 2] = max(highest[i % 2], size);
    }
  if (max(highest[0], highest[1]) == -1) {
    #pragma unroll
    for (int row = 0; row < 2; row++) {
      uint largest = 0;
      #pragma unroll
      for (int i = 0; i < BLOCKS_OF(tf32) * 4; i++) largest = max(largest, as_uint(ELEMENT(x, i / 4, row, i % 4)) * 2);
      highest[row] = largest - (largest != 0);
    }
  }
  rows->any = false;
  rows->huge = tf32 ? HUGE_OF_TF32 : HUGE_BITS;
  #pragma unroll
  for (int row = 0; row < 2; row++) {
    uint largest = highest[row];
    if (!tf32) {
      largest = largest_of_four(largest);
      const int e = exponent_of(largest >> 1);
      rows->times[row] = times_of(e), rows->scale[row] = scale_of(e);
      rows->tiny[row] = tiny_bits(e, least);
    } else {
      rows->times[row] = rows->scale[row] = 1.0f;
      rows->tiny[row] = TINY_OF_TF32;
    }
    rows->any |= largest >= rows->huge * 2 - 1 || lowest[row] < rows->tiny[row] * 2 - 1;
  }
}

static inline __attribute__((always_inline)) void split_blocks(const float* x, const bool tf32, const Rows* rows,
                                                               uint high[4][4], uint low[4][4]) {
  #pragma unroll
  for (int step = 0; step < 4; step++)
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = i % 2;
      if (tf32) {
        split_to_tf32(ELEMENT(x, step / 2, row, step % 2 * 2 + i / 2), &high[step][i], &low[step][i]);
      } else {
        const float first = ELEMENT(x, step, row, i / 2 * 2), second = ELEMENT(x, step, row, i / 2 * 2 + 1);
        high[step][i] = split_two(first * rows->times[row], second * rows->times[row], &low[step][i]);
      }
    }
}

// The marks of all work-items of the warp group.
static inline ulong of_warp_group(const ulong own, __local Turns* turns) {
  const uint group = get_local_id(0) / GROUP;
  __local uint* marks = turns->marks[group];
  if ((uint)own != 0) atomic_or(marks, (uint)own);
  if (own >> 32 != 0) atomic_or(marks + 1, (uint)(own >> 32));
  own_barrier(group);
  const ulong all = (ulong)*(volatile __local uint*)(marks + 1) << 32 | *(volatile __local uint*)marks;
  own_barrier(group);
  if (get_local_id(0) % GROUP == 0) marks[0] = marks[1] = 0;
  return all;
}

// The numbers of k at which the chunk of B, or A in this warp group's rows, has elements that cannot be split. They are read
// from memory again, since the next ones are on their way to the registers.
static inline ulong all_marks(const Slice* s, const bool tf32, const Rows* rows, const int at, const ulong marks_b,
                              __local Turns* turns) {
  ulong found = get_local_id(0) % GROUP == 0 ? marks_b : 0;
  #pragma unroll 1
  for (int block = 0; block < BLOCKS_OF(tf32); block++)
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int row = first_row() + i % 2, p = block * 16 + K_OF(get_local_id(0) % 4, i / 2);
      if (row < s->rows && at + p < s->depth &&
          is_outlier(s->a[row * s->a_row + (at + p) * s->a_column], rows->tiny[i % 2], rows->huge))
        found |= 1ul << p;
    }
  return of_warp_group(found, turns);
}

// Leave the marked numbers of k out of the parts.
static inline __attribute__((always_inline)) void leave_out(uint high[4][4], uint low[4][4], const bool tf32, const ulong marks) {
  const int t = get_local_id(0) % 4;
  #pragma unroll
  for (int step = 0; step < 4; step++)
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      uint keep;
      if (tf32) {
        keep = marks >> (step / 2 * 16 + K_OF(t, step % 2 * 2 + i / 2)) & 1 ? 0 : -1;
      } else {
        keep = marks >> (step * 16 + K_OF(t, i / 2 * 2)) & 1 ? 0 : 0xffff;
        keep |= marks >> (step * 16 + K_OF(t, i / 2 * 2 + 1)) & 1 ? 0 : 0xffff0000;
      }
      high[step][i] &= keep, low[step][i] &= keep;
    }
}

// Add the products with the marked numbers of k from `at` on to the sums, in IEEE single precision.
static inline void add_plainly(float* sums, const Slice* s, const int at, ulong marks) {
  const int row = first_row(), t = get_local_id(0) % 4;
  int last = s->columns - 1;
  asm volatile("" : "+r"(last));  // keeps the compiler from hoisting what follows out of the loop over chunks
  #pragma unroll 1
  for (; marks != 0; marks &= marks - 1) {
    const int p = at + 63 - (int)clz(marks & -marks);
    if (p >= s->depth) break;
    float values[2];
    #pragma unroll
    for (int r = 0; r < 2; r++) values[r] = s->a[min(row + r, s->rows - 1) * s->a_row + p * s->a_column];
    #pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++) {
      const float y = s->b[p * s->b_row + min(i / 2 * 8 + t * 2 + i % 2, last) * s->b_column];
      #pragma unroll
      for (int r = 0; r < 2; r++) {
        const int index = i / 2 * 4 + r * 2 + i % 2;
        sums[index] = fma(values[r], y, sums[index]);
      }
    }
  }
}

// Where the next chunks of B come from and go to.
typedef struct {
  __global const uchar* from;  // the chunk in use
  uint base, ready;            // addresses of the first stage and of its barrier
  bool is_fetching;            // one work-item fetches
} Feed;

static inline void fetch_chunk(const Feed* f, const int stage, const int ahead) {
  expect(f->ready + 8 * stage, CHUNK_BYTES);
  fetch(f->base + stage * CHUNK_BYTES, f->from + (long)ahead * CHUNK_BYTES, CHUNK_BYTES, f->ready + 8 * stage);
}

// Where a warp group is.
typedef struct {
  int at;          // the chunk in use
  int begin, end;  // it adds the chunks from `begin` on and before `end`
  int stage;
  uint round;      // parity of the uses of a stage
} Position;

// Multiply a chunk, whose elements of A are in x. Then x holds those of the chunk that was to be loaded next. Returns true if
// tf32 has to go on with the next chunk, for both warp groups. Deadlock-free: both take the same turns.
static inline __attribute__((always_inline)) bool multiply_chunk(float* total, const bool tf32, const Slice* s, float* x, Reader* r,
                                                                 Feed* f, Position* here, __local const uchar* memory,
                                                                 __local Turns* turns) {
  const uint group = get_local_id(0) / GROUP, mine = TURN(group), others = TURN(1 - group);
  const bool is_first = get_local_id(0) % GROUP == 0;
  fetch_line(r, tf32, s->a_column);
  wait_for(f->ready + 8 * here->stage, here->round);
  __local const uchar* chunk = memory + here->stage * CHUNK_BYTES;
  const ulong marks_b = *(__local const ulong*)(chunk + MARKS_AT);
  const float scale_b = *(__local const float*)(chunk + SCALE_AT);
  // What the first warp group wrote before its turn is visible after the other's.
  const int last = tf32 ? NEVER : *(volatile __local int*)&turns->last;
  const bool other_ended = !tf32 && group == 0 && *(volatile __local int*)&turns->from[1] != NEVER;
  Rows rows;
  see_rows(&rows, tf32, x, s->least);
  uint high[4][4], low[4][4];
  split_blocks(x, tf32, &rows, high, low);
  load_blocks(x, r, tf32, s->a_row, s->a_column);
  const bool any = any_at_barrier(group, rows.any || marks_b != 0 || other_ended);
  ulong marks = 0;
  if (any) {
    if (here->end == NEVER) {
      marks = all_marks(s, tf32, &rows, here->at, marks_b, turns);
      leave_out(high, low, tf32, marks);
      if (!tf32 && popcount(marks) > MOST_MARKS) {
        here->end = here->at;
        if (is_first) turns->from[group] = here->at;
      }
    }
    if (!tf32 && group == 0 && is_first && last == NEVER && (other_ended || here->end != NEVER))
      turns->last = here->at + CHUNK_OF(tf32);
  }
  if (here->at >= here->begin && here->at < here->end) {
    float sum[SUMS];
    multiply(sum, tf32, high, low, f->base / 16 + here->stage * (CHUNK_BYTES / 16) | PITCH / 16 << 16, mine, others);
    // In tf32 they may be many. So they are added to the chunk's sum, and each chunk to the total once.
    if (any && tf32) add_plainly(sum, s, here->at, marks);
    const float scale[2] = {rows.scale[0] * scale_b, rows.scale[1] * scale_b};
    #pragma unroll
    for (int i = 0; i < SUMS; i++) total[i] = tf32 ? total[i] + sum[i] : fma(sum[i], scale[i / 2 % 2], total[i]);
    if (any && !tf32) add_plainly(total, s, here->at, marks);
  } else {
    let_pass(mine, others);
  }
  const bool stops = here->at >= last;
  here->at += CHUNK_OF(tf32);
  // Before this turn the other warp group had begun the chunk before, so both have read the one before that.
  if (f->is_fetching && !stops && here->at + (FETCHED - 1) * CHUNK_OF(tf32) < s->depth)
    fetch_chunk(f, here->stage + FETCHED < STAGES ? here->stage + FETCHED : here->stage + FETCHED - STAGES, FETCHED);
  f->from += CHUNK_BYTES;
  next_stage(&here->stage, &here->round, STAGES);
  if (stops) {
    if (is_first && here->end == NEVER) turns->from[group] = here->at;
    if (here->at < s->depth) wait_for(f->ready + 8 * here->stage, here->round);  // has been fetched
  }
  return stops;
}

// Let tf32 multiply all chunks if this warp group has too many elements in its first one, x, that cannot be split.
static inline __attribute__((always_inline)) void look_at_first(const Slice* s, const float* x, __local Turns* turns) {
  Rows rows;
  see_rows(&rows, false, x, s->least);
  if (!any_at_barrier(get_local_id(0) / GROUP, rows.any)) return;
  ulong found = 0;
  #pragma unroll
  for (int block = 0; block < BLOCKS_OF(false); block++)
    #pragma unroll
    for (int i = 0; i < 8; i++)
      if (is_outlier(ELEMENT(x, block, i % 2, i / 2), rows.tiny[i % 2], rows.huge))
        found |= 1ul << (block * 16 + K_OF(get_local_id(0) % 4, i / 2));
  const ulong marks = of_warp_group(found, turns);
  if (popcount(marks) > MOST_MARKS && get_local_id(0) % GROUP == 0) turns->from[get_local_id(0) / GROUP] = 0;
}

// Multiply the chunks from `at` on, of which x holds the first. In halves, a warp group that finds too many elements that
// cannot be split adds no more chunks, and both stop soon. turns->from tells where tf32 has to go on.
static inline __attribute__((always_inline)) void multiply_chunks(float* total, const bool tf32, const Slice* s, float* x, Reader* r,
                                                                  Feed* f, const int at, __local const uchar* memory,
                                                                  __local Turns* turns) {
  Position here = {at, tf32 ? turns->from[get_local_id(0) / GROUP] : 0, NEVER, 0, 0};
  if (f->is_fetching)
    for (int ahead = 0; ahead < FETCHED; ahead++)
      if (at + ahead * CHUNK_OF(tf32) < s->depth) fetch_chunk(f, ahead, ahead);
  #pragma unroll 1
  while (here.at < s->depth) {
    if (multiply_chunk(total, tf32, s, x, r, f, &here, memory, turns)) return;
    if (tf32 && here.at < s->depth) multiply_chunk(total, tf32, s, x + 16, r, f, &here, memory, turns);
  }
}
