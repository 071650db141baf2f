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
#define LOW_2(a, b) (float2)(a.s0, b.s0)
#define HIGH_2(a, b) (float2)(a.s1, b.s1)
#define LOW_4(a, b) (float4)(a.s0, b.s0, a.s1, b.s1)
#define HIGH_4(a, b) (float4)(a.s2, b.s2, a.s3, b.s3)
#define LOW_8(a, b) (float8)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3)
#define HIGH_8(a, b) (float8)(a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#define LOW_16(a, b) (float16)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, \
                               a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#define HIGH_16(a, b) (float16)(a.s8, b.s8, a.s9, b.s9, a.sa, b.sa, a.sb, b.sb, \
                                a.sc, b.sc, a.sd, b.sd, a.se, b.se, a.sf, b.sf)
#define LOW(width, a, b) JOIN(LOW_, width)(a, b)
#define HIGH(width, a, b) JOIN(HIGH_, width)(a, b)

#define INTERLEAVE(to, from)                                    \
  _Pragma("unroll") for (int i = 0; i < PIECE / 2; i++) {       \
    to[2 * i] = LOW(TURN, from[i], from[i + PIECE / 2]);       \
    to[2 * i + 1] = HIGH(TURN, from[i], from[i + PIECE / 2]);  \
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
    int column = 0;
#if PIECE > 1
    if (column_stride == 1)
      for (; column + TURN <= columns; column += TURN)
        for (int i = 0; i < padded_here; i += PIECE)
          transpose(rows_here - i, source + i * row_stride + column, row_stride, target + column * PANEL + i);
#endif
    copy(rows_here, padded_here, columns - column, source + column * column_stride, row_stride, column_stride,
         target + column * PANEL);
  }
}
