// Copies rows of a matrix of any strides into zero-padded panels by vectors, for processors that have them.
//   from[row*row_stride + column*column_stride]    rows x columns
//   to[(row/PANEL*columns + column)*PANEL + row%PANEL]
// Where rows are neighbours in memory they are copied on; where columns are, squares of them are
// transposed in registers by perfect shuffles: interleaving vectors i and i + PIECE/2 of PIECE vectors,
// log2(PIECE) times over, brings the element of row i and column j to place j*PIECE + i.
// After: Stone, "Parallel processing with the perfect shuffle", 1971.
#ifndef PANEL
#error "PANEL: rows of a panel"
#endif
#ifndef PIECE
#error "PIECE: rows that are copied or transposed together, a power of two that divides PANEL"
#endif
#ifndef TURN
#error "TURN: columns that are transposed together"
#endif
#ifndef PREFETCH
#error "PREFETCH: columns (steps over k) fetched ahead; 0 leaves it to the processor"
#endif

#define LINE 16   // floats in a cache line
#define LINE_COLUMNS ((LINE + PANEL - 1) / PANEL)  // columns of a panel that fill one: written together
#define AHEAD 32  // columns that are fetched ahead where they are transposed
#define LOW_2 0, 2
#define HIGH_2 1, 3
#define LOW_4 0, 4, 1, 5
#define HIGH_4 2, 6, 3, 7
#define LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
// Clang's own is one instruction; of elements put together, and of shuffle2 in PoCL, it makes many.
#ifdef __clang__
#define INTERLEAVED(half, a, b) __builtin_shufflevector(a, b, JOIN(half, TURN))
#else
#define INTERLEAVED(half, a, b) shuffle2(a, b, (JOIN(uint, TURN))(JOIN(half, TURN)))
#endif

#define INTERLEAVE(to, from)                                         \
  _Pragma("unroll") for (int i = 0; i < PIECE / 2; i++) {            \
    to[2 * i] = INTERLEAVED(LOW_, from[i], from[i + PIECE / 2]);       \
    to[2 * i + 1] = INTERLEAVED(HIGH_, from[i], from[i + PIECE / 2]);  \
  }

#if PIECE > 1
// Writes the transpose of PIECE rows x TURN columns; rows from `rows` on are taken as zero.
static inline void transpose(const int rows, __global const float* from, const long row_stride, __global float* to) {
  FLOAT(TURN) x[PIECE], y[PIECE];
  if (rows >= PIECE) {
    #pragma unroll
    for (int i = 0; i < PIECE; i++) {
#if PREFETCH
      FETCH(from + i * row_stride + AHEAD);
#endif
      x[i] = LOAD(TURN, from + i * row_stride);
    }
  } else {
    #pragma unroll
    for (int i = 0; i < PIECE; i++) {
      x[i] = (FLOAT(TURN))(0.0f);
      if (i < rows) x[i] = LOAD(TURN, from + i * row_stride);
    }
  }
  INTERLEAVE(y, x)
#if PIECE >= 4
  INTERLEAVE(x, y)
#endif
#if PIECE >= 8
  INTERLEAVE(y, x)
#endif
#if PIECE >= 16
  INTERLEAVE(x, y)
#endif
  #pragma unroll
  for (int i = 0; i < PIECE; i++) {
#if PIECE == 2 || PIECE == 8
    STORE(TURN, y[i], to + i * TURN / PIECE * PANEL + i * TURN % PIECE);
#else
    STORE(TURN, x[i], to + i * TURN / PIECE * PANEL + i * TURN % PIECE);
#endif
  }
}
#endif

// The plain way, for edges and odd strides: rows from `rows` up to `padded` are zero.
static inline void copy(const int rows, const int padded, const int columns, __global const float* from,
                        const long row_stride, const long column_stride, __global float* to) {
  for (int column = 0; column < columns; column++)
    for (int row = 0; row < padded; row++)
      to[column * PANEL + row] = row < rows ? from[row * row_stride + column * column_stride] : 0.0f;
}

// rows x columns; the last panel is written as far as row `padded`, a multiple of PIECE.
static inline void pack_panels(const int rows, const int padded, const int columns, __global const float* from,
                               const long row_stride, const long column_stride, __global float* to) {
  if (row_stride == 1) {
    const int whole = rows / PANEL * PANEL, pieces = rows / PIECE * PIECE;  // rows in whole ones
    __global float* last = to + whole * columns;
    for (int column = 0; column < columns; column += LINE_COLUMNS) {
      const int columns_here = min(LINE_COLUMNS, columns - column);
#if PREFETCH
      for (int i = 0; i < columns_here; i++)
        for (int row = 0; row < pieces; row += LINE) FETCH(from + (column + i + PREFETCH) * column_stride + row);
#endif
      for (int panel = 0; panel < whole; panel += PANEL)
        for (int i = column; i < column + columns_here; i++)
          #pragma unroll
          for (int row = 0; row < PANEL; row += PIECE)
            STORE(PIECE, LOAD(PIECE, from + i * column_stride + panel + row), to + panel * columns + i * PANEL + row);
      for (int row = whole; row < pieces; row += PIECE)
        for (int i = column; i < column + columns_here; i++)
          STORE(PIECE, LOAD(PIECE, from + i * column_stride + row), last + i * PANEL + row - whole);
    }
    if (pieces < padded)
      copy(rows - pieces, padded - pieces, columns, from + pieces, 1, column_stride, last + pieces - whole);
    return;
  }

  for (int panel = 0; panel < padded; panel += PANEL) {
    const int rows_here = rows - panel, padded_here = min(PANEL, padded - panel);
    __global const float* source = from + panel * row_stride;
    __global float* target = to + panel * columns;
    int turned = 0;
#if PIECE > 1
    if (column_stride == 1) {
      turned = columns / TURN * TURN;
      for (int i = 0; i < padded_here; i += PIECE)
        for (int column = 0; column < turned; column += TURN)
          transpose(rows_here - i, source + i * row_stride + column, row_stride, target + column * PANEL + i);
    }
#endif
    copy(rows_here, padded_here, columns - turned, source + turned * column_stride, row_stride, column_stride,
         target + turned * PANEL);
  }
}
