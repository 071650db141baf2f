// Copies a matrix of any strides into zero-padded panels by vectors, for processors that have them.
//   from[row*row_stride + column*column_stride]    rows x columns
//   to[first*padded_rows + (panel*depth + column - first)*PANEL + row%PANEL]    panel = row/PANEL
// where first = column/block_k*block_k is where the column's block begins and depth its columns: the
// panels of one block lie one behind the other, in the order in which they are multiplied. Rows past
// the last, up to a whole panel, are zero.
// Work-groups: matrices x blocks x (panels/at_a_time, rounded up), one work-item each.
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
#ifndef WIDTH
#error "WIDTH: columns that are transposed together"
#endif
#ifndef PREFETCH
#error "PREFETCH: columns fetched ahead; 0 leaves it to the processor"
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
    to[2 * i] = LOW(WIDTH, from[i], from[i + PIECE / 2]);       \
    to[2 * i + 1] = HIGH(WIDTH, from[i], from[i + PIECE / 2]);  \
  }

#if PIECE > 1
// Writes the transpose of PIECE rows x WIDTH columns; rows from `rows` on are taken as zero.
static inline void transpose(const int rows, __global const float* from, const long row_stride, __global float* to) {
  FLOAT(WIDTH) x[PIECE], y[PIECE];
  if (rows >= PIECE) {
    #pragma unroll
    for (int i = 0; i < PIECE; i++) {
#if PREFETCH
      FETCH(from + i * row_stride + AHEAD);
#endif
      x[i] = LOAD(WIDTH, from + i * row_stride);
    }
  } else {
    #pragma unroll
    for (int i = 0; i < PIECE; i++) {
      x[i] = (FLOAT(WIDTH))(0.0f);
      if (i < rows) x[i] = LOAD(WIDTH, from + i * row_stride);
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
    STORE(WIDTH, y[i], to + i * WIDTH / PIECE * PANEL + i * WIDTH % PIECE);
#else
    STORE(WIDTH, x[i], to + i * WIDTH / PIECE * PANEL + i * WIDTH % PIECE);
#endif
  }
}
#endif

// The plain way, for edges and odd strides.
static inline void copy(const int rows, const int columns, __global const float* from, const long row_stride,
                        const long column_stride, __global float* to) {
  for (int column = 0; column < columns; column++)
    for (int row = 0; row < PANEL; row++)
      to[column * PANEL + row] = row < rows ? from[row * row_stride + column * column_stride] : 0.0f;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_vectors(const int rows, const int columns, const int block_k, const int at_a_time, const int4 counts,
                  __global const float* restrict from, const long from_offset, const long row_stride,
                  const long column_stride, const long4 from_strides,
                  __global float* restrict to, const long to_offset) {
  const int panels = (rows + PANEL - 1) / PANEL, parts = (panels + at_a_time - 1) / at_a_time;
  const int blocks = (columns + block_k - 1) / block_k;
  const uint group = get_group_id(0), part = group % (parts * blocks), matrix = group / (parts * blocks);
  const int first = part / parts * block_k, depth = min(block_k, columns - first);
  const int panel_0 = part % parts * at_a_time, panels_here = min(at_a_time, panels - panel_0);
  const int whole = min(panels_here, rows / PANEL - panel_0);  // panels without padding

  from += from_offset + matrix_offset(matrix, counts, from_strides)
        + (long)panel_0 * PANEL * row_stride + first * column_stride;
  to += to_offset + (long)matrix * panels * PANEL * columns + (long)first * panels * PANEL + (long)panel_0 * depth * PANEL;

  if (row_stride == 1) {
    for (int column = 0; column < depth; column += LINE_COLUMNS) {
      const int columns_here = min(LINE_COLUMNS, depth - column);
#if PREFETCH
      for (int i = 0; i < columns_here; i++)
        for (int row = 0; row < whole * PANEL; row += LINE)
          FETCH(from + (column + i + PREFETCH) * column_stride + row);
#endif
      for (int panel = 0; panel < whole; panel++)
        for (int i = column; i < column + columns_here; i++)
          #pragma unroll
          for (int row = 0; row < PANEL; row += PIECE)
            STORE(PIECE, LOAD(PIECE, from + i * column_stride + panel * PANEL + row),
                  to + (panel * depth + i) * PANEL + row);
    }
    if (whole < panels_here)
      copy(rows - (panel_0 + whole) * PANEL, depth, from + whole * PANEL, 1, column_stride, to + whole * depth * PANEL);
    return;
  }

  for (int panel = 0; panel < panels_here; panel++) {
    const int rows_here = rows - (panel_0 + panel) * PANEL;
    __global const float* source = from + panel * PANEL * row_stride;
    __global float* target = to + panel * depth * PANEL;
    int column = 0;
#if PIECE > 1
    if (column_stride == 1)
      for (; column + WIDTH <= depth; column += WIDTH)
        for (int i = 0; i < PANEL; i += PIECE)
          transpose(rows_here - i, source + i * row_stride + column, row_stride, target + column * PANEL + i);
#endif
    copy(rows_here, depth - column, source + column * column_stride, row_stride, column_stride, target + column * PANEL);
  }
}
