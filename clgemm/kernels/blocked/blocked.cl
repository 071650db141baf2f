// C = alpha*A*B + beta*C for CPUs, blocked for the caches and for the vector registers.
//   a[first*rows_a + (panel*depth + p - first)*WORK_M + i]     panels: row panel*WORK_M + i of A, column p
//   a[(panel*WORK_M + i)*a_row + p]                            with IN_PLACE: A itself, whose rows are contiguous
//   b[p*b_row + j*b_column]                                    k x n, any strides
//   c[i*c_row + j*c_column]                                    m x n, any strides; not read when beta is 0
// first = p/block_k*block_k is the first column of p's block, and depth is the number of its columns. rows_a is
// m rounded up to whole panels. Panels are padded with zeros.
//
// The five loops around the micro-kernel are in README.md. A work-group packs a block of B, block_k x block_n,
// into panels of WORK_N columns in its own part of `scratch`. The block stays in the second-level cache while
// it is multiplied by block_m panels of A. Each panel of A stays in the first-level cache while it is
// multiplied by the panels of B, for WORK_M x WORK_N elements of C at a time. Blocks of k come one after
// another, and each adds its sum to C.
//
// With PACKS, `a` is scratch memory for panels of A. The first work-group that needs block_m panels of a block
// of k packs them for all, from
//   source[i*source_row + p*source_column]
// It packs them before it multiplies. With `meanwhile`, which requires source_row to be 1, it packs them while
// it multiplies by the first panel of B. Then memory is read while the processor computes.
//
// Split-k: each slice of k, slice_k long, has its own result. Slice s goes to c + s*c_slice.
//
// Launch: one work-item per work-group, one work-group per compute unit. The work is `all` columns of blocks
// of C: slices x matrices x blocks of B, where `sharing` consecutive matrices have the same B. Each column has
// blocks_m blocks, one for each block of A. The columns are divided among `lists` lists. A work-group takes
// blocks from its own list first. It packs a block of B once for all its consecutive blocks of A. Then it takes
// blocks from the other lists, so that a work-group that another program slows down does less.
//
// Atomic counters, all 0 before and after:
//   counters[list]                     blocks taken from a list
//   counters[get_num_groups(0)]        work-groups that are done
//   counters[get_num_groups(0) + 1...] with PACKS, the state of each block of A
//
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
#ifndef IN_PLACE
#error "IN_PLACE: 1 to read A where it lies, its rows along k; 0 for panels of it"
#endif
#ifndef PACKS
#error "PACKS: 1 if this kernel packs panels of A, 0 if another has"
#endif
#ifndef FMA
#error "FMA: 1 for fma(), 0 for a multiplication and an addition that the compiler may join"
#endif
#ifndef PREFETCH_A
#error "PREFETCH_A: steps over k by which panels of A are fetched ahead; 0 leaves it to the processor"
#endif
#define WORK_N (VECTORS * WIDTH)
#if PACKS
#define PANELS_OF_A __global float*
// Vectors are copied through this type, not by vload and vstore: compilers treat those as function calls, and
// do not unroll a loop with calls.
typedef FLOAT(VECTOR_ROWS_A) __attribute__((aligned(4))) vector_of_a;
// Prefetches to the second-level cache: each column of A's source has its own cache line, too many for the first.
#define FETCH_SECOND(p) __builtin_prefetch((const void*)(size_t)(p), 0, 2)
#else
#define PANELS_OF_A __global const float*
#endif
#define TRANSPOSES (WORK_M <= WIDTH && (WORK_M == 2 || WORK_M == 4 || WORK_M == 8 || WORK_M == 16))
#if TRANSPOSES
DEFINE_TRANSPOSE(transpose_c, WORK_M, WIDTH)
#endif

// A block of C and its operands.
typedef struct {
  PANELS_OF_A a;  // a panel, or with IN_PLACE rows that are a_row apart
  __global const float *b;  // a packed panel
  __global float *c;
  long a_row, c_row, c_column;
  int rows, columns, depth;  // the block is cut off where C ends
  float alpha, beta;
  float *values;                 // WORK_M x WORK_N: the block, alpha*A*B, where it is not stored at once
  __global const float *source;  // PACKS: what to pack to `a` meanwhile, with contiguous columns; or 0
  long source_column;
} Block;

// The micro-kernel: a WORK_M x WORK_N block of C, of which the first `vectors` vectors of each row exist. It
// stores whole vectors along the rows of C and returns true, or it leaves the block in `values`. One function
// is made for each number of vectors, so that loops to be unrolled have constant bounds. While it packs, it
// prefetches the next columns of the source instead of those of the panel.
static inline __attribute__((always_inline)) bool multiply_panels(const bool packs, const int vectors,
                                                                  const Block *block) {
  PANELS_OF_A a = block->a;
  __global const float *b = block->b, *source = block->source;
  __global float *c = block->c;
  float *values = block->values;
  const long c_row = block->c_row, c_column = block->c_column, source_column = block->source_column;
  const int rows = block->rows, columns = block->columns, depth = block->depth;
  const float alpha = block->alpha, beta = block->beta;

  FLOAT(WIDTH) sum[WORK_M][VECTORS];
#if IN_PLACE
  long row_of[WORK_M];  // rows past the last repeat it; their results are not stored
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) row_of[i] = min(i, rows - 1) * block->a_row;
#define A(i) a[row_of[i]]
#define A_STEP 1
#else
#define A(i) (packs ? source[i] : a[i])
#define A_STEP WORK_M
#endif
#if PREFETCH
  if (c_column == 1) {
    #pragma unroll
    for (int i = 0; i < WORK_M; i++)
      #pragma unroll
      for (int j = 0; j < WORK_N; j += LINE)
        if (j < vectors * WIDTH) FETCH(c + i * c_row + j);
  } else {
    #pragma unroll
    for (int j = 0; j < WORK_N; j++)
      if (j < vectors * WIDTH) FETCH(c + j * c_column);
  }
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
#if PREFETCH_A && !IN_PLACE  // each line twice: Intel's compiler would turn every other step into a branch
    if (!packs) FETCH(a + PREFETCH_A * WORK_M);
#endif
#if PACKS
    if (packs) {
#if PREFETCH
      FETCH_SECOND(source + LINE + WORK_M);
#endif
      #pragma unroll
      for (int i = 0; i < WORK_M; i += VECTOR_ROWS_A) *(__global vector_of_a*)(a + i) = *(__global const vector_of_a*)(source + i);
    }
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
    if (packs) source += source_column;
  }

  const bool whole = rows >= WORK_M && columns >= vectors * WIDTH && c_column == 1;
  #pragma unroll
  for (int i = 0; i < WORK_M; i++)
    #pragma unroll
    for (int j = 0; j < VECTORS; j++) {
      if (j >= vectors) continue;
      const FLOAT(WIDTH) result = alpha * sum[i][j];
      if (whole) {
        STORE_VECTOR(WIDTH)(c + i * c_row + j * WIDTH, result, beta);
      } else {
        STORE(WIDTH, result, values + i * WORK_N + j * WIDTH);
      }
    }
  return whole;
}

// Not inlined: several functions compile in half the time of one.
static __attribute__((noinline)) bool multiply_panels_1(const Block *block) { return multiply_panels(false, 1, block); }
#if VECTORS > 1
static __attribute__((noinline)) bool multiply_panels_2(const Block *block) { return multiply_panels(false, 2, block); }
#endif
#if VECTORS > 2
static __attribute__((noinline)) bool multiply_panels_3(const Block *block) { return multiply_panels(false, 3, block); }
#endif
#if PACKS
static __attribute__((noinline)) bool multiply_and_pack(const Block *block) { return multiply_panels(true, VECTORS, block); }
#endif

// Calls the function for the number of vectors in a row of the block.
static inline bool multiply(const Block *block) {
#if VECTORS > 1
  if (block->columns <= WIDTH) return multiply_panels_1(block);
#endif
#if VECTORS > 2
  if (block->columns <= 2 * WIDTH) return multiply_panels_2(block);
#endif
  return JOIN(multiply_panels_, VECTORS)(block);
}

// Stores the last columns of a row, fewer than a vector has: by vectors of 8, 4, 2 and 1 of them.
#define STORE_SOME(width)                                             \
  if (WIDTH > width && columns & width) {                             \
    STORE_VECTOR(width)(c, LOAD(width, values), beta);                \
    c += width, values += width;                                      \
  }
static inline void store_rest(__global float *c, const float *values, const int columns, const float beta) {
  STORE_SOME(8)
  STORE_SOME(4)
  STORE_SOME(2)
  STORE_SOME(1)
}

// Stores the block in `values`: by vectors along the rows or columns of C, whichever are contiguous, and by elements
// where neither are.
static __attribute__((noinline)) void store(const Block *block) {
  const int rows = block->rows, columns = min(block->columns, WORK_N);
  int first = 0;
  if (block->c_column == 1) {
    for (int i = 0; i < min(rows, WORK_M); i++) {
      __global float *c = block->c + i * block->c_row;
      const float *values = block->values + i * WORK_N;
      for (first = 0; first + WIDTH <= columns; first += WIDTH)
        STORE_VECTOR(WIDTH)(c + first, LOAD(WIDTH, values + first), block->beta);
      store_rest(c + first, values + first, columns - first, block->beta);
    }
    return;
  }
#if TRANSPOSES
  for (; rows >= WORK_M && block->c_row == 1 && columns - first >= WIDTH; first += WIDTH) {
    FLOAT(WIDTH) x[WORK_M];
    float transposed[WORK_M * WIDTH];
    #pragma unroll
    for (int i = 0; i < WORK_M; i++) x[i] = LOAD(WIDTH, block->values + i * WORK_N + first);
    transpose_c(x);
    #pragma unroll
    for (int i = 0; i < WORK_M; i++) STORE(WIDTH, x[i], transposed + i * WIDTH);
    for (int j = 0; j < WIDTH; j++)
      STORE_VECTOR(WORK_M)(block->c + (first + j) * block->c_column, LOAD(WORK_M, transposed + j * WORK_M), block->beta);
  }
#endif
  for (int i = 0; i < min(rows, WORK_M); i++)
    for (int j = first; j < columns; j++)
      store_element(block->c + i * block->c_row + j * block->c_column, block->values[i * WORK_N + j], block->beta);
}

// The macro-kernel: panels of A from first_m up to last_m, times all panels of a packed block of B. `from`
// describes A and C from panel 0 on. Its `source`, if there is one, begins at panel first_m.
static inline __attribute__((always_inline)) void multiply_block(const int first_m, const int last_m,
                                                                 const long a_panel_size, const Block from) {
  const int panels_n = (from.columns + WORK_N - 1) / WORK_N;
  for (int panel_m = first_m; panel_m < last_m; panel_m++)
    for (int panel_n = 0; panel_n < panels_n; panel_n++) {
      Block block = from;
      block.rows -= panel_m * WORK_M, block.columns -= panel_n * WORK_N;
      block.a += panel_m * a_panel_size;
      block.b += panel_n * from.depth * WORK_N;
      block.c += panel_m * WORK_M * from.c_row + panel_n * WORK_N * from.c_column;
      bool stored;
#if PACKS
      block.source += (panel_m - first_m) * WORK_M;
      const bool packs = from.source && panel_n == 0, whole = block.rows >= WORK_M && block.columns >= WORK_N;
      if (packs && !whole)
        pack_panels_a(min(block.rows, WORK_M), WORK_M, block.depth, block.depth, block.source, 1, block.source_column, block.a);
      stored = packs && whole ? multiply_and_pack(&block) : multiply(&block);
#else
      stored = multiply(&block);
#endif
      if (!stored) store(&block);
    }
}

#if PACKS
#define UNTOUCHED 0
#define STARTED 1
#define DONE 2

// Returns whether the caller must pack these panels of A. If another work-group packs them, this waits for it.
// Deadlock-free: that work-group is running and waits for no other. OpenCL C 1.2 does not order memory accesses
// between work-groups. PoCL's atomic functions acquire and release; on other runtimes the fences do.
static inline bool begin_panels(__global volatile int* counter) {
  if (atomic_cmpxchg(counter, UNTOUCHED, STARTED) == UNTOUCHED) return true;
  while (atomic_cmpxchg(counter, DONE, DONE) != DONE);
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  return false;
}

static inline void end_panels(__global volatile int* counter) {
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  atomic_xchg(counter, DONE);
}

#define PACKS_ARGUMENTS                                                                             \
  , __global const float *restrict source, const long source_offset, const long source_row,         \
    const long source_column, const long4 source_strides, const int a_matrices, const int meanwhile
#else
#define PACKS_ARGUMENTS
#endif

// The hint keeps Intel's compiler from vectorising over work-items, which would take it ten seconds.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) __attribute__((vec_type_hint(FLOAT(WIDTH))))
void blocked_product(const int m, const int n, const int k, const int slice_k,
                      const int block_m, const int block_n, const int block_k,
                      const int4 counts, const float alpha, const float beta,
                      PANELS_OF_A a, const long a_offset, const long a_row,
                      const long4 a_strides,
                      __global const float* restrict b, const long b_offset, const long b_row,
                      const long b_column, const long4 b_strides,
                      __global float* restrict scratch, const long scratch_size,
                      __global float* restrict c, const long c_offset, const long c_row, const long c_column,
                      const long c_slice, const long4 c_strides,
                      const int matrices, const int sharing, const int all, const int lists,
                      __global volatile int* restrict counters PACKS_ARGUMENTS) {
  const int panels_m = (m + WORK_M - 1) / WORK_M;
  const int blocks_m = (panels_m + block_m - 1) / block_m, blocks_n = (n + block_n - 1) / block_n;
  const int blocks_k = (k + block_k - 1) / block_k;
  __global float* packed = scratch + get_group_id(0) * scratch_size;
  __global const float* packed_from = 0;  // the block of B that is packed now
  int packed_width = 0, packed_depth = 0;
  float values[WORK_M * WORK_N];

  const int groups = get_num_groups(0), own = get_group_id(0) % lists;
  for (int i = 0; i < lists; i++) {
    const int list = (own + i) % lists, first = (long)all * list / lists;
    const int blocks = ((int)((long)all * (list + 1) / lists) - first) * blocks_m;
    for (int next = atomic_inc(counters + list); next < blocks; next = atomic_inc(counters + list)) {
#if PACKS  // lists begin with different blocks of A
      const int block = (next + (long)list * blocks_m / lists) % blocks_m;
#else
      const int block = next % blocks_m;
#endif
      const int first_m = block * block_m, last_m = min(first_m + block_m, panels_m);
      int column = first + next / blocks_m;
      uint matrix = column % sharing;
      column /= sharing;
      const int first_n = column % blocks_n * block_n, width = min(block_n, n - first_n);
      column /= blocks_n;
      matrix += column % (matrices / sharing) * sharing;
      const int slice = column / (matrices / sharing);
      const long a_first = matrix_offset(matrix, counts, a_strides);
      __global const float* b_matrix = b + b_offset + matrix_offset(matrix, counts, b_strides) + first_n * b_column;
      __global float* c_matrix = c + c_offset + matrix_offset(matrix, counts, c_strides) + slice * c_slice
                               + first_n * c_column;
      const int padded = (width + VECTOR_ROWS - 1) / VECTOR_ROWS * VECTOR_ROWS;
      const int first_k = slice * slice_k, last_k = min(first_k + slice_k, k);
      for (int p = first_k; p < last_k; p += block_k) {
        const int depth = min(block_k, last_k - p);
        const float keep = p == first_k ? beta : 1.0f;
        __global const float* b_block = b_matrix + p * b_row;
        if (b_block != packed_from || width != packed_width || depth != packed_depth) {
          pack_panels_b(width, padded, depth, depth, b_block, b_column, b_row, packed);
          packed_from = b_block, packed_width = width, packed_depth = depth;
        }
#if IN_PLACE
        const long a_panel_size = WORK_M * a_row, a_at = a_first + p;
#else
        const long a_panel_size = depth * WORK_M, a_at = a_first + (long)p * panels_m * WORK_M;
#endif
#if PACKS
        const int a_matrix = a_first / ((long)k * panels_m * WORK_M);
        __global const float* from = source + source_offset + matrix_offset(matrix, counts, source_strides)
                                   + (long)first_m * WORK_M * source_row + p * source_column;
        __global volatile int* counter =
            counters + groups + 1 + (a_matrix * blocks_k + p / block_k) * blocks_m + block;
        bool packs = begin_panels(counter);
        if (packs && !meanwhile) {
          const int rows = min(last_m * WORK_M, m) - first_m * WORK_M, padded = (last_m - first_m) * WORK_M;
          pack_panels_a(rows, padded, depth, depth, from, source_row, source_column,
                        a + a_offset + a_at + first_m * a_panel_size);
          end_panels(counter);
          packs = false;
        }
#else
        const bool packs = false;
        __global const float* from = 0;
        const long source_column = 0;
#endif
        const Block rows_of_c = {
            .a = a + a_offset + a_at, .b = packed, .c = c_matrix, .a_row = a_row, .c_row = c_row, .c_column = c_column,
            .rows = m, .columns = width, .depth = depth, .alpha = alpha, .beta = keep, .values = values,
            .source = packs ? from : 0, .source_column = source_column};
        multiply_block(first_m, last_m, a_panel_size, rows_of_c);
#if PACKS
        if (packs) end_panels(counter);
#endif
      }
    }
  }
#if PACKS
  const int last_counter = groups + a_matrices * blocks_k * blocks_m;
#else
  const int last_counter = groups;
#endif
  // The last work-group to end sets the counters back to 0.
  if (atomic_inc(counters + groups) == groups - 1)
    for (int i = 0; i <= last_counter; i++) atomic_xchg(counters + i, 0);
}
