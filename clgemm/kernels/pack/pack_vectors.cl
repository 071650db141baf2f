// Packs a matrix of any strides into panels, for CPUs (pack/vector_panels.cl), in blocks of block_k columns.
//   from[row*row_stride + column*column_stride]    rows x columns
//   to[first*padded_rows + (panel*depth + column - first)*PANEL + row%PANEL]    panel = row/PANEL
// where first = column/block_k*block_k is the first column of the block, depth is the number of its
// columns, and padded_rows is `rows` rounded up to whole panels. The panels of a block follow one another
// in the order in which they are multiplied. Rows that pad the last panel are zero.
// Work-groups: matrices x blocks x (block_k/cut_columns, rounded up) x (panels/cut_panels, rounded up), one
// work-item each.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_vectors(const int rows, const int columns, const int block_k, const int cut_panels, const int cut_columns,
                  const int4 counts,
                  __global const float* restrict from, const long from_offset, const long row_stride,
                  const long column_stride, const long4 from_strides,
                  __global float* restrict to, const long to_offset) {
  const int panels = (rows + PANEL - 1) / PANEL, cuts = (panels + cut_panels - 1) / cut_panels;
  const int blocks = (columns + block_k - 1) / block_k, block_cuts = (block_k + cut_columns - 1) / cut_columns;
  uint group = get_group_id(0);
  const int panel_0 = group % cuts * cut_panels, panels_here = min(cut_panels, panels - panel_0);
  group /= cuts;
  const int column_0 = group % block_cuts * cut_columns;
  group /= block_cuts;
  const int first = group % blocks * block_k, depth = min(block_k, columns - first);
  const uint matrix = group / blocks;
  if (column_0 >= depth) return;

  from += from_offset + matrix_offset(matrix, counts, from_strides)
        + (long)panel_0 * PANEL * row_stride + (first + column_0) * column_stride;
  to += to_offset + (long)matrix * panels * PANEL * columns + (long)first * panels * PANEL
      + (long)panel_0 * PANEL * depth + column_0 * PANEL;
  pack_panels(min(panels_here * PANEL, rows - panel_0 * PANEL), panels_here * PANEL,
              min(cut_columns, depth - column_0), depth, from, row_stride, column_stride, to);
}
