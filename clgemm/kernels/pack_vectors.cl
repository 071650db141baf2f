// Packs a matrix of any strides by vectors (vector_panels.cl), in blocks of its columns.
//   from[row*row_stride + column*column_stride]    rows x columns
//   to[first*padded_rows + (panel*depth + column - first)*PANEL + row%PANEL]    panel = row/PANEL
// where first = column/block_k*block_k is where the column's block begins and depth its columns: the
// panels of one block lie one behind the other, in the order in which they are multiplied. Rows past
// the last, up to a whole panel, are zero.
// Work-groups: matrices x blocks x (panels/at_a_time, rounded up), one work-item each.
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
  const int rows_here = min(panels_here * PANEL, rows - panel_0 * PANEL);

  from += from_offset + matrix_offset(matrix, counts, from_strides)
        + (long)panel_0 * PANEL * row_stride + first * column_stride;
  to += to_offset + (long)matrix * panels * PANEL * columns + (long)first * panels * PANEL + (long)panel_0 * depth * PANEL;
  pack_panels(rows_here, panels_here * PANEL, depth, from, row_stride, column_stride, to);
}
