// C = alpha*A*B + beta*C through caches and vector registers.
//   a[first*rows_a + (panel*depth + p - first)*WORK_M + i]     rows    panel*WORK_M + i of A, column p
//   a[(panel*WORK_M + i)*a_row + p]                            the same with IN_PLACE: A where it lies
//   b[p*b_row + j*b_column]                                    k x n, of any strides
//   c[i*c_row + j*c_column]                                    m x n; not read when beta is 0
// where first = p/block_k*block_k is where the block of p begins, depth its length, rows_a m rounded up to
// whole panels, which are zero-padded.
// A work-group packs a block of B, block_k x block_n, into panels of WORK_N columns (vector_panels.cl) in
// scratch memory of its own, which stays in the second-level cache while block_m panels of A pass; each of
// them stays in the first while it meets the panels of B, WORK_M x WORK_N elements of C at a time in vector
// registers. Blocks of k follow one another, each adding to C what it has summed.
// With PACKS a, scratch memory for panels of A, holds nothing yet: whoever needs block_m panels of a block of k
// first packs them for all, from
//   source[i*source_row + p*source_column]
// before it multiplies, or with `meanwhile`, for which source_row is 1, with the first panel of B: so memory is
// read while the processor has something else to do.
// Several slices of k, slice_k long each, are several results: slice s goes to c + s*c_slice.
// Work: `all` columns of blocks, which are slices x matrices x blocks of B x matrices that share their B, as
// many as `sharing`; each column is blocks_m blocks, of A.
// Work-groups of one work-item, one a compute unit. The columns are in as many `lists`: each work-group sees to
// its own list, which others may share, and packs a block of B for all blocks of A that it meets in a row; then it
// helps with what is left in other lists, so that one slowed down by another program does less. Each list has
// a ticket, by which its blocks are drawn one after the other.
// Behind the tickets there is one that counts who has ended, tickets[get_num_groups(0)], and with PACKS one for
// each piece of A that is packed at once. All of them are 0 before and after.
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
#error "PACKS: 1 if panels of A are packed here, 0 if they have been"
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
// As vload and vstore, through which compilers do not unroll a loop: they are functions to them.
typedef FLOAT(PIECE_A) __attribute__((aligned(4))) piece_of_a;
// To the second-level cache: the first is too small for a panel's columns, each in a line of its own, beside the panel.
#define FETCH_SECOND(p) __builtin_prefetch((const void*)(size_t)(p), 0, 2)
#else
#define PANELS_OF_A __global const float*
#endif
#define TRANSPOSES (WORK_M <= WIDTH && (WORK_M == 2 || WORK_M == 4 || WORK_M == 8 || WORK_M == 16))

// One WORK_M x WORK_N block of C: its first `rows` x `columns` elements, of which the first `vectors`
// vectors of each row are all there is. There is a function for each number of vectors; loops that the
// compiler is to unroll have bounds that do not wait for that. Stores whole vectors along the rows of C and
// returns true; or leaves the block, times alpha, in `values`. If it packs the panel of A meanwhile, from
// `source`, another panel is fetched, which will come from some columns on.
static inline __attribute__((always_inline)) bool multiply_panels(
    const bool packs, const int vectors, const int rows, const int columns, const int depth, const float alpha,
    const float beta, PANELS_OF_A a, const long a_row, __global const float* b, __global float* c, const long c_row,
    const long c_column, float* values, __global const float* source, const long source_column) {
  FLOAT(WIDTH) sum[WORK_M][VECTORS];
#if IN_PLACE
  long row_of[WORK_M];  // those past the last are the last: what they give is not stored
  #pragma unroll
  for (int i = 0; i < WORK_M; i++) row_of[i] = min(i, rows - 1) * a_row;
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
#if PREFETCH_A && !IN_PLACE  // each line twice: Intel's compiler makes a branch of every other step
    if (!packs) FETCH(a + PREFETCH_A * WORK_M);
#endif
#if PACKS
    if (packs) {
#if PREFETCH
      FETCH_SECOND(source + LINE + WORK_M);
#endif
      #pragma unroll
      for (int i = 0; i < WORK_M; i += PIECE_A) *(__global piece_of_a*)(a + i) = *(__global const piece_of_a*)(source + i);
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
      FLOAT(WIDTH) result = alpha * sum[i][j];
      if (whole) {
        __global float* element = c + i * c_row + j * WIDTH;
        if (beta != 0.0f) result += beta * LOAD(WIDTH, element);
        STORE(WIDTH, result, element);
      } else {
        STORE(WIDTH, result, values + i * WORK_N + j * WIDTH);
      }
    }
  return whole;
}

// Not inlined, nor what else is large and called seldom: compilers take half the time over several functions,
// or less, as over one.
#define MULTIPLY_PANELS(vectors)                                                                                 \
  static __attribute__((noinline)) bool multiply_panels_##vectors(                                               \
      const int rows, const int columns, const int depth, const float alpha, const float beta,                   \
      PANELS_OF_A a, const long a_row, __global const float* b, __global float* c, const long c_row,             \
      const long c_column, float* values) {                                                                      \
    return multiply_panels(false, vectors, rows, columns, depth, alpha, beta, a, a_row, b, c, c_row, c_column,   \
                           values, 0, 0);                                                                     \
  }
MULTIPLY_PANELS(1)
#if VECTORS > 1
MULTIPLY_PANELS(2)
#endif
#if VECTORS > 2
MULTIPLY_PANELS(3)
#endif
#if PACKS
static __attribute__((noinline)) bool multiply_and_pack(
    const int rows, const int columns, const int depth, const float alpha, const float beta, PANELS_OF_A a,
    const long a_row, __global const float* b, __global float* c, const long c_row, const long c_column,
    float* values, __global const float* source, const long source_column) {
  return multiply_panels(true, VECTORS, rows, columns, depth, alpha, beta, a, a_row, b, c, c_row, c_column, values,
                         source, source_column);
}
#endif

// The same for what is left in `values`: whole vectors along columns that are neighbours, single elements
// along the matrix's edge.
static __attribute__((noinline)) void store(const int rows, const int columns, const float* values, const float beta,
                                            __global float* c, const long c_row, const long c_column) {
  int first = 0;
#if TRANSPOSES
  for (; rows >= WORK_M && c_row == 1 && columns - first >= WIDTH; first += WIDTH) {
    FLOAT(WIDTH) x[WORK_M];
    float turned[WORK_M * WIDTH];
    #pragma unroll
    for (int i = 0; i < WORK_M; i++) x[i] = LOAD(WIDTH, values + i * WORK_N + first);
    TRANSPOSE(x, WORK_M, WIDTH);
    #pragma unroll
    for (int i = 0; i < WORK_M; i++) STORE(WIDTH, x[i], turned + i * WIDTH);
    for (int j = 0; j < WIDTH; j++) {
      __global float* element = c + (first + j) * c_column;
      FLOAT(WORK_M) result = LOAD(WORK_M, turned + j * WORK_M);
      if (beta != 0.0f) result += beta * LOAD(WORK_M, element);
      STORE(WORK_M, result, element);
    }
  }
#endif
  for (int i = 0; i < min(rows, WORK_M); i++)
    for (int j = first; j < columns; j++) {
      __global float* element = c + i * c_row + j * c_column;
      *element = beta == 0.0f ? values[i * WORK_N + j] : values[i * WORK_N + j] + beta * *element;
    }
}

// Panels of A from first_m up to last_m, times a packed block of B: WORK_M x WORK_N elements of C at a time.
// Packs those of A meanwhile, if there is a `source`, whose rows are neighbours.
static inline __attribute__((always_inline)) void multiply_block(
    const int first_m, const int last_m, const int m, const int width, const int depth, const float alpha,
    const float beta, PANELS_OF_A a, const long a_panel_size, const long a_row, __global const float* packed,
    __global float* c, const long c_row, const long c_column, float* values, __global const float* source,
    const long source_column) {
  const int panels_n = (width + WORK_N - 1) / WORK_N;
  for (int panel_m = first_m; panel_m < last_m; panel_m++)
    for (int panel_n = 0; panel_n < panels_n; panel_n++) {
      const int rows = m - panel_m * WORK_M, columns = width - panel_n * WORK_N;
      PANELS_OF_A a_panel = a + panel_m * a_panel_size;
      __global const float* b_panel = packed + panel_n * depth * WORK_N;
      __global float* c_panel = c + panel_m * WORK_M * c_row + panel_n * WORK_N * c_column;
#define MULTIPLY(vectors)         \
  JOIN(multiply_panels_, vectors) \
  (rows, columns, depth, alpha, beta, a_panel, a_row, b_panel, c_panel, c_row, c_column, values)
      bool stored;
#if PACKS
      __global const float* from = source + (panel_m - first_m) * WORK_M;
      const bool packs = source && panel_n == 0, whole = rows >= WORK_M && columns >= WORK_N;
      if (packs && !whole) pack_panels_a(rows, WORK_M, depth, depth, from, 1, source_column, a_panel);
      if (packs && whole)
        stored = multiply_and_pack(rows, columns, depth, alpha, beta, a_panel, a_row, b_panel, c_panel, c_row, c_column,
                                   values, from, source_column);
      else
#endif
#if VECTORS > 1
      if (columns <= WIDTH)
        stored = MULTIPLY(1);
      else
#endif
#if VECTORS > 2
      if (columns <= 2 * WIDTH)
        stored = MULTIPLY(2);
      else
#endif
        stored = MULTIPLY(VECTORS);
      if (!stored) store(rows, min(columns, WORK_N), values, beta, c_panel, c_row, c_column);
    }
}

#if PACKS
#define UNTOUCHED 0
#define STARTED 1
#define DONE 2

// Whether these panels of A are the caller's to pack. Those that another work-group has begun to pack are waited for,
// and it waits for nobody itself. Between work-groups OpenCL C 1.2 orders nothing; PoCL's atomic functions on volatile
// memory acquire and release, and elsewhere the fences do.
static inline bool begin_panels(__global volatile int* ticket) {
  if (atomic_cmpxchg(ticket, UNTOUCHED, STARTED) == UNTOUCHED) return true;
  while (atomic_cmpxchg(ticket, DONE, DONE) != DONE);
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  return false;
}

static inline void end_panels(__global volatile int* ticket) {
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  atomic_xchg(ticket, DONE);
}

#define PACKS_ARGUMENTS                                                                             \
  , __global const float *restrict source, const long source_offset, const long source_row,         \
    const long source_column, const long4 source_strides, const int a_matrices, const int meanwhile
#else
#define PACKS_ARGUMENTS
#endif

// The hint keeps Intel's compiler from joining work-items to vectors, which takes it ten seconds.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) __attribute__((vec_type_hint(FLOAT(WIDTH))))
void register_product(const int m, const int n, const int k, const int slice_k,
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
                      __global volatile int* restrict tickets PACKS_ARGUMENTS) {
  const int panels_m = (m + WORK_M - 1) / WORK_M;
  const int blocks_m = (panels_m + block_m - 1) / block_m, blocks_n = (n + block_n - 1) / block_n;
  const int blocks_k = (k + block_k - 1) / block_k;
  __global float* packed = scratch + get_group_id(0) * scratch_size;
  __global const float* packed_from = 0;  // what it holds a copy of
  int packed_width = 0, packed_depth = 0;
  float values[WORK_M * WORK_N];

  const int groups = get_num_groups(0), own = get_group_id(0) % lists;
  for (int i = 0; i < lists; i++) {
    const int list = (own + i) % lists, first = (long)all * list / lists;
    const int blocks = ((int)((long)all * (list + 1) / lists) - first) * blocks_m;
    for (int next = atomic_inc(tickets + list); next < blocks; next = atomic_inc(tickets + list)) {
#if PACKS  // work-groups begin with different blocks of A
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
      const int padded = (width + PIECE - 1) / PIECE * PIECE;
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
        __global volatile int* ticket =
            tickets + groups + 1 + (a_matrix * blocks_k + p / block_k) * blocks_m + block;
        bool packs = begin_panels(ticket);
        if (packs && !meanwhile) {
          const int rows = min(last_m * WORK_M, m) - first_m * WORK_M, padded = (last_m - first_m) * WORK_M;
          pack_panels_a(rows, padded, depth, depth, from, source_row, source_column,
                        a + a_offset + a_at + first_m * a_panel_size);
          end_panels(ticket);
          packs = false;
        }
#else
        const bool packs = false;
        __global const float* from = 0;
        const long source_column = 0;
#endif
        multiply_block(first_m, last_m, m, width, depth, alpha, keep, a + a_offset + a_at, a_panel_size, a_row, packed,
                       c_matrix, c_row, c_column, values, packs ? from : 0, source_column);
#if PACKS
        if (packs) end_panels(ticket);
#endif
      }
    }
  }
#if PACKS
  const int last_ticket = groups + a_matrices * blocks_k * blocks_m;
#else
  const int last_ticket = groups;
#endif
  // The last work-group to end leaves the tickets as they were.
  if (atomic_inc(tickets + groups) == groups - 1)
    for (int i = 0; i <= last_ticket; i++) atomic_xchg(tickets + i, 0);
}
