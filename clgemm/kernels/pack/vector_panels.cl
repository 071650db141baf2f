// Packs rows of a matrix of any strides into zero-padded panels, by vectors, for CPUs: pack_panels.
//   from[row*row_stride + column*column_stride]           rows x columns
//   to[(row/PANEL*columns + column)*PANEL + row%PANEL]
// Columns that are contiguous are copied. Where rows are contiguous, squares of VECTOR_ROWS x VECTOR_COLUMNS elements are
// transposed in vector registers.
// A source may include this file twice with other parameters. It then defines OF(name), which makes
// OF(pack_panels) of pack_panels.
// Large functions are not inlined: several functions compile in half the time of one.
// After: Stone, "Parallel processing with the perfect shuffle", 1971.
#ifndef PANEL
#error "PANEL: rows of a panel"
#endif
#ifndef VECTOR_ROWS
#error "VECTOR_ROWS: rows that are copied or transposed together, a power of two that divides PANEL"
#endif
#ifndef VECTOR_COLUMNS
#error "VECTOR_COLUMNS: columns that are transposed together"
#endif
#ifndef PREFETCH
#error "PREFETCH: 0 leaves fetching ahead to the processor"
#endif
#ifndef WRITES
#error "WRITES: 0 for panels in a near cache, 1 for panels far away, which are prefetched, 2 to write past the caches"
#endif
#if !defined(OF)
#define OF(name) name
#endif

#define LINE 16      // floats of a cache line
#define TOGETHER 8   // columns that are copied together: pages that are read at a time
#define LONG 512     // rows from which on the processor's own prefetcher notices the stream
#define AHEAD 32     // columns by which the source of a transposition is prefetched
#define LOW_2 0, 2
#define HIGH_2 1, 3
#define LOW_4 0, 4, 1, 5
#define HIGH_4 2, 6, 3, 7
#define LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
// Prefetches for writing, as FETCH does for reading.
#define FETCH_TO(p) __builtin_prefetch((const void*)(size_t)(p), 1, 3)
// Stores to an address that is a multiple of the vector's size. A store past the caches neither reads the
// line first nor evicts others.
#undef STORE_PANEL
#if WRITES == 2 && defined(__clang__)
#define STORE_PANEL(width, v, p) __builtin_nontemporal_store(v, (__global FLOAT(width)*)(p))
#else
#define STORE_PANEL(width, v, p) STORE(width, v, p)
#endif

// Two vectors, interleaved: the low or the high half of the result. Clang's builtin is one instruction;
// PoCL's shuffle2 becomes many.
#ifdef __clang__
#define INTERLEAVED(half, width, a, b) __builtin_shufflevector(a, b, JOIN(half, width))
#else
#define INTERLEAVED(half, width, a, b) shuffle2(a, b, (JOIN(uint, width))(JOIN(half, width)))
#endif
// Defines name(x): x[rows], vectors of `width`, becomes its transpose, column after column; a vector may
// hold several columns. Interleaving vectors i and i + rows/2, log2(rows) times over, brings the element
// of row i and column j to place j*rows + i.
#define DEFINE_TRANSPOSE(name, rows, width)                                 \
  static inline void name(FLOAT(width) * x) {                               \
    _Pragma("unroll") for (int left = rows; left > 1; left /= 2) {          \
      FLOAT(width) y[rows];                                                 \
      _Pragma("unroll") for (int i = 0; i < rows / 2; i++) {                \
        y[2 * i] = INTERLEAVED(LOW_, width, x[i], x[i + rows / 2]);         \
        y[2 * i + 1] = INTERLEAVED(HIGH_, width, x[i], x[i + rows / 2]);    \
      }                                                                     \
      _Pragma("unroll") for (int i = 0; i < rows; i++) x[i] = y[i];         \
    }                                                                       \
  }

#if VECTOR_ROWS > 1
DEFINE_TRANSPOSE(OF(transpose_square), VECTOR_ROWS, VECTOR_COLUMNS)

// Writes the transpose of VECTOR_ROWS rows x VECTOR_COLUMNS columns; rows from `rows` on are taken as zero.
static inline void OF(transpose)(const int rows, __global const float* from, const long row_stride,
                                 __global float* to) {
  FLOAT(VECTOR_COLUMNS) x[VECTOR_ROWS];
#if WRITES == 1
  #pragma unroll
  for (int i = 0; i < VECTOR_COLUMNS * PANEL; i += LINE) FETCH_TO(to + AHEAD * PANEL + i);
#endif
  if (rows >= VECTOR_ROWS) {
    #pragma unroll
    for (int i = 0; i < VECTOR_ROWS; i++) {
#if PREFETCH
      FETCH(from + i * row_stride + AHEAD);
#endif
      x[i] = LOAD(VECTOR_COLUMNS, from + i * row_stride);
    }
  } else {
    #pragma unroll
    for (int i = 0; i < VECTOR_ROWS; i++) {
      x[i] = (FLOAT(VECTOR_COLUMNS))(0.0f);
      if (i < rows) x[i] = LOAD(VECTOR_COLUMNS, from + i * row_stride);
    }
  }
  OF(transpose_square)(x);
  #pragma unroll
  for (int i = 0; i < VECTOR_ROWS; i++) STORE(VECTOR_COLUMNS, x[i], to + i * VECTOR_COLUMNS / VECTOR_ROWS * PANEL + i * VECTOR_COLUMNS % VECTOR_ROWS);
}
#endif

// Element by element, for edges and strides of neither sort. Rows from `rows` up to `padded` are zero.
static __attribute__((noinline)) void OF(copy)(const int rows, const int padded, const int columns,
                                               __global const float* from, const long row_stride,
                                               const long column_stride, __global float* to) {
  for (int column = 0; column < columns; column++)
    for (int row = 0; row < padded; row++)
      to[column * PANEL + row] = row < rows ? from[row * row_stride + column * column_stride] : 0.0f;
}

// By vectors, where columns are contiguous. `rows` is a multiple of VECTOR_ROWS.
static inline void OF(copy_vectors)(const int rows, const int columns, __global const float* from,
                                   const long column_stride, __global float* to) {
  for (int column = 0; column < columns; column++)
    #pragma unroll
    for (int row = 0; row < PANEL; row += VECTOR_ROWS)
      if (row < rows)
        STORE_PANEL(VECTOR_ROWS, LOAD(VECTOR_ROWS, from + column * column_stride + row), to + column * PANEL + row);
}

// Packs rows x columns into panels of `pitch` columns. The last panel is written up to row `padded`, a
// multiple of VECTOR_ROWS.
static __attribute__((noinline)) void OF(pack_panels)(const int rows, const int padded, const int columns,
                                                      const int pitch, __global const float* from,
                                                      const long row_stride, const long column_stride,
                                                      __global float* to) {
  if (row_stride == 1) {
    const int whole_rows = rows / VECTOR_ROWS * VECTOR_ROWS;
    for (int column = 0; column < columns; column += TOGETHER) {
      const int columns_here = min(TOGETHER, columns - column);
#if PREFETCH
      if (whole_rows < LONG)
        for (int i = TOGETHER; i < 2 * TOGETHER; i++)
          for (int row = 0; row < whole_rows; row += LINE) FETCH(from + (column + i) * column_stride + row);
#endif
      for (int panel = 0; panel < whole_rows; panel += PANEL) {
        __global const float* source = from + column * column_stride + panel;
        __global float* target = to + panel * pitch + column * PANEL;
#if WRITES == 1
        #pragma unroll
        for (int i = 0; i < TOGETHER * PANEL; i += LINE) FETCH_TO(target + PANEL * pitch + i);
#endif
        if (whole_rows - panel >= PANEL && columns_here == TOGETHER)
          OF(copy_vectors)(PANEL, TOGETHER, source, column_stride, target);
        else
          OF(copy_vectors)(whole_rows - panel, columns_here, source, column_stride, target);
      }
    }
    if (whole_rows < padded) {
      const int whole = rows / PANEL * PANEL;
      OF(copy)(rows - whole_rows, padded - whole_rows, columns, from + whole_rows, 1, column_stride,
               to + whole * pitch + whole_rows - whole);
    }
    return;
  }

  for (int panel = 0; panel < padded; panel += PANEL) {
    const int rows_here = rows - panel, padded_here = min(PANEL, padded - panel);
    __global const float* source = from + panel * row_stride;
    __global float* target = to + panel * pitch;
    int transposed = 0;
#if VECTOR_ROWS > 1
    if (column_stride == 1) {
      transposed = columns / VECTOR_COLUMNS * VECTOR_COLUMNS;
      for (int i = 0; i < padded_here; i += VECTOR_ROWS)
        for (int column = 0; column < transposed; column += VECTOR_COLUMNS)
          OF(transpose)(rows_here - i, source + i * row_stride + column, row_stride, target + column * PANEL + i);
    }
#endif
    OF(copy)(rows_here, padded_here, columns - transposed, source + transposed * column_stride, row_stride, column_stride,
             target + transposed * PANEL);
  }
}
